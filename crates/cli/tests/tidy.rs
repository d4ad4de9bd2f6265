//! Claims of `docs/ARCHITECTURE.md` about the code, checked by reading it: what is declared is used, and there is one of
//! each thing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a failure is the report

use std::fs;
use std::path::{Path, PathBuf};

/// Sections whose keys `config/providers.rs` hands to the provider crate.
const HANDED_ON: &[&str] = &["Provider", "ModelFacts"];

/// A key that nothing outside `config/` reads would be parsed, shown and documented in vain.
#[test]
fn every_setting_is_read_outside_the_configuration() {
    let runtime = Path::new(env!("CARGO_MANIFEST_DIR")).join("../runtime/src");
    let config = runtime.join("config");
    let sections = declared(&fs::read_to_string(config.join("sections.rs")).unwrap());
    assert!(sections.len() > 8, "{sections:?}");
    let mut files = Vec::new();
    read_sources(&source(), &mut files);
    read_sources(&runtime, &mut files);
    files.retain(|(path, _)| !path.starts_with(&config));
    let handed_on = compact(&fs::read_to_string(config.join("providers.rs")).unwrap());
    let mut unread = Vec::new();
    for (section, keys) in &sections {
        for key in keys {
            let is_read = match HANDED_ON.contains(&section.as_str()) {
                true => is_used(&handed_on, &format!(".{key}")),
                false => files
                    .iter()
                    .any(|(_, text)| reads(text, &section.to_lowercase(), key)),
            };
            if !is_read {
                unread.push(format!("{}.{key}", section.to_lowercase()));
            }
        }
    }
    assert!(unread.is_empty(), "read by nothing: {unread:?}");
}

/// Whether code reads `section.key`, directly or by a name that the section was given.
fn reads(code: &str, section: &str, key: &str) -> bool {
    let mut names = vec![section.to_owned()];
    let given = format!(".{section};");
    for (at, _) in code.match_indices(&given) {
        // `let set=&config.sandbox;`
        let before = &code[..at];
        let start = before.rfind("let").unwrap_or(at);
        if let Some((name, value)) = before[start + 3..].split_once("=&")
            && value.chars().all(is_word)
        {
            names.push(name.to_owned());
        }
    }
    names
        .iter()
        .any(|name| is_used(code, &format!("{name}.{key}")))
}

/// Whether `words` stand in `code` and end there.
fn is_used(code: &str, words: &str) -> bool {
    code.match_indices(words).any(|(at, _)| {
        let after = code[at + words.len()..].chars().next();
        let before = code[..at].chars().next_back();
        let begins = words.starts_with('.') || !before.is_some_and(is_word);
        begins && !after.is_some_and(is_word)
    })
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Each section with its keys, as `section!` declares them.
fn declared(text: &str) -> Vec<(String, Vec<String>)> {
    let mut sections: Vec<(String, Vec<String>)> = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some((name, _)) = line.split_once(" from ")
            && line.ends_with('{')
        {
            sections.push((name.to_owned(), Vec::new()));
        } else if let Some((key, rest)) = line.split_once(": ")
            && rest.contains("Guard::")
            && let Some((_, keys)) = sections.last_mut()
        {
            keys.push(key.to_owned());
        }
    }
    sections
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// All code below a directory, without white space.
fn read_sources(directory: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = compact(&fs::read_to_string(&path).unwrap());
            found.push((path, text));
        }
    }
}

fn compact(text: &str) -> String {
    text.split_whitespace().collect()
}

/// Each crate's folder.
fn crates() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("Cargo.toml").is_file())
        .collect();
    found.sort();
    assert!(found.len() > 8);
    found
}

/// Code in front of a file's own tests.
fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]").next().unwrap_or_default()
}

/// A dependency that no code of a crate names is there for nothing.
#[test]
fn every_dependency_is_named_in_its_crate() {
    for folder in crates() {
        let mut files = Vec::new();
        read_sources(&folder.join("src"), &mut files);
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let declared = manifest
            .split("\n[")
            .find(|part| part.starts_with("dependencies]"));
        for line in declared.unwrap_or_default().lines().skip(1) {
            let Some((name, _)) = line.split_once(['.', ' ']) else {
                continue;
            };
            let word = name.replace('-', "_");
            let is_named = files.iter().any(|(_, text)| {
                is_used(without_tests(text), &word) || text.contains(&format!("use{word}"))
            });
            assert!(is_named, "{}: nothing names `{name}`", folder.display());
        }
    }
}

/// Characters that show nothing are listed in `text` alone: a second table would answer differently.
#[test]
fn one_table_of_invisible_characters() {
    for folder in crates().iter().filter(|folder| !folder.ends_with("text")) {
        let mut files = Vec::new();
        read_sources(&folder.join("src"), &mut files);
        for (path, text) in files {
            if path.file_name().is_some_and(|name| name == "tests.rs") {
                continue;
            }
            for sign in ["{200b}", "{202e}", "{2066}", "{180e}", "{e0000}"] {
                assert!(
                    !without_tests(&text)
                        .to_lowercase()
                        .contains(&format!("'\\u{sign}")),
                    "{}: lists `{sign}`",
                    path.display()
                );
            }
        }
    }
}

/// A command that no test sends would be answered by whatever `ControlPlane::handle` happens to do.
#[test]
fn every_control_command_is_sent_by_a_test() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = fs::read_to_string(crates.join("protocol/src/command.rs")).unwrap();
    let (_, list) = text.split_once("pub enum ControlCommand {").unwrap();
    let (list, _) = list.split_once("\n}").unwrap();
    let names: Vec<&str> = list
        .lines()
        .map(|line| line.trim().split(['(', ',']).next().unwrap_or_default())
        .filter(|name| name.starts_with(char::is_uppercase))
        .collect();
    assert!(names.len() >= 20, "{names:?}");
    let mut tests = Vec::new();
    read_sources(&crates.join("engine/tests/control"), &mut tests);
    let is_sent = |name: &&str| {
        let words = format!("ControlCommand::{name}");
        tests.iter().any(|(_, text)| is_used(text, &words))
    };
    let unsent: Vec<&str> = names.into_iter().filter(|name| !is_sent(name)).collect();
    assert!(unsent.is_empty(), "sent by no test: {unsent:?}");
}
