//! What the gate reads in a script, beside what bash ran.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use agent_policy::gate::{DiskFacts, Facts};
use agent_policy::shell::word::{UNKNOWN, Value, Word};
use agent_policy::shell::{
    Command, Directories, Place, RedirectKind, Start, analyse, prescan, small,
};

use super::{Given, RunOutput};

/// A script of the small language as the gate reads it.
pub(crate) struct Reading<'a> {
    pub(crate) given: &'a Given,
    /// False for one that detection reads: it would rather see too much.
    pub(crate) is_small: bool,
    pub(crate) commands: Vec<Command>,
}

/// What both sides read.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Agreement {
    /// Words whose value both know.
    pub(crate) words: usize,
    /// Patterns among them.
    pub(crate) patterns: usize,
    pub(crate) commands: usize,
}

/// What one word may become.
enum Becomes {
    Exactly(Vec<u8>),
    /// The names that fit a pattern, or its text where there are none.
    Names(Rc<Names>, Vec<u8>),
    /// One word with these pieces in it, and anything between them.
    One(Vec<Vec<u8>>),
    /// Any number of any words.
    Anything,
}

/// What a pattern stands for.
#[derive(Default)]
struct Names {
    /// There are more of them than the gate looks at, so it proves nothing.
    too_many: bool,
    /// Those that the gate looks at.
    all: BTreeSet<PathBuf>,
    /// Those of them that bash lists in every version and locale: one before 5.2 lists `.` and `..` too, and what
    /// `?` stands for in a name beyond ASCII is a matter of locale.
    certain: BTreeSet<PathBuf>,
}

/// Patterns that were looked up already, in trees that do not change.
#[derive(Default)]
pub(crate) struct Expansions(RefCell<HashMap<(PathBuf, String), Rc<Names>>>);

impl Expansions {
    /// Only what is below `directory` stays as it was.
    pub(crate) fn forget_all_but(&self, directory: &Path) {
        self.0
            .borrow_mut()
            .retain(|(place, _), _| place.starts_with(directory));
    }

    fn of(&self, directory: &Path, pattern: &str) -> Rc<Names> {
        let key = (directory.to_owned(), pattern.to_owned());
        if let Some(known) = self.0.borrow().get(&key) {
            return Rc::clone(known);
        }
        let facts = DiskFacts { dirty: || None };
        let expanded = facts.expand(directory, pattern);
        let too_many = expanded.is_none();
        let found = expanded.unwrap_or_default();
        let all: BTreeSet<PathBuf> = found
            .iter()
            .filter(|path| !pattern.ends_with('/') || path.is_dir())
            .map(|path| plain(path))
            .collect();
        let is_certain = |path: &&PathBuf| {
            let bytes = path.as_os_str().as_bytes();
            let below = bytes
                .strip_prefix(directory.as_os_str().as_bytes())
                .unwrap_or(bytes);
            let steps = below
                .split(|byte| *byte == b'/')
                .filter(|step| !step.is_empty());
            let signs = pattern.split('/').filter(|sign| !sign.is_empty());
            let by_dots = |(step, sign): (&[u8], &str)| {
                matches!(step, b"." | b"..") && sign.contains(['*', '?'])
            };
            below.is_ascii() && !pattern.contains('[') && !steps.zip(signs).any(by_dots)
        };
        let certain = found.iter().filter(is_certain).map(|path| plain(path));
        let names = Rc::new(Names {
            too_many,
            certain: certain.filter(|path| all.contains(path)).collect(),
            all,
        });
        self.0.borrow_mut().insert(key, Rc::clone(&names));
        names
    }
}

impl<'a> Reading<'a> {
    /// `None` for what is not in the small language. The parser behind the other reading is not asked: what it
    /// refuses is one script less that is proven, and more to compare.
    pub(crate) fn of(given: &'a Given) -> Option<Self> {
        prescan(&given.script).ok()?;
        let commands = start(given, |start| small(&given.script, start)).ok()?;
        Some(Self {
            given,
            is_small: true,
            commands,
        })
    }

    /// The same of one command with patterns in brackets, as detection reads it.
    pub(crate) fn of_patterns(given: &'a Given) -> Option<Self> {
        if !given.script.contains('[') || given.script.contains([';', '&', '\n']) {
            return None;
        }
        let analysis = start(given, |start| analyse(&given.script, start));
        analysis.parse_error.is_none().then_some(Self {
            given,
            is_small: false,
            commands: analysis.commands,
        })
    }

    /// The error says what differs.
    pub(crate) fn compare(
        &self,
        ran: &[RunOutput],
        expansions: &Expansions,
    ) -> Result<Agreement, String> {
        let read: Vec<&Command> = self
            .commands
            .iter()
            .filter(|command| {
                let name = command.words.first().map(Word::sketch);
                !matches!(name, None | Some(":" | "cat" | "cd"))
            })
            .collect();
        let mut all = Agreement::default();
        let mut seen = vec![false; read.len()];
        for command in ran {
            let mut fitting = None;
            for (known, seen) in read.iter().zip(&mut seen) {
                let agreed = fit(known, command, expansions);
                *seen |= agreed.is_some();
                fitting = fitting.or(agreed);
            }
            let Some(agreement) = fitting else {
                return Err(format!(
                    "bash ran {}\nread were {}",
                    shown(command),
                    self.shown()
                ));
            };
            all.words += agreement.words;
            all.patterns += agreement.patterns;
            all.commands += 1;
        }
        if self.runs_all() {
            let opens = |known: &Command| redirects_open(known, &self.given.directory);
            let all_open = self.commands.iter().all(opens);
            let missing = read
                .iter()
                .zip(&seen)
                .find(|(known, seen)| !**seen && says_its_words(known));
            if let Some((missing, _)) = missing.filter(|_| all_open) {
                let ran: Vec<String> = ran.iter().map(shown).collect();
                return Err(format!(
                    "bash did not run {missing:?}\nit ran {}",
                    ran.join("; ")
                ));
            }
            if ran.len() > read.len() {
                return Err(format!(
                    "bash ran {} commands, read were {}",
                    ran.len(),
                    self.shown()
                ));
            }
        }
        Ok(all)
    }

    /// True if no status, empty loop or missing directory leaves a command out.
    fn runs_all(&self) -> bool {
        let chooses = |sign: &&str| self.given.script.contains(*sign);
        let signs = ["&&", "||", "if", "while", "for", "cd"];
        self.is_small && !signs.iter().any(chooses)
    }

    fn shown(&self) -> String {
        let shown: Vec<String> = self
            .commands
            .iter()
            .map(|command| {
                let values: Vec<&Value> = command.words.iter().map(|word| &word.value).collect();
                format!(
                    "{values:?} in {:?} with {:?}",
                    command.directories, command.redirects
                )
            })
            .collect();
        shown.join("; ")
    }
}

fn start<T>(given: &Given, read: impl FnOnce(&Start<'_>) -> T) -> T {
    read(&Start {
        directory: given.directory.clone(),
        home: "/home/u".into(),
        is_directory: &|_| None,
    })
}

fn shown(ran: &RunOutput) -> String {
    let words: Vec<_> = ran
        .words
        .iter()
        .map(|word| String::from_utf8_lossy(word))
        .collect();
    let input = ran.input.as_deref().map(String::from_utf8_lossy);
    format!("{words:?} in {} with {input:?}", ran.directory.display())
}

/// What both read, if what bash ran is this command.
fn fit(known: &Command, ran: &RunOutput, expansions: &Expansions) -> Option<Agreement> {
    if known.wraps && !known.transparent {
        // What it starts is said not to be known.
        return Some(Agreement::default());
    }
    let is_there = match &known.directories {
        Directories::Known(directories) => directories.contains(&ran.directory),
        Directories::Unknown => true,
    };
    if !(is_there && input_fits(known, ran)) {
        return None;
    }
    let becomes: Vec<Becomes> = known
        .words
        .iter()
        .map(|word| becomes(word, &ran.directory, expansions))
        .collect();
    words_fit(&becomes, &ran.words, &ran.directory)
}

fn becomes(word: &Word, directory: &Path, expansions: &Expansions) -> Becomes {
    match &word.value {
        Value::Literal { text, .. } => Becomes::Exactly(text.clone().into_bytes()),
        // The root is not the same for both.
        Value::Glob { pattern } if pattern.starts_with('/') => Becomes::Anything,
        Value::Glob { pattern } => {
            let names = expansions.of(directory, pattern);
            if names.too_many {
                return Becomes::Anything;
            }
            Becomes::Names(names, unescape(pattern).into_bytes())
        }
        Value::Dynamic { sketch, .. } => {
            let source = word.source.as_str();
            let is_one = source.len() >= 2
                && source.starts_with('"')
                && source.ends_with('"')
                && source.matches('"').count() == 2;
            if is_one {
                Becomes::One(
                    sketch
                        .split(UNKNOWN)
                        .map(|piece| piece.as_bytes().to_vec())
                        .collect(),
                )
            } else {
                Becomes::Anything
            }
        }
    }
}

/// Without `.`, empty steps and a slash at the end.
fn plain(path: &Path) -> PathBuf {
    path.components().collect()
}

fn unescape(pattern: &str) -> String {
    let mut literal = String::new();
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => literal.extend(characters.next()),
            other => literal.push(other),
        }
    }
    literal
}

fn words_fit(becomes: &[Becomes], ran: &[Vec<u8>], directory: &Path) -> Option<Agreement> {
    let Some((first, rest)) = becomes.split_first() else {
        return ran.is_empty().then(Agreement::default);
    };
    let behind = |taken: usize, known: usize, patterns: usize| {
        let agreed = words_fit(rest, &ran[taken..], directory)?;
        Some(Agreement {
            words: agreed.words + known,
            patterns: agreed.patterns + patterns,
            commands: 0,
        })
    };
    match first {
        Becomes::Exactly(text) => (ran.first()? == text).then(|| behind(1, 1, 0))?,
        Becomes::One(pieces) => has_pieces(ran.first()?, pieces).then(|| behind(1, 0, 0))?,
        Becomes::Anything => (0..=ran.len()).find_map(|taken| behind(taken, 0, 0)),
        Becomes::Names(names, literal) => {
            let paths: Vec<PathBuf> = ran
                .iter()
                .map(|word| plain(&directory.join(OsStr::from_bytes(word))))
                .collect();
            let mut taken: BTreeSet<&Path> = BTreeSet::new();
            let most = paths
                .iter()
                .take_while(|path| names.all.contains(*path) && taken.insert(path))
                .count();
            let least = names.certain.len();
            let listed = (least.max(1)..=most)
                .rev()
                .filter(|count| {
                    names
                        .certain
                        .iter()
                        .all(|name| paths[..*count].contains(name))
                })
                .find_map(|count| behind(count, count, 1));
            let none = || (least == 0 && ran.first()? == literal).then(|| behind(1, 1, 1))?;
            listed.or_else(none)
        }
    }
}

fn has_pieces(word: &[u8], pieces: &[Vec<u8>]) -> bool {
    let [first, middle @ .., last] = pieces else {
        return pieces.first().is_none_or(|only| only == word);
    };
    let Some(mut rest) = word.strip_prefix(first.as_slice()) else {
        return false;
    };
    for piece in middle.iter().filter(|piece| !piece.is_empty()) {
        let Some(at) = rest
            .windows(piece.len())
            .position(|part| part == piece.as_slice())
        else {
            return false;
        };
        rest = &rest[at + piece.len()..];
    }
    rest.ends_with(last)
}

/// True if it is a command that says its words. What another command starts is that command's business.
fn says_its_words(known: &Command) -> bool {
    let name = known.words.first().and_then(Word::text);
    known.place == Place::Plain && matches!(name, Some("c1" | "c2" | "c3" | "cc"))
}

/// True if no redirection keeps a command from running, or the substitutions behind it.
fn redirects_open(known: &Command, directory: &Path) -> bool {
    known.redirects.iter().all(|redirect| {
        let path = redirect.target.text().map(|text| directory.join(text));
        match redirect.kind {
            RedirectKind::Read => path.is_some_and(|path| path.exists()),
            RedirectKind::Write => path.is_some_and(|path| {
                path.canonicalize()
                    .is_ok_and(|path| path == Path::new("/dev/null"))
            }),
            _ => true,
        }
    })
}

/// True if standard input is what the last redirection from something says.
fn input_fits(known: &Command, ran: &RunOutput) -> bool {
    let Some(input) = &ran.input else {
        return true;
    };
    let Some(last) = known.redirects.iter().rev().find(|redirect| {
        matches!(
            redirect.kind,
            RedirectKind::Read | RedirectKind::HereString | RedirectKind::HereDocument
        )
    }) else {
        return true;
    };
    let Value::Literal { text, .. } = &last.target.value else {
        return true;
    };
    match last.kind {
        RedirectKind::Read => {
            let content = std::fs::read(ran.directory.join(text));
            content.unwrap_or_default() == *input
        }
        RedirectKind::HereString => *input == [text.as_bytes(), b"\n"].concat(),
        _ => input == text.as_bytes(),
    }
}
