//! Programs that a project's settings of a toolchain name: `rust-toolchain.toml` may say where `cargo` lies, and
//! `.cargo/config.toml` what it starts to ask about the compiler.

use std::io::Read as _;
use std::path::Path;

use super::facts::open_regular;

/// Proxies of rustup, whose programs a `rust-toolchain` chooses, and `cargo`, which reads a configuration of its own.
const RUST: &[&str] = &["cargo", "rustc", "rustfmt", "rustup"];
/// Files for rustup, and keys in them that name a place of programs.
const TOOLCHAIN: (&[&str], &[&str]) = (&["rust-toolchain", "rust-toolchain.toml"], &["path"]);
/// Files for cargo, and keys in them that name a program it starts while it only looks, a further file, or, in `[env]`,
/// what chooses code in every program.
const CARGO: (&[&str], &[&str]) = (
    &[".cargo/config", ".cargo/config.toml"],
    &[
        "rustc",
        "rustc-wrapper",
        "rustc-workspace-wrapper",
        "include",
        "PATH",
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "LD_AUDIT",
        "RUSTC",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTUP_HOME",
        "RUSTUP_TOOLCHAIN",
    ],
);
/// Larger files are not looked at, and count as naming something.
const LARGEST: u64 = 1 << 20;
const DEEPEST: usize = 16;

/// The first such setting in the directories from `directory` up to `root`.
pub(super) fn tool_named(program: &str, directory: &Path, root: &Path) -> Option<String> {
    if !RUST.contains(&program) {
        return None;
    }
    let places = directory
        .ancestors()
        .take_while(|place| place.starts_with(root));
    for place in places {
        for (files, keys) in [TOOLCHAIN, CARGO] {
            for file in files {
                if let Some(key) = named_in(&place.join(file), keys) {
                    return Some(format!("`{key}` in `{file}`"));
                }
            }
        }
    }
    None
}

fn named_in(file: &Path, keys: &[&str]) -> Option<String> {
    let mut text = String::new();
    let read = open_regular(file, LARGEST).and_then(|mut open| open.read_to_string(&mut text));
    match read {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(_) => return Some("what cannot be looked at".to_owned()),
    }
    // The old form of a toolchain file is a name alone.
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if text.trim().chars().all(is_name) {
        return None;
    }
    match text.parse::<toml::Table>() {
        Ok(table) => key_in(&table, keys, DEEPEST),
        Err(_) => Some("what cannot be read".to_owned()),
    }
}

fn key_in(table: &toml::Table, keys: &[&str], depth: usize) -> Option<String> {
    if depth == 0 {
        return Some("what is nested too deep".to_owned());
    }
    table.iter().find_map(|(key, value)| {
        let inside = || match value {
            toml::Value::Table(table) => key_in(table, keys, depth - 1),
            _ => None,
        };
        match keys.contains(&key.as_str()) {
            true => Some(key.clone()),
            false => inside(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(file: &str, text: &str, expected: bool) {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        std::fs::create_dir_all(root.join(".cargo")).unwrap();
        std::fs::create_dir_all(root.join("src")).unwrap();
        std::fs::write(root.join(file), text).unwrap();
        let found = tool_named("cargo", &root.join("src"), root);
        assert_eq!(found.is_some(), expected, "{file}: {text}: {found:?}");
        assert_eq!(tool_named("ls", root, root), None);
    }

    #[test]
    fn what_chooses_a_program_is_found_however_it_is_written() {
        for text in [
            "[toolchain]\npath = \"tc\"\n",
            "toolchain = { path = \"tc\" }",
            "toolchain.\"p\\u0061th\" = 'tc'",
            "[toolchain",
        ] {
            check("rust-toolchain.toml", text, true);
            check("rust-toolchain", text, true);
        }
        for text in [
            "build.rustc = 'x'",
            "[build]\nrustc-wrapper = 'x'",
            "[build]\n\"rustc-workspace-wrapper\" = 'x'",
            "include = ['more.toml']",
            "[env]\nLD_PRELOAD = 'x.so'",
            "env = { PATH = { value = 'bin', relative = true } }",
        ] {
            check(".cargo/config.toml", text, true);
            check(".cargo/config", text, true);
        }
        check("rust-toolchain", "1.95.0\n", false);
        check(
            "rust-toolchain.toml",
            "[toolchain]\nchannel = '1.95.0'\n",
            false,
        );
        check(
            ".cargo/config.toml",
            "[build]\njobs = 2\n[alias]\nx = 'run'\n",
            false,
        );
    }
}
