//! Names that one command prints and another gets as arguments: `find src | xargs wc`, `find src -exec wc {} +`.

use crate::shell::analysis::Command;
use crate::shell::word::Word;

/// The directories below which every name lies that a pipeline prints, when its first command lists names and the
/// others leave lines out. Relative to the directory they run in.
pub(super) fn listed_below(pipeline: &[&[Word]]) -> Option<Vec<String>> {
    let (lister, filters) = pipeline.split_first()?;
    if filters.iter().all(|words| leaves_lines_out(words)) {
        lister_directories(lister)
    } else {
        None
    }
}

fn texts(words: &[Word]) -> Option<Vec<&str>> {
    words.iter().map(Word::text).collect()
}

fn lister_directories(words: &[Word]) -> Option<Vec<String>> {
    let texts = texts(words)?;
    let (name, rest) = texts.split_first()?;
    match (*name, rest.split_first()) {
        ("find", _) => {
            const PRINTS_MORE: &[&str] = &["-printf", "-ls", "-exec", "-execdir", "-ok", "-okdir"];
            if rest
                .iter()
                .any(|word| PRINTS_MORE.contains(word) || word.starts_with("-fp"))
            {
                return None;
            }
            Some(find_starts(rest))
        }
        ("git", Some((&"ls-files", rest))) => listed(rest, &LS_FILES).map(|_| here()),
        ("git", Some((&"grep", rest))) => {
            let found = listed(rest, &GIT_GREP)?;
            // A revision in front of a name makes it another one; a lone pattern has none.
            (found.has('l') && found.operands.len() == 1).then(here)
        }
        ("grep" | "egrep" | "fgrep", _) => {
            let found = listed(rest, &GREP)?;
            let names_only = found.has('l') && (found.has('r') || found.has('R'));
            names_only.then(|| anywhere_named(&found.operands))
        }
        ("rg", _) => {
            let found = listed(rest, &RG)?;
            let names_only = found.has('l') || found.long.contains(&"--files");
            names_only.then(|| anywhere_named(&found.operands))
        }
        _ => None,
    }
}

fn here() -> Vec<String> {
    vec![".".to_owned()]
}

/// The flags with which a program prints names that it found, one a line and nothing else. With any other flag it
/// may print more, or other words in their place: `--format`, `--label`, `-h -e l`.
struct Lister {
    letters: &'static str,
    long: &'static [&'static str],
    /// Long flags with a value behind `=` that chooses among names.
    chooses: &'static [&'static str],
}

const LS_FILES: Lister = Lister {
    letters: "cdmoz",
    long: &[
        "--cached",
        "--deleted",
        "--modified",
        "--others",
        "--exclude-standard",
    ],
    chooses: &["--exclude"],
};
const GIT_GREP: Lister = Lister {
    letters: "liwEFPIz",
    long: &["--files-with-matches", "--name-only"],
    chooses: &[],
};
const GREP: Lister = Lister {
    letters: "lrRiwxEFPIsZv",
    long: &[],
    chooses: &["--include", "--exclude", "--exclude-dir"],
};
const RG: Lister = Lister {
    letters: "liwxFPSs0v",
    long: &["--files", "--hidden", "--no-ignore", "--files-with-matches"],
    chooses: &["--glob", "--type"],
};

/// The words of a lister: letters and long flags that were given, and the operands.
struct Listed<'a> {
    letters: String,
    long: Vec<&'a str>,
    operands: Vec<&'a str>,
}

impl Listed<'_> {
    fn has(&self, letter: char) -> bool {
        self.letters.contains(letter)
    }
}

/// The words of a lister, if each flag is one of its own and each operand lies below the directory it runs in.
fn listed<'a>(words: &[&'a str], lister: &Lister) -> Option<Listed<'a>> {
    let mut found = Listed {
        letters: String::new(),
        long: Vec::new(),
        operands: Vec::new(),
    };
    let mut options_end = false;
    for word in words {
        if options_end || !word.starts_with('-') {
            found.operands.push(*word);
        } else if *word == "--" {
            options_end = true;
        } else if let Some((flag, _)) = word.split_once('=') {
            if !lister.chooses.contains(&flag) {
                return None;
            }
        } else if word.starts_with("--") {
            if !lister.long.contains(word) {
                return None;
            }
            found.long.push(*word);
            found
                .letters
                .push_str(if word.starts_with("--files-w") || *word == "--name-only" {
                    "l"
                } else {
                    ""
                });
        } else {
            let letters = word.get(1..).filter(|letters| !letters.is_empty())?;
            if !letters.chars().all(|c| lister.letters.contains(c)) {
                return None;
            }
            found.letters.push_str(letters);
        }
    }
    let climbs =
        |word: &&str| word.starts_with(['/', ':']) || word.split('/').any(|part| part == "..");
    (!found.operands.iter().any(climbs)).then_some(found)
}

/// The directories that `find` starts at.
pub(super) fn find_starts(arguments: &[&str]) -> Vec<String> {
    let starts: Vec<String> = arguments
        .iter()
        .skip_while(|word| matches!(**word, "-H" | "-L" | "-P" | "-O1" | "-O2" | "-O3"))
        .take_while(|word| !word.starts_with(['-', '(', '!']))
        .map(|word| (*word).to_owned())
        .collect();
    if starts.is_empty() { here() } else { starts }
}

/// Every word that may be a directory, and the one at hand.
fn anywhere_named(words: &[&str]) -> Vec<String> {
    std::iter::once(".")
        .chain(words.iter().copied().filter(|word| !word.is_empty()))
        .map(str::to_owned)
        .collect()
}

/// Lines come out as they went in, or not at all.
fn leaves_lines_out(words: &[Word]) -> bool {
    let Some(texts) = texts(words) else {
        return false;
    };
    let Some((name, rest)) = texts.split_first() else {
        return false;
    };
    let only = |letters: &str| {
        rest.iter().all(|word| {
            !word.starts_with('-')
                || (!word.starts_with("--") && word.chars().skip(1).all(|c| letters.contains(c)))
        })
    };
    let mut operands = rest.iter().filter(|word| !word.starts_with('-'));
    match *name {
        // A count, behind `-n` alone; a file in its place would be read and not the pipe.
        "head" | "tail" => {
            let count = |word: &str| {
                let word = word.strip_prefix('+').unwrap_or(word);
                !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
            };
            match rest {
                [] => true,
                ["-n", lines] => count(lines),
                [flag] => {
                    let lines = flag.strip_prefix("-n").or_else(|| flag.strip_prefix('-'));
                    lines.is_some_and(count)
                }
                _ => false,
            }
        }
        "sort" => only("urn") && operands.next().is_none(),
        "uniq" => rest.is_empty(),
        // One pattern and no file.
        "grep" | "egrep" | "fgrep" => only("viEFwx") && operands.count() == 1,
        _ => false,
    }
}

/// `find … -exec PROGRAM … {} +` as the search and what it starts on each file.
pub(super) fn split_exec(command: &Command) -> Result<Option<(Command, Vec<Command>)>, String> {
    let texts: Option<Vec<&str>> = command.words.iter().map(Word::text).collect();
    let Some(texts) = texts.filter(|texts| texts.first() == Some(&"find")) else {
        return Ok(None);
    };
    if !texts.contains(&"-exec") {
        return Ok(None);
    }
    let below = find_starts(texts.get(1..).unwrap_or_default());
    let mut outer = Command {
        words: Vec::new(),
        ..command.clone()
    };
    let mut inner = Vec::new();
    let mut words = command.words.iter();
    while let Some(word) = words.next() {
        if word.text() != Some("-exec") {
            outer.words.push(word.clone());
            continue;
        }
        let mut started = Vec::new();
        let mut names = 0;
        let ended = loop {
            match words.next() {
                None => break false,
                Some(word) if matches!(word.text(), Some(";" | "+")) => break true,
                Some(word) if word.text() == Some("{}") => names += 1,
                Some(word) if word.sketch().contains("{}") => break false,
                // Behind the name another word would be read for what the name is: `head -n {} file`.
                Some(_) if names > 0 => break false,
                Some(word) => started.push(word.clone()),
            }
        };
        if !ended || names != 1 || started.is_empty() {
            return Err("the command that `find` runs is not known".to_owned());
        }
        inner.push(Command {
            words: started,
            assignments: Vec::new(),
            redirects: Vec::new(),
            appended_arguments: true,
            appended_below: Some(below.clone()),
            ..command.clone()
        });
    }
    // A search that says nothing else prints; with something to start it does not.
    Ok(Some((outer, inner)))
}
