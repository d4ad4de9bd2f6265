//! When a sentence states that something succeeded: a subject, words that add nothing, a predicate
//! without an object of its own, and nothing in the sentence that makes it something else than a
//! statement.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::sentences::{Sentence, Token};
use super::words::{AFTER, DENIALS, FILLERS, GAPS, PARTS, TRIALS, TROUBLES, VOIDS};
use super::{Extent, Subject};
use crate::verification::recognise;

/// What a sentence claims, if it claims anything.
pub(super) fn claim(sentence: &Sentence) -> Option<(Subject, Extent)> {
    let tokens = &sentence.tokens;
    // Most sentences have no subject of a claim, which is soon seen.
    let claimed =
        (0..tokens.len()).find_map(|at| claim_at(tokens, at).or_else(|| object_at(tokens, at)))?;
    let negated = |word: &str| word.ends_with("n't");
    let is_void = sentence.is_question
        || tokens.iter().filter_map(Token::word).any(negated)
        || VOID_PHRASES.occur_in(tokens)
        || says_it_failed(tokens);
    (!is_void).then_some(claimed)
}

/// "Failing" and "broken", unless it says what was mended: "the failing test now passes".
fn says_it_failed(tokens: &[Token]) -> bool {
    let is_mended = |at: usize| matches!(word_at(tokens, at + 1), Some("test" | "tests" | "build"));
    (0..tokens.len())
        .any(|at| matches!(word_at(tokens, at), Some("failing" | "broken")) && !is_mended(at))
}

/// "passes all tests": whatever does, the tests are what succeeded.
fn object_at(tokens: &[Token], at: usize) -> Option<(Subject, Extent)> {
    let past = match word_at(tokens, at)? {
        "pass" | "passes" => false,
        "passed" => true,
        _ => return None,
    };
    let mut next = at + 1;
    let mut is_all = false;
    while let Some(word) = word_at(tokens, next)
        && matches!(
            word,
            "all" | "the" | "of" | "existing" | "our" | "unit" | "every" | "whole"
        )
    {
        is_all |= matches!(word, "all" | "every" | "whole");
        next += 1;
    }
    let about = match (word_at(tokens, next)?, word_at(tokens, next + 1)) {
        ("test", Some("suite")) => {
            next += 1;
            Subject::Tests
        }
        ("tests" | "suite", _) => Subject::Tests,
        ("test", _) if is_all => Subject::Tests,
        ("checks", _) => Subject::Anything,
        _ => return None,
    };
    let extent = if past { Extent::Past } else { Extent::Now };
    stands_alone(tokens, next + 1).then_some((about, extent))
}

/// Whether a sentence admits that something was not run or does not work: then the text as a whole
/// is no plain statement of success.
pub(super) fn admits_a_gap(sentence: &Sentence) -> bool {
    let tokens = &sentence.tokens;
    if GAP_PHRASES.occur_in(tokens) {
        return true;
    }
    let denies = |word: &str| DENIALS.contains(&word) || word.ends_with("n't");
    tokens.iter().enumerate().any(|(at, token)| {
        token.word().is_some_and(denies)
            && tokens[at + 1..]
                .iter()
                .take(6)
                .filter_map(Token::word)
                .any(|word| TRIALS.contains(&word))
    })
}

fn claim_at(tokens: &[Token], at: usize) -> Option<(Subject, Extent)> {
    let (subject, mut next) = subject_at(tokens, at)?;
    for _ in 0..8 {
        if let Some((end, past)) = predicate_at(tokens, next, &subject)
            && stands_alone(tokens, end)
            && (!is_making(tokens, end) || makes_no_more(tokens, end))
            && (word_at(tokens, at) != Some("test") || next > at + 1 || ends(tokens, end))
        {
            let extent = if is_part(tokens, at, &subject) {
                Extent::Partly
            } else if past {
                Extent::Past
            } else {
                Extent::Now
            };
            return Some((subject, extent));
        }
        if !is_filler(tokens, next) {
            return None;
        }
        next += 1;
    }
    None
}

fn word_at(tokens: &[Token], at: usize) -> Option<&str> {
    tokens.get(at)?.word()
}

/// A subject that begins at `at`, and where it ends.
fn subject_at(tokens: &[Token], at: usize) -> Option<(Subject, usize)> {
    let word = match &tokens[at] {
        Token::Word(word) => word.as_str(),
        Token::Code(command) => {
            let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
            // A lone word is as often a function or a file as a command.
            let is_command = words.len() > 1 || recognise(&words, &[]).is_some();
            return is_command.then(|| (Subject::Command(command.clone()), at + 1));
        }
        Token::Mark(_) => return None,
    };
    let following = word_at(tokens, at + 1);
    Some(match (word, following) {
        ("test", Some("suite" | "suites" | "script" | "run")) => (Subject::Tests, at + 2),
        ("type", Some("check")) => (Subject::Build, at + 2),
        ("tests" | "test" | "suite" | "specs", _) => (Subject::Tests, at + 1),
        ("checks" | "everything" | "all", _) => (Subject::Anything, at + 1),
        (
            "build" | "compilation" | "project" | "code" | "codebase" | "crate" | "workspace"
            | "package" | "program" | "app" | "binary" | "typecheck" | "it",
            _,
        ) => (Subject::Build, at + 1),
        ("lint" | "linter" | "linting" | "clippy" | "eslint" | "ruff", _) => {
            (Subject::Lint, at + 1)
        }
        _ => return None,
    })
}

fn is_filler(tokens: &[Token], at: usize) -> bool {
    match tokens.get(at) {
        Some(Token::Word(word)) if word == "and" => matches!(
            word_at(tokens, at + 1),
            Some("they" | "it" | "everything" | "all" | "both" | "every" | "each")
        ),
        Some(Token::Word(word)) if word == "to" => {
            matches!(word_at(tokens, at - 1), Some("continue" | "continues"))
        }
        Some(Token::Word(word)) => {
            FILLERS.contains(&word.as_str()) || word.starts_with(|c: char| c.is_ascii_digit())
        }
        Some(Token::Mark(mark)) => !matches!(mark, '(' | '[' | '{'),
        Some(Token::Code(_)) | None => false,
    }
}

/// A predicate that begins at `at`: where it ends, and whether it speaks of the past.
fn predicate_at(tokens: &[Token], at: usize, subject: &Subject) -> Option<(usize, bool)> {
    let word = word_at(tokens, at)?;
    let before = at.checked_sub(1).and_then(|at| word_at(tokens, at));
    let was = matches!(before, Some("was" | "were" | "had"));
    let one = Some((at + 1, was));
    if *subject == Subject::Build && !names_a_build(tokens, at) {
        // "The code passes" says nothing of a build.
        return match word {
            "builds" | "compiles" => one,
            "built" | "compiled" => Some((at + 1, true)),
            _ => None,
        };
    }
    // "All" alone is followed by what is meant, not by what it does.
    if *subject == Subject::Anything && before == Some("all") {
        return matches!(word, "green" | "passing").then_some((at + 1, false));
    }
    match word {
        "pass" | "passes" | "passing" | "succeed" | "succeeds" | "succeeding" | "green"
        | "clean" | "successful" => one,
        "passed" | "succeeded" => Some((at + 1, true)),
        "builds" | "compiles" if matches!(subject, Subject::Build | Subject::Anything) => one,
        "built" | "compiled" if matches!(subject, Subject::Build | Subject::Anything) => {
            Some((at + 1, true))
        }
        "works" if matches!(subject, Subject::Command(_)) => one,
        "ran" | "completed" | "finished" | "runs" | "completes" | "finishes" => {
            let past = matches!(word, "ran" | "completed" | "finished");
            match (word_at(tokens, at + 1)?, word_at(tokens, at + 2)) {
                ("successfully" | "cleanly", _) => Some((at + 2, past)),
                ("without", Some(trouble)) if TROUBLES.contains(&trouble) => Some((at + 1, past)),
                _ => None,
            }
        }
        "exit" | "exits" | "exited" => {
            let mut next = at + 1;
            while matches!(
                word_at(tokens, next),
                Some("with" | "code" | "status" | "exit")
            ) {
                next += 1;
            }
            matches!(word_at(tokens, next), Some("0" | "zero"))
                .then_some((next + 1, word == "exited"))
        }
        _ => None,
    }
}

/// Whether the words before `at` speak of a build by name, and not of code or a project.
fn names_a_build(tokens: &[Token], at: usize) -> bool {
    let named = |word: &str| matches!(word, "build" | "compilation" | "check" | "typecheck");
    tokens[..at].iter().filter_map(Token::word).any(named)
}

/// Whether nothing follows that the predicate would be about.
fn stands_alone(tokens: &[Token], end: usize) -> bool {
    match tokens.get(end) {
        None | Some(Token::Mark(_)) => true,
        Some(Token::Code(_)) => false,
        Some(Token::Word(word)) if word == "without" => {
            word_at(tokens, end + 1).is_some_and(|next| TROUBLES.contains(&next))
        }
        Some(Token::Word(word)) => AFTER.contains(&word.as_str()),
    }
}

/// "The test passes" is said of one that was run, "the test passes with ..." as often of what it does.
fn ends(tokens: &[Token], end: usize) -> bool {
    word_at(tokens, end).is_none()
}

/// Whether the predicate before `end` may be what something makes: "builds", "compiles".
fn is_making(tokens: &[Token], end: usize) -> bool {
    let verb = end.checked_sub(1).and_then(|at| word_at(tokens, at));
    matches!(verb, Some("builds" | "compiles" | "built" | "compiled"))
}

/// Whether what follows says how it went, and not what was made, of what or for whom.
fn makes_no_more(tokens: &[Token], end: usize) -> bool {
    match (word_at(tokens, end), word_at(tokens, end + 1)) {
        (None, _) => true,
        (Some("and"), next) => matches!(
            next,
            Some("all" | "the" | "tests" | "passes" | "pass" | "runs" | "every")
        ),
        (Some("with"), next) => matches!(next, Some("no" | "zero")),
        (Some(next), _) => !matches!(next, "on" | "in" | "as" | "for" | "under" | "after"),
    }
}

/// Whether the subject at `at` is only a part of what it names.
fn is_part(tokens: &[Token], at: usize, subject: &Subject) -> bool {
    if matches!(subject, Subject::Command(_)) {
        return false;
    }
    let before = tokens[..at].iter().rev().take(4).map_while(Token::word);
    let mut numbered = false;
    for word in before {
        if matches!(word, "all" | "every" | "each" | "whole" | "entire" | "both") {
            return false;
        }
        let is_number = word.chars().all(|c| c.is_ascii_digit());
        numbered |= is_number || PARTS.contains(&word);
    }
    numbered
}

static VOID_PHRASES: LazyLock<Phrases> = LazyLock::new(|| Phrases::of(VOIDS));
static GAP_PHRASES: LazyLock<Phrases> = LazyLock::new(|| Phrases::of(GAPS));

/// Phrases by their first word, each with the words after it.
struct Phrases(HashMap<&'static str, Vec<Vec<&'static str>>>);

impl Phrases {
    fn of(phrases: &[&'static str]) -> Self {
        let mut by_first: HashMap<_, Vec<_>> = HashMap::new();
        for phrase in phrases {
            let mut words = phrase.split(' ');
            let first = words.next().unwrap_or_default();
            by_first.entry(first).or_default().push(words.collect());
        }
        Self(by_first)
    }

    fn occur_in(&self, tokens: &[Token]) -> bool {
        (0..tokens.len()).any(|at| {
            let rests = word_at(tokens, at).and_then(|word| self.0.get(word));
            let follows = |rest: &Vec<&str>| {
                let words = rest.iter().zip(at + 1..);
                words
                    .into_iter()
                    .all(|(word, at)| word_at(tokens, at) == Some(word))
            };
            rests.is_some_and(|rests| rests.iter().any(follows))
        })
    }
}
