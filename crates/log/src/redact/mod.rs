//! Masking: secrets become stable placeholders before anything is written, shown or sent.
//!
//! `[redacted:github-token:3f2a91c07d5e]` always stands for the same secret on this installation, so
//! that a model can tell two of them apart and a change that quotes one gets the original. The
//! originals are kept in memory only; what another process masked is found again in the files and
//! images it came from, see [`Redactor::resolve`].

mod event;
mod late;
mod reader;
mod resolve;
mod shapes;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use agent_protocol::payload::tool::RedactionTarget;
use aho_corasick::automaton::Automaton as _;
use aho_corasick::dfa::DFA;
use aho_corasick::{AhoCorasick, AhoCorasickKind, Anchored};
use regex::Regex;
use sha2::{Digest, Sha256};

use shapes::{SHAPES, is_secret_variable};

pub use late::LateSecrets;
pub use reader::MaskedReader;
pub use resolve::{Unresolved, placeholders};

/// Prefix of every placeholder.
const MARK: &str = "[redacted:";

/// Digits of a tag: enough that two secrets of a session hardly ever share them, so that every
/// process gives a secret the same placeholder.
const TAG_DIGITS: usize = 12;

/// More secrets than this are masked but cannot be put back.
const MOST_REMEMBERED: usize = 10_000;

/// Patterns and values to mask besides the known shapes.
#[derive(Debug, Clone, Default)]
pub struct RedactionRules {
    /// Names and values of secret variables; see [`RedactionRules::with_environment`].
    pub values: Vec<(String, String)>,
    /// Configured patterns with their names. Group 1 is the secret where there is one.
    pub patterns: Vec<(String, String)>,
    /// Texts that are never masked although they look like a secret.
    pub exceptions: Vec<String>,
    /// Secrets that are found out later.
    pub late: LateSecrets,
}

impl RedactionRules {
    /// Adds the values of those variables whose name says that they are secret.
    #[must_use]
    pub fn with_environment<N, V>(mut self, variables: impl IntoIterator<Item = (N, V)>) -> Self
    where
        N: Into<String>,
        V: Into<String>,
    {
        for (name, value) in variables {
            let (name, value) = (name.into(), value.into());
            if is_secret_variable(&name, &value) {
                self.values.push((name, value));
            }
        }
        self
    }
}

/// A configured pattern that is not one.
#[derive(Debug, thiserror::Error)]
#[error("the redaction pattern `{name}` is not a regular expression")]
pub struct PatternError {
    pub name: String,
    #[source]
    pub source: Box<regex::Error>,
}

/// That something was masked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redacted {
    pub rule: String,
    pub count: u64,
    pub target: RedactionTarget,
    pub placeholders: Vec<String>,
}

/// A secret in a text and what stands for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Masked {
    /// Its range, in bytes.
    pub range: Range<usize>,
    pub placeholder: String,
}

/// Masks texts. One per session.
pub struct Redactor {
    search: Search,
    patterns: Vec<Pattern>,
    values: Vec<(String, String)>,
    /// A stretch of each value that JSON text holds unchanged.
    stretches: Vec<String>,
    exceptions: Vec<String>,
    late: LateSecrets,
    key: Vec<u8>,
    seen: Mutex<Seen>,
}

/// Quick searches that tell if a text needs a closer look.
enum Search {
    /// Nothing is masked.
    Off,
    /// Every text is: configured patterns have no hint, and a value without a stretch that JSON
    /// writes as it is cannot be searched for in a line.
    Everything,
    /// One of these texts has to occur.
    Hints(Box<Hints>),
}

/// Many texts searched for at once. Short sessions are searched with what is quick to build, long
/// ones with what is quick to search: one step per byte, whatever the number of texts.
struct Hints {
    texts: Vec<String>,
    first: AhoCorasick,
    searched: AtomicUsize,
    fast: OnceLock<Option<DFA>>,
}

impl Hints {
    /// So many bytes pay for building the other one.
    const WORTH_BUILDING: usize = 256 * 1024;

    fn new(texts: Vec<String>) -> Option<Self> {
        let first = AhoCorasick::builder()
            .kind(Some(AhoCorasickKind::NoncontiguousNFA))
            .build(&texts)
            .ok()?;
        Some(Self {
            texts,
            first,
            searched: AtomicUsize::new(0),
            fast: OnceLock::new(),
        })
    }

    fn occur_in(&self, text: &[u8]) -> bool {
        let searched = self.searched.fetch_add(text.len(), Ordering::Relaxed);
        if searched < Self::WORTH_BUILDING {
            return self.first.is_match(text);
        }
        let fast = self
            .fast
            .get_or_init(|| DFA::builder().build(&self.texts).ok());
        let found = fast.as_ref().and_then(|fast| find_any(fast, text));
        found.unwrap_or_else(|| self.first.is_match(text))
    }
}

/// True if one of the texts that `search` knows occurs in `text`; nothing when it cannot tell.
///
/// Each step of a walk needs the one before it, and the processor waits in between. Four walks over
/// four parts wait together. The parts overlap by as much as a text can lie across their borders.
fn find_any(search: &DFA, text: &[u8]) -> Option<bool> {
    let start = search.start_state(Anchored::No).ok()?;
    let step = |state: &mut _, byte: &u8| {
        *state = search.next_state(Anchored::No, *state, *byte);
        search.is_match(*state)
    };
    let overlap = search.max_pattern_len().saturating_sub(1);
    let part = text.len().div_ceil(4);
    // Short texts cannot be parted in four.
    if part <= 4 * overlap.max(1) {
        let mut state = start;
        return Some(text.iter().any(|byte| step(&mut state, byte)));
    }
    let of = |number: usize| &text[number * part..text.len().min((number + 1) * part + overlap)];
    let (parts, mut states) = ([of(0), of(1), of(2), of(3)], [start; 4]);
    let [a, b, c, d] = &mut states;
    // The last part is the shortest.
    let together = parts[3].len();
    let rows = parts[0][..together].iter().zip(&parts[1][..together]);
    let rows = rows.zip(parts[2][..together].iter().zip(parts[3]));
    for ((first, second), (third, fourth)) in rows {
        // All four are taken, whatever the first says: none has to wait for an answer.
        if step(a, first) | step(b, second) | step(c, third) | step(d, fourth) {
            return Some(true);
        }
    }
    let mut rest = parts.iter().zip(&mut states);
    Some(rest.any(|(part, state)| part[together..].iter().any(|byte| step(state, byte))))
}

impl Search {
    fn suspects(&self, text: &[u8]) -> bool {
        match self {
            Self::Off => false,
            Self::Everything => true,
            Self::Hints(hints) => hints.occur_in(text),
        }
    }
}

struct Pattern {
    name: String,
    /// One of these has to occur; a configured pattern has none and is always tried.
    hints: &'static [&'static str],
    source: Cow<'static, str>,
    /// Compiled when its hint first occurs: most sessions never need most of them.
    regex: OnceLock<Option<Regex>>,
    check: fn(&str) -> bool,
}

impl Pattern {
    fn regex_for(&self, text: &str) -> Option<&Regex> {
        let hinted = |hint: &&str| memchr::memmem::find(text.as_bytes(), hint.as_bytes()).is_some();
        if !self.hints.is_empty() && !self.hints.iter().any(hinted) {
            return None;
        }
        // The built-in ones are known to compile, and the configured ones were tried at once.
        self.regex
            .get_or_init(|| compile(&self.source).ok())
            .as_ref()
    }
}

/// Words in the ASCII sense are enough to end a token, and much cheaper to find.
fn compile(pattern: &str) -> Result<Regex, regex::Error> {
    Regex::new(&pattern.replace(r"\b", r"(?-u:\b)"))
}

#[derive(Default)]
struct Seen {
    secrets: HashMap<String, String>,
    placeholders: HashMap<String, String>,
    /// Secrets by their whole tag, of which a placeholder has the beginning.
    tags: BTreeMap<String, String>,
}

impl Redactor {
    /// `key` makes placeholders impossible to guess back: a secret of this installation, together
    /// with the session id so that two sessions cannot be compared.
    ///
    /// # Errors
    /// When a configured pattern is not a regular expression.
    pub fn new(rules: RedactionRules, key: &[u8]) -> Result<Self, PatternError> {
        let mut patterns = Vec::with_capacity(SHAPES.len() + rules.patterns.len());
        let has_configured = !rules.patterns.is_empty();
        for (name, source) in rules.patterns {
            let regex = Regex::new(&source).map_err(|source| PatternError {
                name: name.clone(),
                source: Box::new(source),
            })?;
            patterns.push(Pattern {
                name: rule_word(&name),
                hints: &[],
                source: source.into(),
                regex: OnceLock::from(Some(regex)),
                check: |text| !text.is_empty() && !text.contains(MARK),
            });
        }
        patterns.extend(SHAPES.iter().map(|shape| Pattern {
            name: shape.name.to_owned(),
            hints: shape.hints,
            source: shape.pattern.into(),
            regex: OnceLock::new(),
            check: shape.check,
        }));
        let mut values = rules.values;
        // The longest first, so that a value that contains another is masked whole.
        values.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
        values.dedup_by(|a, b| a.1 == b.1);
        let stretches: Vec<String> = values
            .iter()
            .filter_map(|(_, value)| plain_stretch(value).map(str::to_owned))
            .collect();
        let has_unsearchable = stretches.len() < values.len();
        let hints = SHAPES
            .iter()
            .flat_map(|shape| shape.hints.iter().map(|hint| (*hint).to_owned()))
            .chain(stretches.iter().cloned());
        let search = match Hints::new(hints.collect()) {
            Some(hints) if !has_configured && !has_unsearchable => Search::Hints(Box::new(hints)),
            _ => Search::Everything,
        };
        Ok(Self {
            search,
            patterns,
            values,
            stretches,
            exceptions: rules.exceptions,
            late: rules.late,
            key: key.to_vec(),
            seen: Mutex::default(),
        })
    }

    /// Masks nothing.
    #[must_use]
    pub fn off() -> Self {
        Self {
            search: Search::Off,
            patterns: Vec::new(),
            values: Vec::new(),
            stretches: Vec::new(),
            exceptions: Vec::new(),
            late: LateSecrets::default(),
            key: Vec::new(),
            seen: Mutex::default(),
        }
    }

    /// Masks a text; borrowed when there was nothing to mask.
    #[must_use]
    pub fn mask<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.mask_counting(text, &mut BTreeMap::new())
    }

    /// True if a text holds placeholders this process has made, so that parts of it are masked.
    pub(crate) fn is_masked(&self, text: &[u8]) -> bool {
        std::str::from_utf8(text).is_ok_and(|text| !self.made_in(text).is_empty())
    }

    /// The placeholders in a text that this process has made, by rule: what was masked on the way
    /// here.
    fn made_in(&self, text: &str) -> Counts {
        let mut counts = Counts::new();
        if !text.contains(MARK) {
            return counts;
        }
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for (at, _) in text.match_indices(MARK) {
            let placeholder = text[at..].find(']').map(|end| &text[at..=at + end]);
            let Some(placeholder) = placeholder.filter(|found| seen.secrets.contains_key(*found))
            else {
                continue;
            };
            let rule = placeholder[MARK.len()..].rsplit_once(':');
            let (rule, _) = rule.unwrap_or_default();
            note(&mut counts, rule, placeholder);
        }
        counts
    }

    /// Every secret in `text`, in order and without overlap.
    #[must_use]
    pub fn secrets(&self, text: &str) -> Vec<Masked> {
        let found = self.secrets_by_rule(text).into_iter();
        found.map(|(masked, _)| masked).collect()
    }

    /// Every secret in bytes that are mostly text. What is no text ends a secret.
    #[must_use]
    pub fn secrets_in(&self, bytes: &[u8]) -> Vec<Masked> {
        self.secrets(&text_in_place(bytes))
    }

    fn mask_counting<'a>(&self, text: &'a str, counts: &mut Counts) -> Cow<'a, str> {
        let found = self.secrets_by_rule(text);
        if found.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut masked = String::with_capacity(text.len());
        let mut done = 0;
        for (secret, rule) in found {
            masked.push_str(&text[done..secret.range.start]);
            masked.push_str(&secret.placeholder);
            done = secret.range.end;
            note(counts, &rule, &secret.placeholder);
        }
        masked.push_str(&text[done..]);
        Cow::Owned(masked)
    }

    fn secrets_by_rule(&self, text: &str) -> Vec<(Masked, Cow<'_, str>)> {
        if !self.search.suspects(text.as_bytes()) && !self.late.suspects(text.as_bytes()) {
            return Vec::new();
        }
        let mut spans = self.find(text);
        // The first rule wins where two overlap, unless the later one started earlier.
        spans.sort_by_key(|span| (span.start, span.priority));
        let mut found = Vec::with_capacity(spans.len());
        let mut done = 0;
        for span in spans {
            if span.start < done || span.start == span.end {
                continue;
            }
            let secret = without_line_numbers(&text[span.start..span.end]);
            let placeholder = self.placeholder(&span.rule, &secret);
            done = span.end;
            let range = span.start..span.end;
            found.push((Masked { range, placeholder }, span.rule));
        }
        found
    }

    fn find(&self, text: &str) -> Vec<Span<'_>> {
        let mut spans = Vec::new();
        for (name, value) in &self.values {
            for (start, found) in text.match_indices(value.as_str()) {
                spans.push(Span {
                    start,
                    end: start + found.len(),
                    rule: name.into(),
                    priority: 0,
                });
            }
        }
        self.late.find(text, |start, end, name| {
            spans.push(Span {
                start,
                end,
                rule: name.to_owned().into(),
                priority: 0,
            });
        });
        for (index, pattern) in self.patterns.iter().enumerate() {
            let Some(regex) = pattern.regex_for(text) else {
                continue;
            };
            for captures in regex.captures_iter(text) {
                let Some(found) = captures.get(1).or_else(|| captures.get(0)) else {
                    continue;
                };
                let secret = found.as_str();
                if (pattern.check)(secret) && !self.exceptions.iter().any(|kept| kept == secret) {
                    spans.push(Span {
                        start: found.start(),
                        end: found.end(),
                        rule: pattern.name.as_str().into(),
                        priority: index + 1,
                    });
                }
            }
        }
        spans
    }

    fn placeholder(&self, rule: &str, secret: &str) -> String {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(placeholder) = seen.placeholders.get(secret) {
            return placeholder.clone();
        }
        let mut hasher = Sha256::new();
        hasher.update((self.key.len() as u64).to_be_bytes());
        hasher.update(&self.key);
        hasher.update(secret.as_bytes());
        let tag = agent_text::hex(&hasher.finalize());
        // Two secrets with the same short tag get longer ones.
        let named = |digits: usize| format!("[redacted:{rule}:{}]", &tag[..digits]);
        let placeholder = [TAG_DIGITS, 64]
            .into_iter()
            .map(named)
            .find(|candidate| !seen.secrets.contains_key(candidate))
            .unwrap_or_else(|| named(64));
        if seen.secrets.len() < MOST_REMEMBERED {
            seen.secrets.insert(placeholder.clone(), secret.to_owned());
            seen.placeholders
                .insert(secret.to_owned(), placeholder.clone());
            seen.tags.insert(tag, secret.to_owned());
        }
        placeholder
    }
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never its values.
        f.debug_struct("Redactor").finish_non_exhaustive()
    }
}

/// Counts of masked pieces by rule, and their placeholders.
type Counts = BTreeMap<String, (u64, Vec<String>)>;

fn note(counts: &mut Counts, rule: &str, placeholder: &str) {
    let (count, placeholders) = counts.entry(rule.to_owned()).or_default();
    *count += 1;
    if placeholders.len() < 32 && !placeholders.iter().any(|known| known == placeholder) {
        placeholders.push(placeholder.to_owned());
    }
}

struct Span<'a> {
    start: usize,
    end: usize,
    rule: Cow<'a, str>,
    priority: usize,
}

/// Bytes as text of the same length: what is no UTF-8 becomes a control character each.
fn text_in_place(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| '\u{1}'));
    }
    Cow::Owned(text)
}

/// A key of many lines as its file has it, when it was met in numbered lines.
fn without_line_numbers(secret: &str) -> Cow<'_, str> {
    let number_of = |line: &str| {
        let digits = line.trim_start_matches(' ');
        let after = digits.trim_start_matches(|c: char| c.is_ascii_digit());
        let count = digits.len() - after.len();
        let text = after.trim_start_matches(['\t', ' ', '|']);
        ((1..=6).contains(&count) && text.len() < after.len()).then(|| line.len() - text.len())
    };
    let mut lines = secret.split_inclusive('\n');
    let Some(first) = lines.next() else {
        return Cow::Borrowed(secret);
    };
    if !first.starts_with("-----BEGIN ") || lines.clone().next().is_none() {
        return Cow::Borrowed(secret);
    }
    let mut plain = first.to_owned();
    for line in lines {
        match number_of(line) {
            Some(number) => plain.push_str(&line[number..]),
            None => return Cow::Borrowed(secret),
        }
    }
    Cow::Owned(plain)
}

/// A rule's name as it may stand in a placeholder.
fn rule_word(name: &str) -> String {
    let word: String = name
        .chars()
        .take(40)
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '_' {
                c
            } else {
                '-'
            }
        })
        .collect();
    if word.is_empty() {
        "pattern".into()
    } else {
        word
    }
}

/// A stretch of a value that JSON text holds unchanged: the beginning of the longest one, because
/// more than that tells nothing more.
fn plain_stretch(value: &str) -> Option<&str> {
    value
        .split(|c: char| !c.is_ascii_graphic() && c != ' ' || c == '"' || c == '\\')
        .max_by_key(|part| part.len())
        .filter(|part| part.len() >= 4)
        .map(|part| &part[..part.len().min(32)])
}

#[cfg(test)]
mod tests;
