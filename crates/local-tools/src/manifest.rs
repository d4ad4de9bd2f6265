//! What a file of a known kind says about the project: how its tests are run. A fact that is in the file,
//! named whatever part of it is shown.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};

use agent_text::visible_excerpt;
use serde_json::Value;

/// Larger files of these names are generated, or not what they seem.
const MOST_BYTES: u64 = 1 << 20;
const MOST_CHARACTERS: usize = 200;

/// The fact that a file of this name is known for, with secrets masked by `mask`; none when the name is
/// not known or the content does not say.
pub(crate) fn fact(path: &str, file: &File, mask: &dyn Fn(&str) -> String) -> Option<String> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let find: fn(&str) -> Option<String> = match name {
        "package.json" => test_script,
        "Makefile" | "makefile" | "GNUmakefile" => test_target,
        _ => return None,
    };
    let text = content(file).ok()??;
    let found = find(text.trim_start_matches('\u{feff}'))?;
    // Masked whole: a part of a secret would no longer look like one.
    Some(visible_excerpt(&mask(&found), MOST_CHARACTERS))
}

fn content(mut file: &File) -> io::Result<Option<String>> {
    if file.metadata()?.len() > MOST_BYTES {
        return Ok(None);
    }
    file.seek(SeekFrom::Start(0))?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8(bytes).ok())
}

fn test_script(text: &str) -> Option<String> {
    let package: Value = serde_json::from_str(text).ok()?;
    let script = package.get("scripts")?.get("test")?.as_str()?;
    Some(format!("scripts.test is `{script}`"))
}

/// A rule for `test`, not an assignment of that name.
fn test_target(text: &str) -> Option<String> {
    let is_rule = |line: &str| {
        let (targets, rest) = line.split_once(':')?;
        let is_named = targets.split_whitespace().any(|target| target == "test");
        (is_named && !line.starts_with('\t') && !rest.trim_start_matches(':').starts_with('='))
            .then_some(())
    };
    text.lines().find_map(is_rule)?;
    Some("`test` is a target".to_owned())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[track_caller]
    fn check(path: &str, content: &[u8], expected: Option<&str>) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        let mask = |text: &str| text.replace("hunter2", "[masked]");
        assert_eq!(fact(path, &file, &mask).as_deref(), expected, "{path}");
    }

    #[test]
    fn a_package_says_how_it_is_tested() {
        let package = br#"{"scripts": {"test": "vitest run", "build": "tsc"}}"#;
        check(
            "web/package.json",
            package,
            Some("scripts.test is `vitest run`"),
        );
        let marked = "\u{feff}{\"scripts\": {\"test\": \"t\"}}";
        check(
            "package.json",
            marked.as_bytes(),
            Some("scripts.test is `t`"),
        );
        check("package.jsonc", package, None);
        for odd in [
            &b"{\"scripts\": {\"test\": 1}}"[..],
            b"{\"scripts\": []}",
            b"{\"scripts\": {}}",
            b"[]",
            b"{\"scripts\"",
            b"\xff\xfe",
            b"",
        ] {
            check("package.json", odd, None);
        }
    }

    #[test]
    fn what_it_says_is_masked_visible_and_short() {
        let package = br#"{"scripts": {"test": "T=hunt\u0065r2 a\u001b[31m\nb"}}"#;
        let shown = "scripts.test is `T=[masked] a\\x1b[31m\\nb`";
        check("package.json", package, Some(shown));
        let long = format!("{{\"scripts\": {{\"test\": \"{}\"}}}}", "a ".repeat(1_000));
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(long.as_bytes()).unwrap();
        let found = fact("package.json", &file, &|text| text.to_owned()).unwrap();
        assert!(found.chars().count() <= MOST_CHARACTERS + 1, "{found}");
    }

    #[test]
    fn a_makefile_says_that_it_tests() {
        let found = Some("`test` is a target");
        check("Makefile", b"all:\n\tcc a.c\ntest: all\n\t./a\n", found);
        check("sub/makefile", b"check test::\n", found);
        for other in [
            &b"test := 1\n"[..],
            b"test ::= 1\n",
            b"tests:\n",
            b"all:\n\ttest: no\n",
            b"test\n",
        ] {
            check("Makefile", other, None);
        }
    }
}
