//! Refusals of the sandbox in words for the observation: what was refused, and what would permit it.

use std::path::{Path, PathBuf};

use agent_sandbox::{Detection, Kind, Permit, Violation};

use agent_text::counted;

/// One group of refusals as a sentence.
pub(super) fn words(refused: &Violation) -> String {
    let target = &refused.target;
    let way = permit(refused.permitted_by);
    match (refused.kind, refused.detection) {
        (Kind::Network, Detection::KernelCounter) => format!(
            "The sandbox has no network and refused {}; {way}.",
            counted(refused.count, "connection")
        ),
        (Kind::Network, Detection::InferredFromErrnoText) => {
            format!("The sandbox has no network (the output says `{target}`); {way}.")
        }
        (Kind::Read, Detection::NamedPath) if refused.permitted_by == Permit::NoDenyRule => {
            format!(
                "The sandbox hides `{target}`, by a deny rule or because its name is that of a \
                 secret; it looks empty to this command."
            )
        }
        (Kind::Read, Detection::NamedPath) => format!("The sandbox hides `{target}`; {way}."),
        (_, Detection::NamedPath) => format!("`{target}` is read-only in the sandbox; {way}."),
        (kind, detection) => {
            let sure = if detection == Detection::InferredFromErrnoText {
                "The sandbox may have refused"
            } else {
                "The sandbox refused"
            };
            let name = kind.name();
            format!(
                "{sure}: {name} {target}; it would be permitted by {}.",
                refused.permitted_by.name()
            )
        }
    }
}

/// The way to get it, as a fact.
fn permit(permit: Permit) -> &'static str {
    match permit {
        Permit::Network => "a call with `network: true` asks for it",
        Permit::ReadableRoot => "`sandbox.readable` in the user's settings shows a place",
        Permit::WritableRoot => "`sandbox.writable` in the user's settings opens a place",
        Permit::GitWrite => "a git command that changes the repository is asked about",
        Permit::ProjectWrite => "this call was let through as one that writes nothing",
        Permit::NoDenyRule => "a rule or `sandbox.protected` keeps it as it is",
        Permit::SandboxOff => "nothing but a command outside the sandbox can change it",
    }
}

/// The hidden files of the project that a command was told to use, each as a refusal.
pub(super) fn masked(command: &str, cwd: &Path, hidden: &[PathBuf]) -> Vec<Violation> {
    let named = named_in(command, cwd, hidden).into_iter();
    named
        .map(|target| Violation {
            kind: Kind::Read,
            target,
            count: 1,
            detection: Detection::NamedPath,
            permitted_by: Permit::NoDenyRule,
            expected: false,
        })
        .collect()
}

/// The hidden files of the project that `command` names, as it names them. They look empty to it,
/// which no error tells.
fn named_in(command: &str, cwd: &Path, hidden: &[PathBuf]) -> Vec<String> {
    let ends =
        |character: char| character.is_whitespace() || "\"'`()[]{}<>|&;=,:".contains(character);
    let mut named: Vec<String> = Vec::new();
    for word in command.split(ends).filter(|word| !word.is_empty()) {
        let path = cwd.join(word.strip_prefix("./").unwrap_or(word));
        if hidden.contains(&path) && !named.iter().any(|known| known == word) {
            named.push(word.to_owned());
        }
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_files_are_found_by_the_words_of_a_command() {
        let hidden = [PathBuf::from("/p/.env"), PathBuf::from("/p/keys/a.pem")];
        let check = |command: &str, cwd: &str, expected: &[&str]| {
            let named = named_in(command, Path::new(cwd), &hidden);
            assert_eq!(named, expected, "{command}");
        };
        check("cat .env | base64", "/p", &[".env"]);
        check("cat ./.env '.env'", "/p", &["./.env", ".env"]);
        check("openssl x509 -in=keys/a.pem", "/p", &["keys/a.pem"]);
        check("cat a.pem", "/p/keys", &["a.pem"]);
        check("cat .env", "/p/src", &[]);
        check("cat .env.example", "/p", &[]);
    }
}
