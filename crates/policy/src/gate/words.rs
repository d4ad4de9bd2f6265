//! Word patterns for commands: `cargo test *`, `npm run lint`, `git push --force *`.
//!
//! An allow is matched to the letter. A deny or ask looks through paths, bundled flags and options in
//! front of the sub-command, and answers "maybe" where a word is only known when the command runs.

use std::collections::BTreeSet;
use std::fmt;

use super::protected::wildcard;
use super::rule::RuleProblem;
use crate::shell::word::{UNKNOWN, Value, Word};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Match {
    No,
    /// It depends on what the shell makes of a word.
    Maybe,
    Yes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WordPattern {
    words: Vec<String>,
    /// A final `*`: any further words, also none.
    open: bool,
}

impl fmt::Display for WordPattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.words.join(" "))
    }
}

/// How many steps up a word that may be a path takes.
fn climbs(text: &str) -> usize {
    text.split('/').filter(|part| *part == "..").count()
}

impl WordPattern {
    pub fn parse(pattern: &str) -> Result<Self, RuleProblem> {
        if let Some(found) = pattern.chars().find(|c| ";|&<>`\n".contains(*c)) {
            return Err(RuleProblem {
                message: format!(
                    "the pattern `{pattern}` contains `{found}`, but a pattern matches the words \
                     of one simple command"
                ),
                suggestion: Some("write one rule per command".to_owned()),
            });
        }
        if pattern.contains("$(") {
            return Err(RuleProblem {
                message: format!(
                    "the pattern `{pattern}` contains a substitution, which no rule can match"
                ),
                suggestion: None,
            });
        }
        let mut words: Vec<String> = pattern.split_whitespace().map(str::to_owned).collect();
        let open = words.last().is_some_and(|word| word == "*");
        if open {
            words.pop();
        }
        Ok(Self { words, open })
    }

    /// The words in front of a final `*`.
    pub fn words(&self) -> &[String] {
        &self.words
    }

    /// Whether a final `*` lets further words follow.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Whether an allow covers exactly these words. What a glob becomes is covered by a final `*` alone.
    pub fn covers(&self, words: &[Word]) -> bool {
        if words.len() < self.words.len() || (!self.open && words.len() > self.words.len()) {
            return false;
        }
        let name_is_plain = words
            .first()
            .is_some_and(|word| word.plain_text().is_some());
        let fixed = self.words.iter().zip(words).all(|(pattern, word)| {
            // A star names what is below, not the way up: `./scripts/*` is not `./scripts/../x`.
            word.text()
                .is_some_and(|text| wildcard(pattern, text) && climbs(text) <= climbs(pattern))
        });
        let further = words
            .get(self.words.len()..)
            .unwrap_or_default()
            .iter()
            .all(|word| matches!(word.value, Value::Literal { .. } | Value::Glob { .. }));
        name_is_plain && fixed && further
    }

    /// Whether a deny or ask speaks about this command.
    pub fn finds(&self, words: &[Word]) -> Match {
        let stripped = without_global_options(words);
        self.finds_in_order(words)
            .max(self.finds_in_order(&stripped))
            .max(self.finds_out_of_order(&stripped))
    }

    /// Whether a deny or ask may speak about a command that begins with these words; where it ends is not known.
    pub fn may_find(&self, words: &[Word]) -> bool {
        if self.open {
            return self.finds(words) != Match::No;
        }
        let open = Self {
            open: true,
            ..self.clone()
        };
        open.finds(words) != Match::No
    }

    /// True if a program of this name may be the one that it is about.
    pub fn may_name(&self, name: &str) -> bool {
        let first = self.words.first();
        first.is_some_and(|pattern| meets(pattern, &Word::literal(name), true) == Match::Yes)
    }

    /// True if each of its words stands among these: `alias g=git; g push`.
    pub fn is_scattered_over<I: Iterator<Item = String>>(&self, words: impl Fn() -> I) -> bool {
        // One word is found where it stands.
        self.words.len() > 1
            && self.words.iter().enumerate().all(|(at, pattern)| {
                words().any(|word| meets(pattern, &Word::literal(word), at == 0) == Match::Yes)
            })
    }

    fn finds_in_order(&self, words: &[Word]) -> Match {
        let mut result = Match::Yes;
        for (index, pattern) in self.words.iter().enumerate() {
            let Some(word) = words.get(index) else {
                return Match::No;
            };
            match meets(pattern, word, index == 0) {
                Match::No => return Match::No,
                Match::Maybe => {
                    // Such a word may become none or many: what follows says nothing.
                    return Match::Maybe;
                }
                Match::Yes => {}
            }
        }
        if !self.open && words.len() > self.words.len() {
            let rest = words.get(self.words.len()..).unwrap_or_default();
            // A word that may expand to nothing may leave exactly the pattern.
            result = if rest.iter().all(|word| word.sketch().contains(UNKNOWN)) {
                Match::Maybe
            } else {
                Match::No
            };
        }
        result
    }

    /// The same flags in any order, place and bundling: `rm -rf *` finds `rm x -f -r`.
    fn finds_out_of_order(&self, words: &[Word]) -> Match {
        let Some((pattern_name, pattern_rest)) = self.words.split_first() else {
            return Match::No;
        };
        let Some((name, rest)) = words.split_first() else {
            return Match::No;
        };
        if meets(pattern_name, name, true) != Match::Yes {
            return Match::No;
        }
        let (wanted_flags, wanted) = split_flags(pattern_rest.iter().map(String::as_str));
        let (flags, operands) = split_flags(rest.iter().map(Word::sketch));
        let flags_fit = if self.open {
            wanted_flags.is_subset(&flags)
        } else {
            wanted_flags == flags && wanted.len() == operands.len()
        };
        let operands_fit = wanted.len() <= operands.len()
            && wanted
                .iter()
                .zip(&operands)
                .all(|(pattern, operand)| wildcard(pattern, operand));
        if flags_fit && operands_fit {
            return Match::Yes;
        }
        // What is not known may be the flag or the word that is missing; a word in front of it that is known
        // to be another one stays what it is.
        let unknown = rest.iter().position(may_be_any_word);
        let Some(unknown) = unknown else {
            return Match::No;
        };
        let (_, certain) = split_flags(rest.iter().take(unknown).map(Word::sketch));
        let fits_so_far = wanted
            .iter()
            .zip(&certain)
            .all(|(pattern, operand)| wildcard(pattern, operand));
        if fits_so_far && (self.open || certain.len() <= wanted.len()) {
            Match::Maybe
        } else {
            Match::No
        }
    }
}

/// Whether a word that only the running shell knows may become any word, a flag too.
fn may_be_any_word(word: &Word) -> bool {
    match &word.value {
        Value::Literal { .. } => false,
        Value::Glob { pattern } => pattern.starts_with(['*', '?', '[']),
        Value::Dynamic { sketch, .. } => sketch.starts_with([UNKNOWN, '-']),
    }
}

fn meets(pattern: &str, word: &Word, is_name: bool) -> Match {
    let sketch = word.sketch();
    let text = if is_name { base_name(sketch) } else { sketch };
    let pattern_name = if is_name && !pattern.contains('*') {
        base_name(pattern)
    } else {
        pattern
    };
    match &word.value {
        Value::Literal { .. } => {
            if wildcard(pattern_name, text) || wildcard(pattern, sketch) {
                Match::Yes
            } else {
                Match::No
            }
        }
        Value::Dynamic { .. } if !sketch.contains(UNKNOWN) => {
            if wildcard(pattern_name, text) {
                Match::Yes
            } else {
                Match::Maybe
            }
        }
        Value::Glob { .. } | Value::Dynamic { .. } => {
            let known: String = text
                .chars()
                .take_while(|character| !matches!(character, &UNKNOWN | '*' | '?' | '['))
                .collect();
            let fixed: String = pattern_name.chars().take_while(|c| *c != '*').collect();
            if known.starts_with(&fixed) || fixed.starts_with(&known) {
                Match::Maybe
            } else {
                Match::No
            }
        }
    }
}

pub(super) fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// Flags with letters taken apart, and the operands in order.
fn split_flags<'a>(words: impl Iterator<Item = &'a str>) -> (BTreeSet<String>, Vec<&'a str>) {
    let mut flags = BTreeSet::new();
    let mut operands = Vec::new();
    let mut options_end = false;
    for word in words {
        if word == "--" {
            options_end = true;
        } else if options_end || !word.starts_with('-') || word.len() < 2 {
            operands.push(word);
        } else if let Some(long) = word.strip_prefix("--") {
            let long = long.split('=').next().unwrap_or(long);
            match LONG_FORMS.iter().find(|(name, _)| *name == long) {
                Some((_, short)) => flags.insert((*short).to_owned()),
                None => flags.insert(long.to_owned()),
            };
        } else if word.chars().skip(1).all(|c| c.is_ascii_alphabetic()) && word.len() <= 6 {
            flags.extend(word.chars().skip(1).map(String::from));
        } else {
            flags.insert(word.trim_start_matches('-').to_owned());
        }
    }
    (flags, operands)
}

/// Long flags that mean the same as a short one in the programs people write rules about.
const LONG_FORMS: &[(&str, &str)] = &[("recursive", "r"), ("force", "f"), ("delete", "d")];

/// Options in front of a sub-command that take the next word.
const GLOBAL_OPTIONS: &[(&str, &[&str])] = &[
    (
        "git",
        &[
            "-C",
            "-c",
            "--git-dir",
            "--work-tree",
            "--namespace",
            "--exec-path",
            "--config-env",
        ],
    ),
    (
        "cargo",
        &["--manifest-path", "--config", "-Z", "-C", "--color"],
    ),
    ("npm", &["--prefix", "-C", "--loglevel"]),
    ("pnpm", &["-C", "--dir", "--filter"]),
    ("yarn", &["--cwd"]),
    ("docker", &["--context", "-H", "--host", "--config", "-l"]),
    (
        "kubectl",
        &[
            "-n",
            "--namespace",
            "--context",
            "--kubeconfig",
            "--cluster",
            "-s",
            "--user",
        ],
    ),
    ("terraform", &["-chdir"]),
    ("make", &["-C", "-f", "--directory", "--file"]),
    ("go", &["-C"]),
    ("gh", &["-R", "--repo"]),
    (
        "aws",
        &["--profile", "--region", "--output", "--endpoint-url"],
    ),
    ("helm", &["-n", "--namespace", "--kube-context"]),
    ("systemctl", &["-H", "--host", "-M"]),
];

/// `git -C dir --no-pager push` as `git push`; `cargo +nightly test` as `cargo test`.
pub(super) fn without_global_options(words: &[Word]) -> Vec<Word> {
    let Some((name, rest)) = words.split_first() else {
        return Vec::new();
    };
    let program = base_name(name.sketch());
    let with_value = GLOBAL_OPTIONS
        .iter()
        .find(|(listed, _)| *listed == program)
        .map_or(&[][..], |(_, options)| *options);
    if with_value.is_empty() {
        return words.to_vec();
    }
    let mut at = 0;
    while let Some(text) = rest.get(at).map(Word::sketch) {
        if with_value.contains(&text) {
            at += 2;
        } else if text.starts_with('-') || (program == "cargo" && text.starts_with('+')) {
            at += 1;
        } else {
            break;
        }
    }
    let mut stripped = vec![name.clone()];
    stripped.extend(rest.get(at..).unwrap_or_default().iter().cloned());
    stripped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &str) -> Vec<Word> {
        command.split(' ').map(Word::literal).collect()
    }

    fn check(pattern: &str, command: &str, covers: bool, finds: Match) {
        let pattern = WordPattern::parse(pattern).unwrap();
        assert_eq!(
            pattern.covers(&words(command)),
            covers,
            "{pattern:?} covers {command}"
        );
        assert_eq!(
            pattern.finds(&words(command)),
            finds,
            "{pattern:?} finds {command}"
        );
    }

    #[test]
    fn an_allow_is_literal_and_a_deny_is_not() {
        use Match::{No, Yes};
        check("cargo test *", "cargo test", true, Yes);
        check("cargo test *", "cargo test -p x", true, Yes);
        check("cargo test *", "cargo testx", false, No);
        check("cargo test", "cargo test -p x", false, No);
        check("npm run lint", "npm run lint", true, Yes);
        check("npm run lint:*", "npm run lint:fix", true, Yes);
        check("git * status", "git x status", true, Yes);
        check("terraform apply *", "/usr/bin/terraform apply", false, Yes);
        check("terraform apply *", "terraform -chdir=x apply", false, Yes);
        check("git push *", "git -C . push origin", false, Yes);
        check("git push --force *", "git push origin main -f", false, Yes);
        check("rm -rf *", "rm -fr x", false, Yes);
        check("rm -rf *", "rm -r -f x", false, Yes);
        check("rm -rf *", "rm --recursive --force x", false, Yes);
        check("rm -rf *", "rm -f x", false, No);
        check("terraform apply *", "echo terraform apply", false, No);
        check("cargo test *", "cargo +nightly test", false, Yes);
        check("*", "anything at all", true, Yes);
    }

    #[test]
    fn a_pattern_names_one_command() {
        assert!(WordPattern::parse("a && b").is_err());
        assert!(WordPattern::parse("a $(b)").is_err());
    }
}
