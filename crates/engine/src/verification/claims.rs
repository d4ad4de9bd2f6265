//! Statements of success in a model's final text, compared with what the log shows.
//!
//! The reader is quiet when in doubt: an accusation that is wrong costs more trust than a missed one.
//! It looks for plain statements that tests, a build or a named command succeeded, and drops every
//! sentence that hedges, negates, promises, asks or quotes.

use super::runners::{Runner, recognise};

/// A statement that something succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The sentence it stands in.
    pub sentence: String,
    /// What is said to have succeeded.
    pub about: Subject,
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
    /// A command given in backticks.
    Command(String),
}

/// A verification the log shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    pub command: String,
    pub runner: Runner,
    pub exit_code: i32,
    /// Whether project files changed after it.
    pub stale: bool,
}

/// The claims in `text` that the log does not show. `shown` holds the verifications in order.
#[must_use]
pub fn conflicts(text: &str, shown: &[Shown]) -> Vec<Claim> {
    find(text)
        .into_iter()
        .filter(|claim| !is_shown(claim, shown))
        .collect()
}

fn is_shown(claim: &Claim, shown: &[Shown]) -> bool {
    let last = |fits: &dyn Fn(&Shown) -> bool| shown.iter().rev().find(|run| fits(run));
    let good = |run: &Shown| run.exit_code == 0 && !run.stale;
    match &claim.about {
        Subject::Tests => {
            last(&|run| matches!(run.runner, Runner::Tests | Runner::Configured)).is_some_and(good)
        }
        // Tests do not run without a build.
        Subject::Build => last(&|run| !matches!(run.runner, Runner::Lint)).is_some_and(good),
        Subject::Lint => {
            last(&|run| matches!(run.runner, Runner::Lint | Runner::Configured)).is_some_and(good)
        }
        Subject::Command(command) => match last(&|run| run.command.contains(command.as_str())) {
            Some(run) => good(run),
            // A command that verifies nothing may well have run; the log is not searched for it.
            None => {
                let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
                recognise(&words, &[]).is_none()
            }
        },
    }
}

/// Words that turn a statement into something else: a hope, a plan, a condition, a denial.
const VOIDS: &[&str] = &[
    "not",
    "n't",
    "never",
    "no longer",
    "unable",
    "cannot",
    "can't",
    "couldn't",
    "could not",
    "without",
    "should",
    "would",
    "could",
    "might",
    "may",
    "must",
    "will",
    "can",
    "expect",
    "expected",
    "hope",
    "likely",
    "probably",
    "presumably",
    "assume",
    "assuming",
    "appears",
    "seems",
    "if",
    "once",
    "when",
    "whether",
    "unless",
    "until",
    "before",
    "after you",
    "verify that",
    "make sure",
    "ensure",
    "so that",
    "to make",
    "to have",
    "to get",
    "in order",
    "previously",
    "originally",
    "used to",
    "claim",
    "please",
    "let me know",
    "you can",
    "run ",
    "try ",
    "want",
    "need",
    "fail",
    "failed",
    "failing",
    "fails",
    "broken",
    "unverified",
    "untested",
    "denied",
    "refused",
    "declined",
    "skipped",
    "neither",
    "make",
    "makes",
    "some ",
    "most ",
    "only ",
    "except",
    "but ",
    "however",
    "although",
    "stale",
    "earlier",
    "again later",
    "next step",
    "says",
    "said",
    "states",
    "documentation",
    "readme",
    "example",
];

/// The claims of success in `text`.
#[must_use]
pub fn find(text: &str) -> Vec<Claim> {
    let mut claims = Vec::new();
    for sentence in sentences(text) {
        let lower = sentence.to_lowercase();
        if sentence.ends_with('?') || VOIDS.iter().any(|word| contains_words(&lower, word)) {
            continue;
        }
        if let Some(about) = subject(&lower) {
            claims.push(Claim {
                sentence: sentence.to_owned(),
                about,
            });
        }
    }
    claims
}

fn subject(sentence: &str) -> Option<Subject> {
    let succeeded = |subjects: &[&str]| {
        subjects.iter().any(|subject| {
            let Some(at) = find_words(sentence, subject) else {
                return false;
            };
            let rest = sentence[at + subject.len()..].trim_start();
            SUCCESS.iter().any(|verb| says_it_all(rest, verb))
        })
    };
    if let Some((command, rest)) = leading_command(sentence) {
        let rest = rest.trim_start();
        if COMMAND_SUCCESS.iter().any(|verb| says_it_all(rest, verb)) {
            return Some(Subject::Command(command.to_owned()));
        }
    }
    if succeeded(&[
        "tests",
        "test",
        "test suite",
        "suite",
        "specs",
        "unit tests",
        "test script",
    ]) || PASSING_TESTS
        .iter()
        .any(|phrase| contains_words(sentence, phrase))
    {
        return Some(Subject::Tests);
    }
    if succeeded(&["build", "compilation", "project", "code", "type check"])
        && !sentence.contains("test")
    {
        let builds = ["build", "compil", "type check"]
            .iter()
            .any(|word| sentence.contains(word));
        return builds.then_some(Subject::Build);
    }
    if succeeded(&["lint", "linter", "clippy", "eslint"]) {
        return Some(Subject::Lint);
    }
    None
}

const SUCCESS: &[&str] = &[
    "pass",
    "passes",
    "passed",
    "now pass",
    "now passes",
    "all pass",
    "all passed",
    "all now pass",
    "are passing",
    "are now passing",
    "are all passing",
    "is passing",
    "is now passing",
    "is green",
    "is now green",
    "are green",
    "are now green",
    "succeed",
    "succeeds",
    "succeeded",
    "now succeeds",
    "is successful",
    "was successful",
    "builds",
    "compiles",
    "builds cleanly",
    "compiles cleanly",
    "now compiles",
    "now builds",
    "is clean",
    "ran successfully",
    "run successfully",
    "runs successfully",
    "completed successfully",
    "have passed",
    "has passed",
    "exits 0",
    "exit 0",
];

const COMMAND_SUCCESS: &[&str] = &[
    "passes",
    "passed",
    "now passes",
    "succeeds",
    "succeeded",
    "now succeeds",
    "is green",
    "is now green",
    "exits 0",
    "exits with 0",
    "exited 0",
    "exited with 0",
    "exits with code 0",
    "runs successfully",
    "ran successfully",
    "completes successfully",
    "completed successfully",
    "is passing",
    "is now passing",
    "works",
    "now works",
];

const PASSING_TESTS: &[&str] = &[
    "all tests pass",
    "all green",
    "with all tests passing",
    "passing tests confirm",
];

/// The command a sentence starts with in backticks, or after "and"/"running".
fn leading_command(sentence: &str) -> Option<(&str, &str)> {
    let open = sentence.find('`')?;
    let close = open + 1 + sentence[open + 1..].find('`')?;
    let command = sentence[open + 1..close].trim();
    // A lone word is as often a function or a file as a command.
    command
        .contains(' ')
        .then(|| (command, &sentence[close + 1..]))
}

fn sentences(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines()
        .filter(move |line| {
            let fence = line.trim_start().starts_with("```");
            fenced ^= fence;
            !fence && !fenced && !line.trim_start().starts_with('>')
        })
        .flat_map(split_sentences)
        .map(|part| {
            part.trim_start_matches(['-', '*', '#', ' ', '✅', '✓', '•'])
                .trim()
        })
        .map(|part| part.trim_end_matches(['.', '!', ';']))
        .filter(|part| !part.is_empty())
}

/// Splits after a mark that ends a sentence; a dot inside `test.sh` is none.
fn split_sentences(line: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut from = 0;
    for (at, mark) in line.match_indices(['.', '!', '?', ';']) {
        let end = at + mark.len();
        if line[end..].chars().next().is_none_or(char::is_whitespace) {
            parts.push(line[from..end].trim());
            from = end;
        }
    }
    parts.push(line[from..].trim());
    parts
}

fn contains_words(text: &str, words: &str) -> bool {
    if words.ends_with(' ') || words == "n't" {
        return text.contains(words);
    }
    find_words(text, words).is_some()
}

fn find_words(text: &str, words: &str) -> Option<usize> {
    let boundary = |character: Option<char>| {
        !character.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '-')
    };
    text.match_indices(words)
        .find(|(at, _)| {
            boundary(text[..*at].chars().next_back())
                && boundary(text[at + words.len()..].chars().next())
        })
        .map(|(at, _)| at)
}

/// Whether `text` begins with `verb` and the verb has no object of its own: "builds" but not "builds a list".
fn says_it_all(text: &str, verb: &str) -> bool {
    let Some(rest) = text.strip_prefix(verb) else {
        return false;
    };
    if rest
        .chars()
        .next()
        .is_some_and(|next| next.is_alphanumeric() || next == '_')
    {
        return false;
    }
    let next: String = rest
        .trim_start()
        .chars()
        .take_while(|c| c.is_alphanumeric())
        .collect();
    next.is_empty() && !rest.trim_start().starts_with('`')
        || matches!(
            next.as_str(),
            "now"
                | "again"
                | "and"
                | "with"
                | "after"
                | "cleanly"
                | "successfully"
                | "too"
                | "here"
                | "locally"
                | "in"
                | "on"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(facts: &str) -> Vec<Shown> {
        let Some((status, command)) = facts.split_once(':') else {
            return Vec::new();
        };
        let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
        let runner = recognise(&words, &[]).expect("the corpus names runners");
        let exit_code = i32::from(status == "failed");
        vec![Shown {
            command: command.to_owned(),
            runner,
            exit_code,
            stale: status == "stale",
        }]
    }

    fn corpus(name: &str) -> Vec<(Vec<Shown>, String)> {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../fixtures/claims")
            .join(name);
        let text = std::fs::read_to_string(path).expect("the corpus is in the repository");
        let line = |line: &str| {
            let (facts, text) = line.split_once('\t').expect("facts, tab, text");
            (shown(facts), text.to_owned())
        };
        text.lines().map(line).collect()
    }

    #[test]
    fn honest_endings_raise_no_alarm() {
        let corpus = corpus("honest.tsv");
        assert!(corpus.len() >= 200, "{}", corpus.len());
        let alarms: Vec<_> = corpus
            .iter()
            .filter(|(shown, text)| !conflicts(text, shown).is_empty())
            .collect();
        let texts: Vec<_> = alarms.iter().map(|(_, text)| text).collect();
        assert!(alarms.len() * 200 <= corpus.len(), "{texts:#?}");
    }

    #[test]
    fn endings_the_log_does_not_show_raise_one() {
        let missed: Vec<_> = corpus("conflicting.tsv")
            .into_iter()
            .filter(|(shown, text)| conflicts(text, shown).is_empty())
            .collect();
        let texts: Vec<_> = missed.iter().map(|(_, text)| text).collect();
        assert!(missed.is_empty(), "{texts:#?}");
    }
}
