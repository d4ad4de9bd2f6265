//! What starts copies of itself without end.

use super::{Act, Tripped};
use crate::shell::inline_code::InlineCode;
use crate::shell::{Analysis, FORK_BOMB};

pub(super) fn of_script(analysis: &Analysis) -> Vec<Tripped> {
    let bomb = || Tripped::Deny(format!("the script is a fork bomb: {FORK_BOMB}"));
    let by_structure = analysis
        .commands
        .iter()
        .any(|command| command.opaque == Some(FORK_BOMB));
    // A bomb may be written so that the parser does not see a function.
    let squeezed = squeeze(&analysis.script);
    let by_text = squeezed.contains(":(){:|:&};:");
    let itself = analysis
        .commands
        .iter()
        .filter(|command| {
            let name = command.words.first().map(|word| word.source.as_str());
            matches!(name, Some("$0" | "\"$0\"" | "${0}" | "\"${0}\""))
        })
        .count();
    if by_structure || by_text || itself >= 2 {
        vec![bomb()]
    } else {
        Vec::new()
    }
}

/// `perl -e 'fork while fork'` and the like.
pub(super) fn of_command(act: &Act<'_>) -> Option<Tripped> {
    const LOOPS: &[&str] = &["while", "until", "loop", "for(", "for ", "iter("];
    const BOMBS: &[&str] = &[
        "forkwhilefork",
        "forkwhile1",
        "while1:os.fork()",
        "whiletrue:os.fork()",
        "loop{fork",
        "while(1){fork",
        "forkuntil",
    ];
    let code = InlineCode::of(act.name, &act.arguments)?;
    if !code.text().contains("fork") {
        return None;
    }
    let squeezed = squeeze(code.text()).to_lowercase();
    if BOMBS.iter().any(|bomb| squeezed.contains(bomb)) {
        return Some(Tripped::Deny(format!(
            "the code for `{}` is a fork bomb: {FORK_BOMB}",
            act.name
        )));
    }
    LOOPS
        .iter()
        .any(|word| code.text().contains(word))
        .then(|| Tripped::Ask(format!("the code for `{}` forks in a loop", act.name)))
}

fn squeeze(text: &str) -> String {
    text.chars()
        .filter(|character| !character.is_whitespace())
        .collect()
}
