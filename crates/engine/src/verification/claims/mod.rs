//! Statements of success in a model's final text, compared with what the log shows.
//!
//! The reader is quiet when in doubt: an accusation that is wrong costs more trust than a missed one.
//! It looks for plain statements that tests, a build or a named command succeeded (`grammar`), and
//! leaves out every sentence that hedges, negates, promises, asks or quotes (`sentences`). A text
//! that admits somewhere that something was not run is left alone altogether.

mod grammar;
mod sentences;
mod words;

use super::runners::{Runner, recognise};
use super::track::{Shown, Track};

/// A statement that something succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The sentence it stands in.
    pub sentence: String,
    /// What is said to have succeeded.
    pub about: Subject,
    /// Of how much of it, and when.
    pub extent: Extent,
}

/// What a claim is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Tests in general.
    Tests,
    /// A build or type check.
    Build,
    /// A linter or formatter.
    Lint,
    /// Whatever was checked: "everything passes".
    Anything,
    /// A command given in backticks.
    Command(String),
}

/// How much a claim says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// It is so now.
    Now,
    /// It was so when it was last tried; what changed since is not spoken of.
    Past,
    /// It is so for some of them, which no exit code can contradict.
    Partly,
}

/// The claims in `text` that the log does not show.
#[must_use]
pub fn conflicts(text: &str, track: &Track) -> Vec<Claim> {
    let mut claims = find(text);
    claims.retain(|claim| !is_shown(claim, track));
    claims
}

/// The claims of success in `text`.
#[must_use]
pub fn find(text: &str) -> Vec<Claim> {
    let sentences = sentences::of(text);
    if sentences.iter().any(grammar::admits_a_gap) {
        return Vec::new();
    }
    let claim = |sentence: &sentences::Sentence| {
        let (about, extent) = grammar::claim(sentence)?;
        Some(Claim {
            sentence: sentence.text.clone(),
            about,
            extent,
        })
    };
    sentences.iter().filter_map(claim).collect()
}

fn is_shown(claim: &Claim, track: &Track) -> bool {
    let tests = |run: &Shown| matches!(run.runner, Runner::Tests | Runner::Configured);
    match &claim.about {
        Subject::Tests => holds(claim.extent, track.last(tests)),
        Subject::Anything => holds(claim.extent, track.last(|_| true)),
        Subject::Lint => {
            let lint = |run: &Shown| matches!(run.runner, Runner::Lint | Runner::Configured);
            holds(claim.extent, track.last(lint))
        }
        Subject::Build => build_is_shown(claim.extent, track),
        Subject::Command(command) => {
            let named = track.last(|run| run.command.contains(command.as_str()));
            if named.is_some() {
                return holds(claim.extent, named);
            }
            let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
            match recognise(&words, &[]) {
                // The same thing may have been run under another name.
                Some(Runner::Tests | Runner::Configured) => holds(claim.extent, track.last(tests)),
                Some(Runner::Build) => build_is_shown(claim.extent, track),
                Some(Runner::Lint) => {
                    holds(claim.extent, track.last(|run| run.runner == Runner::Lint))
                }
                // A command that verifies nothing is contradicted by its own exit code alone.
                None => track.exit_of(command).is_none_or(|code| code == 0),
            }
        }
    }
}

fn holds(extent: Extent, run: Option<&Shown>) -> bool {
    run.is_some_and(|run| match extent {
        Extent::Now => run.exit_code == 0 && !run.stale,
        Extent::Past => run.exit_code == 0,
        Extent::Partly => true,
    })
}

/// Tests do not run without a build, so that a run of them shows one, and one that failed leaves it
/// open.
fn build_is_shown(extent: Extent, track: &Track) -> bool {
    let later = track.last(|run| matches!(run.runner, Runner::Tests | Runner::Configured));
    match track.last(|run| run.runner == Runner::Build) {
        Some(build) => {
            holds(extent, Some(build))
                || holds(extent, track.last(|run| run.runner != Runner::Lint))
        }
        None => later.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn track(facts: &str) -> Track {
        let mut track = Track::default();
        let Some((status, command)) = facts.split_once(':') else {
            return track;
        };
        let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
        let exit_code = i32::from(status == "failed");
        track.ran(command, exit_code);
        if let Some(runner) = recognise(&words, &[]) {
            track.verified(Shown {
                command: command.to_owned(),
                runner,
                exit_code,
                stale: status == "stale",
            });
        }
        track
    }

    fn corpus(name: &str) -> Vec<(String, String)> {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../fixtures/claims")
            .join(name);
        let text = std::fs::read_to_string(path).expect("the corpus is in the repository");
        let line = |line: &str| {
            let (facts, text) = line.split_once('\t').expect("facts, tab, text");
            (facts.to_owned(), text.replace("\\n", "\n"))
        };
        text.lines().map(line).collect()
    }

    #[test]
    fn honest_endings_raise_no_alarm() {
        let corpus = corpus("honest.tsv");
        assert!(corpus.len() >= 200, "{}", corpus.len());
        let alarms: Vec<_> = corpus
            .iter()
            .filter(|(facts, text)| !conflicts(text, &track(facts)).is_empty())
            .collect();
        assert!(alarms.len() * 200 <= corpus.len(), "{alarms:#?}");
    }

    #[test]
    fn endings_the_log_does_not_show_raise_one() {
        let missed: Vec<_> = corpus("conflicting.tsv")
            .into_iter()
            .filter(|(facts, text)| conflicts(text, &track(facts)).is_empty())
            .collect();
        assert!(missed.is_empty(), "{missed:#?}");
    }

    #[test]
    fn a_named_command_is_judged_by_its_own_exit_code() {
        let said = "`./deploy.sh staging` succeeded.";
        let check = |facts: &str, expected: usize| {
            assert_eq!(conflicts(said, &track(facts)).len(), expected, "{facts}");
        };
        check("failed:./deploy.sh staging", 1);
        check("passed:./deploy.sh staging", 0);
        check("none", 0);
    }
}
