//! Holds every package that is built here against `deny.toml`, without the network or a tool of
//! its own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a failure is the report

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

#[test]
fn every_package_has_an_allowed_licence() {
    let rules = rules();
    let allowed = strings(&rules["licenses"]["allow"]);
    let exceptions = rules["licenses"]["exceptions"].as_array().unwrap();
    let mut problems = Vec::new();
    for package in packages() {
        let name = package.name.as_str();
        let mut allowed = allowed.clone();
        for exception in exceptions {
            if exception["crate"].as_str() == Some(name) {
                allowed.extend(strings(&exception["allow"]));
            }
        }
        if !permits(&package.licence, &allowed) {
            problems.push(format!("{name}: {}", package.licence));
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn no_package_is_banned_or_from_elsewhere() {
    let rules = rules();
    let banned: Vec<&str> = rules["bans"]["deny"]
        .as_array()
        .unwrap()
        .iter()
        .map(|ban| ban["crate"].as_str().unwrap())
        .collect();
    for package in packages() {
        let name = package.name;
        assert!(!banned.contains(&name.as_str()), "{name} is banned");
        let ours = name.starts_with("agent-");
        assert_eq!(
            package.elsewhere.is_some(),
            ours,
            "{name}: {:?}",
            package.elsewhere
        );
    }
}

#[test]
fn licence_expressions_are_understood() {
    let allowed = ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].map(String::from);
    for good in [
        "MIT",
        "GPL-3.0 OR MIT",
        "Unlicense/MIT",
        "(GPL-3.0 OR MIT) AND ISC",
        "Apache-2.0 WITH LLVM-exception",
    ] {
        assert!(permits(good, &allowed), "{good}");
    }
    for bad in ["GPL-3.0", "MIT AND GPL-3.0", "Apache-2.0", "none given", ""] {
        assert!(!permits(bad, &allowed), "{bad}");
    }
}

fn rules() -> toml::Table {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deny.toml");
    std::fs::read_to_string(file).unwrap().parse().unwrap()
}

fn strings(list: &toml::Value) -> Vec<String> {
    let entries = list.as_array().unwrap().iter();
    entries
        .map(|entry| entry.as_str().unwrap().to_owned())
        .collect()
}

/// One line of the dependency tree.
struct Package {
    name: String,
    /// Where it comes from, when that is not the registry.
    elsewhere: Option<String>,
    licence: String,
}

/// Every package that is built on this machine, tests and benches included.
fn packages() -> Vec<Package> {
    let output = Command::new(env!("CARGO"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args([
            "tree",
            "--workspace",
            "--locked",
            "--offline",
            "--prefix=none",
        ])
        .args(["--edges=normal,build,dev", "--format={p}|{l}"])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: BTreeSet<&str> = text.lines().filter(|line| line.contains('|')).collect();
    assert!(
        lines.len() > 100,
        "the tree is too small to be true: {text}"
    );
    lines.into_iter().map(package).collect()
}

/// Reads `name v1.0.0 (place) (proc-macro)|licence (*)`.
fn package(line: &str) -> Package {
    let (what, licence) = line.split_once('|').unwrap();
    let (name, rest) = what.split_once(' ').unwrap();
    let place = rest.split_once(" (").map(|(_, place)| place.to_owned());
    Package {
        name: name.to_owned(),
        elsewhere: place.filter(|place| !place.starts_with("proc-macro")),
        licence: licence.trim_end_matches(" (*)").to_owned(),
    }
}

/// Whether an SPDX expression can be met with the allowed licences.
fn permits(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    any_of(&tokens, &mut at, allowed) && at == tokens.len()
}

fn any_of(tokens: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let mut met = all_of(tokens, at, allowed);
    while tokens.get(*at) == Some(&"OR") {
        *at += 1;
        met |= all_of(tokens, at, allowed);
    }
    met
}

fn all_of(tokens: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let mut met = one(tokens, at, allowed);
    while tokens.get(*at) == Some(&"AND") {
        *at += 1;
        met &= one(tokens, at, allowed);
    }
    met
}

fn one(tokens: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let Some(token) = tokens.get(*at) else {
        return false;
    };
    *at += 1;
    if *token == "(" {
        let met = any_of(tokens, at, allowed);
        *at += 1;
        return met;
    }
    let mut licence = (*token).to_owned();
    if tokens.get(*at) == Some(&"WITH") {
        licence = format!("{token} WITH {}", tokens.get(*at + 1).unwrap_or(&""));
        *at += 2;
    }
    allowed.contains(&licence)
}
