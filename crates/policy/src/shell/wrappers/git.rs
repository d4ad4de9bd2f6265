//! Configuration that git gets on the command line.

use super::{Inner, Unwrapped, not_transparent_all};
use crate::shell::word::Word;

/// `git -c alias.x=push x`: configuration on the command line can make any sub-command another one.
pub(super) fn unwrap_git(rest: &[Word]) -> Option<Unwrapped> {
    let mut inner = Vec::new();
    for (index, word) in rest.iter().enumerate() {
        let text = word.sketch();
        let setting = match text.strip_prefix("-c") {
            Some("") => rest.get(index + 1).map(Word::sketch),
            Some(attached) if attached.contains('=') => Some(attached),
            _ if text.starts_with("--config-env") => Some(text),
            _ => None,
        };
        let Some(setting) = setting else {
            if text.starts_with('-') {
                continue;
            }
            // A word that is no option's value is the sub-command, and what follows is not git's own.
            let before = index.checked_sub(1).and_then(|before| rest.get(before));
            let is_value = before.is_some_and(|before| {
                matches!(
                    before.sketch(),
                    "-c" | "-C" | "--git-dir" | "--work-tree" | "--namespace"
                )
            });
            if !is_value {
                break;
            }
            continue;
        };
        inner.push(Inner::Opaque(
            "git is given configuration that may name programs",
        ));
        if let Some((key, value)) = setting.split_once('=')
            && let Some(alias) = key.strip_prefix("alias.")
        {
            // What follows the alias follows what it stands for.
            let behind = rest
                .iter()
                .skip_while(|word| word.sketch() != alias)
                .skip(1)
                .map(|word| word.source.as_str())
                .collect::<Vec<_>>()
                .join(" ");
            inner.push(Inner::Script(match value.strip_prefix('!') {
                Some(script) => format!("{script} {behind}").trim_end().to_owned(),
                None => format!("git {value} {behind}").trim_end().to_owned(),
            }));
        }
    }
    (!inner.is_empty()).then(|| not_transparent_all(inner))
}
