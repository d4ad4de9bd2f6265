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
    match (*name, rest.first().copied()) {
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
        ("git", Some("ls-files")) => Some(vec![".".to_owned()]),
        ("git", Some("grep")) if has_letter(rest, 'l') => Some(vec![".".to_owned()]),
        ("grep" | "egrep" | "fgrep", _)
            if has_letter(rest, 'l') && (has_letter(rest, 'r') || has_letter(rest, 'R')) =>
        {
            Some(anywhere_named(rest))
        }
        ("rg", _) if has_letter(rest, 'l') || rest.contains(&"--files") => {
            Some(anywhere_named(rest))
        }
        _ => None,
    }
}

/// The directories that `find` starts at.
pub(super) fn find_starts(arguments: &[&str]) -> Vec<String> {
    let starts: Vec<String> = arguments
        .iter()
        .skip_while(|word| matches!(**word, "-H" | "-L" | "-P"))
        .take_while(|word| !word.starts_with(['-', '(', '!']))
        .map(|word| (*word).to_owned())
        .collect();
    if starts.is_empty() {
        vec![".".to_owned()]
    } else {
        starts
    }
}

/// A flag alone or in a bundle.
fn has_letter(words: &[&str], letter: char) -> bool {
    words
        .iter()
        .any(|word| word.starts_with('-') && !word.starts_with("--") && word.contains(letter))
}

/// Every word that may be a directory, and the one at hand.
fn anywhere_named(words: &[&str]) -> Vec<String> {
    std::iter::once(".")
        .chain(
            words
                .iter()
                .copied()
                .filter(|word| !word.starts_with('-') && !word.is_empty()),
        )
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
    match *name {
        "head" | "tail" => only("0123456789n"),
        "sort" => only("urn") && rest.iter().all(|word| word.starts_with('-')),
        "uniq" => rest.is_empty(),
        // One pattern and no file.
        "grep" | "egrep" | "fgrep" => {
            only("viEFwx") && rest.iter().filter(|word| !word.starts_with('-')).count() == 1
        }
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
