//! Statements of success in a model's final text, compared with what the log shows.
//!
//! The reader is quiet when in doubt: an accusation that is wrong costs more trust than a missed one.
//! It looks for plain statements that tests, a build or a named command succeeded (`grammar`), and
//! leaves out every sentence that hedges, negates, promises, asks or quotes (`sentences`). A text
//! that admits somewhere that something was not run is left alone altogether.

mod grammar;
mod sentences;
mod words;

use agent_protocol::payload::conversation::ClaimVerdict;

use super::CheckStatus;
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

impl Subject {
    /// The word for it in the log.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Tests => "tests",
            Self::Build => "build",
            Self::Lint => "lint",
            Self::Anything => "everything",
            Self::Command(_) => "command",
        }
    }
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

/// A claim with what the log shows of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JudgedClaim {
    pub claim: Claim,
    pub verdict: ClaimVerdict,
    /// The run that decides, where there is one.
    pub run: Option<Shown>,
}

impl JudgedClaim {
    /// What a person is told about a claim that the log does not show.
    #[must_use]
    pub fn message(&self) -> String {
        let said = &self.claim.sentence;
        let command = self.run.as_ref().map(|run| run.command.as_str());
        let why = match (self.verdict, command) {
            (ClaimVerdict::Supported, _) => {
                return format!("The model says \"{said}\", and the log shows it.");
            }
            (ClaimVerdict::Contradicted, Some(command)) => format!("`{command}` failed"),
            (ClaimVerdict::Contradicted, None) => "that command failed".to_owned(),
            (ClaimVerdict::Stale, Some(command)) => format!("files changed after `{command}` ran"),
            (ClaimVerdict::CouldNotBeJudged, Some(command)) => {
                let reason = self.run.as_ref().and_then(|run| run.reason.as_deref());
                let reason = reason.map(|why| format!(": {why}")).unwrap_or_default();
                format!("`{command}` could not be judged{reason}")
            }
            (ClaimVerdict::NotRun, _) | (_, None) => "no recorded command proves it".to_owned(),
        };
        format!("The model says \"{said}\", but {why}.")
    }
}

/// The claims in `text` that the log does not show.
#[must_use]
pub fn conflicts(text: &str, track: &Track) -> Vec<Claim> {
    let mut claims = judge(text, track);
    claims.retain(|claim| claim.verdict != ClaimVerdict::Supported);
    claims.into_iter().map(|judged| judged.claim).collect()
}

/// The claims in `text`, each with what the log shows of it. A statement about a command that nobody
/// knows is left out.
#[must_use]
pub fn judge(text: &str, track: &Track) -> Vec<JudgedClaim> {
    let judged = find(text).into_iter().filter_map(|claim| {
        let (verdict, run) = verdict(&claim, track)?;
        Some(JudgedClaim {
            verdict,
            run: run.cloned(),
            claim,
        })
    });
    judged.collect()
}

/// The claims of success in `text`.
#[must_use]
pub fn find(text: &str) -> Vec<Claim> {
    let sentences = sentences::of(text);
    let claim = |sentence: &sentences::Sentence| {
        let (about, extent) = grammar::claim(sentence)?;
        Some(Claim {
            sentence: sentence.text.clone(),
            about,
            extent,
        })
    };
    let claims: Vec<Claim> = sentences.iter().filter_map(claim).collect();
    if claims.is_empty() || sentences.iter().any(grammar::admits_a_gap) {
        return Vec::new();
    }
    claims
}

type Verdict<'a> = (ClaimVerdict, Option<&'a Shown>);

fn verdict<'a>(claim: &Claim, track: &'a Track) -> Option<Verdict<'a>> {
    let tests = |run: &Shown| matches!(run.runner, Runner::Tests | Runner::Configured);
    let lint = |run: &Shown| matches!(run.runner, Runner::Lint | Runner::Configured);
    let of = |fits: &dyn Fn(&Shown) -> bool| Some(shows(claim.extent, track, fits));
    match &claim.about {
        Subject::Tests => of(&tests),
        Subject::Anything => of(&|_| true),
        Subject::Lint => of(&lint),
        Subject::Build => build(claim.extent, track),
        Subject::Command(command) => {
            let names = |run: &Shown| run.command.contains(command.as_str());
            if track.last(names).is_some() {
                return of(&names);
            }
            let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
            match recognise(&words, &[]) {
                // The same thing may have been run under another name.
                Some(Runner::Tests | Runner::Configured) => of(&tests),
                Some(Runner::Build) => build(claim.extent, track),
                Some(Runner::Lint) => of(&|run| run.runner == Runner::Lint),
                // A command that verifies nothing is contradicted by its own exit code alone.
                None => track.exit_of(command).map(|code| match code {
                    0 => (ClaimVerdict::Supported, None),
                    _ => (ClaimVerdict::Contradicted, None),
                }),
            }
        }
    }
}

/// What the runs that fit show: a failed one that no later run answers speaks before the last one.
fn shows<'a>(extent: Extent, track: &'a Track, fits: &dyn Fn(&Shown) -> bool) -> Verdict<'a> {
    let Some(last) = track.last(fits) else {
        return (ClaimVerdict::NotRun, None);
    };
    if extent == Extent::Partly {
        return (ClaimVerdict::Supported, Some(last));
    }
    let failed = track.last(|run| fits(run) && run.status == CheckStatus::Failed);
    let is_past = extent == Extent::Past;
    let run = failed.filter(|run| !run.stale || !is_past).unwrap_or(last);
    let verdict = match run.status {
        CheckStatus::Failed if run.stale && !std::ptr::eq(run, last) => ClaimVerdict::Stale,
        CheckStatus::Failed => ClaimVerdict::Contradicted,
        _ if run.stale && !is_past => ClaimVerdict::Stale,
        CheckStatus::NotJudged => ClaimVerdict::CouldNotBeJudged,
        CheckStatus::Passed => ClaimVerdict::Supported,
    };
    (verdict, Some(run))
}

/// Tests do not run without a build, so that a run of them shows one, and one that failed leaves it
/// open.
fn build(extent: Extent, track: &Track) -> Option<Verdict<'_>> {
    let builds = |run: &Shown| run.runner == Runner::Build;
    let tests = |run: &Shown| matches!(run.runner, Runner::Tests | Runner::Configured);
    let holds = |verdict: &Verdict<'_>| verdict.0 == ClaimVerdict::Supported;
    if track.last(builds).is_some() {
        let own = shows(extent, track, &builds);
        let wider = shows(extent, track, &|run| run.runner != Runner::Lint);
        return Some(if !holds(&own) && holds(&wider) {
            wider
        } else {
            own
        });
    }
    let tested = shows(extent, track, &tests);
    match tested.0 {
        ClaimVerdict::Supported | ClaimVerdict::NotRun => Some(tested),
        _ => None,
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
                evidence_id: None,
                command: command.to_owned(),
                check: words.clone(),
                cwd: None,
                runner,
                status: match exit_code {
                    0 => CheckStatus::Passed,
                    _ => CheckStatus::Failed,
                },
                reason: None,
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
