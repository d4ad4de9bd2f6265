//! Keeps the manifests honest: which crate may use which, where `unsafe` may be, and that every
//! dependency is declared once, with its reason.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a failure is the report

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Crate → which of ours it may use. Whatever is not here is deliberately missing: `provider` can
/// start nothing, `engine` names no tool, `tui` reaches neither provider nor tools, and `sandbox`
/// is audited alone.
const ARROWS: &[(&str, &[&str])] = &[
    ("text", &[]),
    ("fs", &["text"]),
    ("protocol", &["text"]),
    ("log", &["text", "fs", "protocol"]),
    ("history", &["text", "protocol", "log"]),
    ("evidence", &["text", "protocol", "log", "history"]),
    ("sandbox", &["text", "fs"]),
    ("provider", &["text", "protocol"]),
    ("policy", &["text", "fs", "protocol"]),
    ("tool-runtime", &["text", "protocol", "policy"]),
    ("web", &["policy"]),
    (
        "local-tools",
        &[
            "text",
            "fs",
            "protocol",
            "policy",
            "tool-runtime",
            "sandbox",
            "web",
        ],
    ),
    (
        "engine",
        &[
            "text",
            "protocol",
            "log",
            "history",
            "provider",
            "policy",
            "tool-runtime",
        ],
    ),
    (
        "runtime",
        &[
            "text",
            "fs",
            "protocol",
            "log",
            "history",
            "evidence",
            "sandbox",
            "provider",
            "policy",
            "tool-runtime",
            "local-tools",
            "engine",
        ],
    ),
    ("tui", &["text", "protocol", "history", "evidence"]),
    (
        "cli",
        &[
            "text",
            "fs",
            "protocol",
            "log",
            "history",
            "evidence",
            "sandbox",
            "provider",
            "policy",
            "tool-runtime",
            "local-tools",
            "engine",
            "runtime",
            "tui",
        ],
    ),
    ("test-support", &["text", "protocol", "log"]),
];

/// The packages the project is meant to be built from.
const CARD: &[&str] = &[
    "clap",
    "tokio",
    "reqwest",
    "serde_json",
    "jsonschema",
    "ratatui",
    "crossterm",
    "landlock",
    "nix",
    "similar",
    "globset",
    "grep-searcher",
    "directories",
];

#[test]
fn crates_use_only_what_they_may() {
    let allowed: BTreeMap<&str, &[&str]> = ARROWS.iter().copied().collect();
    let crates = crates();
    let names: BTreeSet<&str> = crates.iter().map(|(name, _)| name.as_str()).collect();
    let known: BTreeSet<&str> = allowed.keys().copied().collect();
    assert_eq!(
        names, known,
        "a crate was added or removed: say what it may use"
    );
    for (name, manifest) in &crates {
        for dependency in keys(manifest, "dependencies") {
            if let Some(ours) = dependency.strip_prefix("agent-") {
                let may = allowed[name.as_str()].contains(&ours);
                assert!(may, "`{name}` must not use `{ours}`");
            }
        }
    }
}

#[test]
fn test_support_is_for_tests_only() {
    for (name, manifest) in crates() {
        let shipped = keys(&manifest, "dependencies");
        assert!(
            !shipped.iter().any(|key| key == "agent-test-support"),
            "{name}"
        );
    }
}

#[test]
fn every_dependency_is_declared_once_with_its_reason() {
    let text = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let section = text
        .split_once("[workspace.dependencies]")
        .and_then(|(_, rest)| rest.split_once("\n["))
        .map(|(section, _)| section)
        .expect("a section of dependencies");
    for line in section.lines() {
        let declares = line.contains(" = ") && !line.starts_with('#');
        if declares && !line.starts_with("agent-") {
            let reason = line
                .split_once("  # ")
                .map_or("", |(_, reason)| reason.trim());
            assert!(!reason.is_empty(), "no reason given: {line}");
        }
    }
    let declared: BTreeSet<String> =
        keys(&table(&root().join("Cargo.toml")), "workspace.dependencies")
            .into_iter()
            .collect();
    for (name, manifest) in crates() {
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            for (dependency, how) in entries(&manifest, section) {
                let inherited = how.get("workspace").and_then(toml::Value::as_bool) == Some(true);
                assert!(inherited, "`{name}` declares `{dependency}` itself");
                assert!(
                    declared.contains(&dependency),
                    "`{dependency}` is not declared"
                );
            }
        }
    }
}

#[test]
fn nothing_is_declared_that_no_crate_uses() {
    let used: BTreeSet<String> = crates()
        .iter()
        .flat_map(|(_, manifest)| {
            let mut all = keys(manifest, "dependencies");
            all.extend(keys(manifest, "dev-dependencies"));
            all
        })
        .collect();
    let unused: Vec<String> = keys(&table(&root().join("Cargo.toml")), "workspace.dependencies")
        .into_iter()
        .filter(|name| !used.contains(name))
        .collect();
    assert!(unused.is_empty(), "{unused:?}");
}

#[test]
fn the_packages_of_the_card_are_used() {
    let used: BTreeSet<String> = crates()
        .iter()
        .flat_map(|(_, manifest)| keys(manifest, "dependencies"))
        .collect();
    for package in CARD {
        assert!(used.contains(*package), "`{package}` is used by no crate");
    }
}

#[test]
fn every_crate_follows_the_workspace() {
    for (name, manifest) in crates() {
        let lints = &manifest["lints"];
        let inherited = lints.get("workspace").and_then(toml::Value::as_bool) == Some(true);
        // The one crate with `unsafe` has to repeat the list to change one entry of it.
        let sandbox = name == "sandbox"
            && lints["clippy"]["undocumented_unsafe_blocks"].as_str() == Some("deny");
        assert!(inherited || sandbox, "`{name}` has lints of its own");
        assert_eq!(
            manifest["package"]["name"].as_str(),
            Some(format!("agent-{name}").as_str())
        );
        for key in ["version", "edition", "license", "rust-version"] {
            let inherited = manifest["package"][key]["workspace"].as_bool();
            assert_eq!(inherited, Some(true), "`{name}` has a {key} of its own");
        }
    }
}

/// The lint that denies `unsafe` can be switched off by an attribute, so the sources are read too.
#[test]
fn only_the_sandbox_has_unsafe_code() {
    for (name, _) in crates() {
        if name == "sandbox" {
            continue;
        }
        for file in rust_files(&root().join("crates").join(&name)) {
            let text = fs::read_to_string(&file).unwrap();
            let code = text
                .lines()
                .map(|line| line.split("//").next().unwrap_or_default());
            for (number, line) in code.enumerate() {
                // Written apart so that this file does not find itself.
                let marks = [
                    concat!("uns", "afe {"),
                    concat!("uns", "afe fn"),
                    concat!("uns", "afe impl"),
                    concat!("allow(uns", "afe_code)"),
                ];
                let found = marks.iter().any(|mark| line.contains(mark));
                assert!(!found, "{}:{}: {line}", file.display(), number + 1);
            }
        }
    }
}

/// Only `cli` reads the environment and the clock; the others are given them.
#[test]
fn only_the_binary_reads_environment_and_clock() {
    let allowed = |name: &str, file: &Path| {
        name == "cli"
            || name == "test-support"
            || file
                .components()
                .any(|part| part.as_os_str() == "tests" || part.as_os_str() == "benches")
    };
    for (name, _) in crates() {
        for file in rust_files(&root().join("crates").join(&name)) {
            if allowed(&name, &file) {
                continue;
            }
            let text = fs::read_to_string(&file).unwrap();
            let shipped = text.split("#[cfg(test)]").next().unwrap_or_default();
            for (number, line) in shipped.lines().enumerate() {
                let code = line.split("//").next().unwrap_or_default();
                let reads = ["env::var", "SystemTime::now", "home_dir("]
                    .iter()
                    .any(|mark| code.contains(mark));
                assert!(!reads, "{}:{}: {line}", file.display(), number + 1);
            }
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Folder name and manifest of every crate.
fn crates() -> Vec<(String, toml::Table)> {
    let mut crates: Vec<(String, toml::Table)> = fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("Cargo.toml").is_file())
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, table(&path.join("Cargo.toml")))
        })
        .collect();
    crates.sort_by(|a, b| a.0.cmp(&b.0));
    crates
}

fn table(path: &Path) -> toml::Table {
    fs::read_to_string(path).unwrap().parse().unwrap()
}

fn entries(manifest: &toml::Table, section: &str) -> Vec<(String, toml::Value)> {
    let mut found: Option<&toml::Table> = Some(manifest);
    for part in section.split('.') {
        found = found
            .and_then(|table| table.get(part))
            .and_then(toml::Value::as_table);
    }
    found
        .map(|table| {
            table
                .iter()
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect()
        })
        .unwrap_or_default()
}

fn keys(manifest: &toml::Table, section: &str) -> Vec<String> {
    entries(manifest, section)
        .into_iter()
        .map(|(key, _)| key)
        .collect()
}

fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}
