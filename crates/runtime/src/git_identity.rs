//! Who commits are by. Commands cannot see the user's git settings, so that the name and address in
//! them are passed on as variables; nothing else of those files is.

use std::ffi::OsString;
use std::path::Path;

#[derive(Debug, Default, PartialEq, Eq)]
struct Identity {
    name: Option<String>,
    email: Option<String>,
}

/// The variables that say it to git; none for what the settings do not say.
pub(super) fn variables(home: &Path, config_home: Option<&Path>) -> Vec<(OsString, OsString)> {
    let mut found = Identity::default();
    // In git's order: the later file counts.
    let general = config_home.map_or_else(|| home.join(".config"), Path::to_path_buf);
    for file in [general.join("git/config"), home.join(".gitconfig")] {
        if let Ok(text) = std::fs::read_to_string(file) {
            found.read(&text);
        }
    }
    let pairs = [
        (["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"], found.name),
        (["GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"], found.email),
    ];
    pairs
        .into_iter()
        .filter_map(|(names, value)| Some((names, value?)))
        .flat_map(|(names, value)| names.map(|name| (name.into(), value.clone().into())))
        .collect()
}

impl Identity {
    /// The two plain values of `[user]`; what other files would add is not followed.
    fn read(&mut self, text: &str) {
        let mut in_user = false;
        for line in text.lines().map(str::trim) {
            if let Some(section) = line.strip_prefix('[') {
                let name = section.split(']').next().unwrap_or_default();
                in_user = name.trim().eq_ignore_ascii_case("user");
                continue;
            }
            let Some((key, value)) = line.split_once('=').filter(|_| in_user) else {
                continue;
            };
            let place = match key.trim().to_ascii_lowercase().as_str() {
                "name" => &mut self.name,
                "email" => &mut self.email,
                _ => continue,
            };
            *place = Some(plain(value)).filter(|value| !value.is_empty());
        }
    }
}

/// A value without quotes and comment.
fn plain(value: &str) -> String {
    let mut quoted = false;
    let mut escaped = false;
    let mut text = String::new();
    for character in value.trim().chars() {
        match character {
            _ if escaped => {
                escaped = false;
                text.push(character);
            }
            '\\' => escaped = true,
            '"' => quoted = !quoted,
            '#' | ';' if !quoted => break,
            _ => text.push(character),
        }
    }
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, name: Option<&str>, email: Option<&str>) {
        let mut found = Identity::default();
        found.read(text);
        let expected = Identity {
            name: name.map(str::to_owned),
            email: email.map(str::to_owned),
        };
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn name_and_address_are_read_and_nothing_else_is() {
        check(
            "[core]\n name = no\n[User]\n\tname = Ada L. # me\n email=\"a#b@example.org\"\n[credential]\n name = x\n",
            Some("Ada L."),
            Some("a#b@example.org"),
        );
        check("[user \"other\"]\nname = no\n", None, None);
        check("[user]\n  signingKey = secret\n", None, None);
        check("", None, None);
    }
}
