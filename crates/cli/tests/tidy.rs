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

/// Code that decides something by the name of a tool: everything goes by the tool's definition.
#[test]
fn no_crate_names_a_tool() {
    let names: Vec<&str> = agent_local_tools::definitions()
        .iter()
        .map(|tool| tool.name.as_str())
        .collect();
    assert!(names.len() > 8, "{names:?}");
    let by_name = [
        "tool==",
        "tool!=",
        "tool:",
        "tool.as_str(),",
        "tool_name==",
        "tool_name.as_str(),",
        "tool_names(),",
        "ToolIntent::new(",
    ];
    let exempt =
        |folder: &Path| folder.ends_with("local-tools") || folder.ends_with("test-support");
    for folder in crates().iter().filter(|folder| !exempt(folder)) {
        let mut files = Vec::new();
        read_sources(&folder.join("src"), &mut files);
        for (path, text) in files {
            // Logs of other programs have names of their own.
            let is_import = path.components().any(|part| part.as_os_str() == "import");
            if is_import || path.file_name().is_some_and(|name| name == "tests.rs") {
                continue;
            }
            let code = without_tests(&text);
            for name in &names {
                let literal = format!("\"{name}\"");
                for before in by_name {
                    let words = format!("{before}{literal}");
                    assert!(!code.contains(&words), "{}: `{words}`", path.display());
                }
                // No other thing is called like this.
                let is_plain_word = !name.contains('_');
                assert!(
                    is_plain_word || !code.contains(&literal),
                    "{}: {literal}",
                    path.display()
                );
            }
        }
    }
}

/// Dependencies of tests count too: what no test or bench names is built for nothing.
#[test]
fn every_dependency_of_tests_is_named_in_them() {
    for folder in crates() {
        let mut files = Vec::new();
        for part in ["src", "tests", "benches", "examples"] {
            let part = folder.join(part);
            if part.is_dir() {
                read_sources(&part, &mut files);
            }
        }
        // Their tests lie at the top.
        if folder.ends_with("cli") || folder.ends_with("runtime") {
            read_sources(&root().join("tests"), &mut files);
        }
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let declared = manifest
            .split("\n[")
            .find(|part| part.starts_with("dev-dependencies]"));
        for line in declared.unwrap_or_default().lines().skip(1) {
            // What only switches a feature on need not be named.
            let Some((name, rest)) = line.split_once(['.', ' ']) else {
                continue;
            };
            if line.starts_with('#') || rest.contains("features") {
                continue;
            }
            let word = name.replace('-', "_");
            let is_named = files
                .iter()
                .any(|(_, text)| is_used(text, &word) || text.contains(&format!("use{word}")));
            assert!(is_named, "{}: no test names `{name}`", folder.display());
        }
    }
}

/// A file of another crate would be compiled twice, past what the crates may know of each other. Tests
/// at the top belong to `cli`.
#[test]
fn no_file_of_another_crate_is_taken_by_its_path() {
    for folder in crates() {
        for (path, text) in sources_of(&folder) {
            for line in text.lines().map(str::trim) {
                let Some(target) = line.strip_prefix("#[path = \"") else {
                    continue;
                };
                let target = target.trim_end_matches("\"]");
                let target = path.parent().unwrap().join(target);
                let target = target.canonicalize().unwrap();
                let is_own = target.starts_with(folder.canonicalize().unwrap());
                let is_top = folder.ends_with("cli")
                    && target.starts_with(root().join("tests").canonicalize().unwrap());
                assert!(
                    is_own || is_top,
                    "{}: takes {}",
                    path.display(),
                    target.display()
                );
            }
        }
    }
}

/// Protected names are listed in `policy` alone: a second list would protect something else.
#[test]
fn one_list_of_protected_names() {
    let list = root().join("crates/policy/src/gate/names.rs");
    let text = fs::read_to_string(&list).unwrap();
    let entries = text.split("PROTECTED_NAMES").nth(1).unwrap();
    let entries = entries.split("];").next().unwrap();
    let names: Vec<&str> = entries
        .split("\n    (")
        .skip(1)
        .map(|entry| entry.split('"').nth(1).unwrap())
        .collect();
    assert!(names.len() > 80, "{names:?}");
    for folder in crates() {
        let mut files = Vec::new();
        read_sources(&folder.join("src"), &mut files);
        for (path, text) in files {
            if path.file_name() == list.file_name() {
                continue;
            }
            // Without white space: `const NAMES:&[&str]=&[".git",".envrc"];`
            for item in without_tests(&text).split("];") {
                let Some((_, strings)) = item.rsplit_once("=&[").or(item.rsplit_once("=[")) else {
                    continue;
                };
                let found: Vec<&str> = strings
                    .split('"')
                    .filter(|name| names.contains(name))
                    .collect();
                assert!(found.len() < 3, "{}: lists {found:?}", path.display());
            }
        }
    }
}

/// Files that are longer than this are two stories.
const MOST_LINES: usize = 600;

#[test]
fn no_file_is_long() {
    let mut files: Vec<(PathBuf, String)> = crates().iter().flat_map(|at| sources_of(at)).collect();
    files.extend(sources_of(&root()));
    for (path, text) in files {
        let lines = text.lines().count();
        assert!(lines <= MOST_LINES, "{}: {lines} lines", path.display());
    }
}

/// What README and docs show is tried: some test has these words of a command line in a row.
#[test]
fn every_command_shown_is_run_by_a_test() {
    let mut tests = Vec::new();
    read_sources(&root().join("tests"), &mut tests);
    let mut pages = vec![root().join("README.md")];
    for entry in fs::read_dir(root().join("docs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "md") {
            pages.push(path);
        }
    }
    let mut shown = 0;
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        let commands = ["`agent ", "$ agent ", "\nagent "].map(|start| text.split(start).skip(1));
        for command in commands.into_iter().flatten() {
            let end = |c: char| !(c.is_ascii_lowercase() || c == '-' || c == ' ');
            let line = &command[..command.find(end).unwrap_or(command.len())];
            let ends_whole = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric());
            let mut words: Vec<&str> = line.split(' ').take(2).collect();
            words.retain(|word| !word.is_empty() && !word.starts_with('-'));
            if words.len() == 2 && words.concat().len() + 1 == line.len() {
                // Cut in the middle of something that is no word, such as `last.txt`.
                words.truncate(if ends_whole(&command[line.len()..]) {
                    2
                } else {
                    1
                });
            }
            if words.is_empty() {
                continue;
            }
            shown += 1;
            let wanted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
            let wanted = wanted.join(",");
            let is_run = tests.iter().any(|(_, text)| text.contains(&wanted));
            assert!(
                is_run,
                "{}: no test runs `agent {}`",
                page.display(),
                words.join(" ")
            );
        }
    }
    assert!(shown > 50, "{shown}");
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every file of a crate, or of the top, as it is; what was built is left out.
fn sources_of(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = ["src", "tests", "benches", "examples"]
        .iter()
        .map(|part| folder.canonicalize().unwrap().join(part))
        .filter(|part| part.is_dir())
        .collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    found
}
