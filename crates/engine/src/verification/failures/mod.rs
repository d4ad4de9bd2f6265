//! Which tests failed, read from the output of common runners.
//!
//! The output is text of a command: what is found here is a help for the reader and decides nothing.
//! Lines are recognised by their shape whatever runner was asked for, because `make test` and `npm test`
//! may start any of them.

mod lines;

use std::io::{self, Read, Seek, SeekFrom};

use agent_protocol::payload::conversation::TestFailure;

/// The most failures that are listed.
const MOST: usize = 50;
/// The most bytes of output that are read: of its beginning and of its end, where summaries stand.
const HEAD: u64 = 1 << 20;
const TAIL: u64 = 3 << 20;
/// The longest name that is kept.
const NAME: usize = 200;

/// The tests an output names as failed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Failures {
    pub found: Vec<TestFailure>,
    /// How many more there are.
    pub left_out: u64,
}

/// The output, or its beginning and its end when it is long.
///
/// # Errors
/// When it cannot be read.
pub fn read_bounded(file: &mut (impl Read + Seek)) -> io::Result<String> {
    let length = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(0))?;
    let mut bytes = Vec::new();
    if length <= HEAD + TAIL {
        file.take(HEAD + TAIL).read_to_end(&mut bytes)?;
    } else {
        file.by_ref().take(HEAD).read_to_end(&mut bytes)?;
        bytes.push(b'\n');
        file.seek(SeekFrom::Start(length - TAIL))?;
        file.take(TAIL).read_to_end(&mut bytes)?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The tests that `output` names as failed, each once, in the order of their appearance.
#[must_use]
pub fn find(output: &str) -> Failures {
    let mut found: Vec<TestFailure> = Vec::new();
    let mut left_out = 0;
    for failure in lines::read(output) {
        let same = found.iter_mut().find(|known| is_same(known, &failure));
        if let Some(known) = same {
            // A summary repeats the name, and one of the two has the place.
            if known.file.is_none() || (known.line.is_none() && known.file == failure.file) {
                known.file = failure.file.or(known.file.take());
                known.line = failure.line.or(known.line);
            }
        } else if found.len() < MOST {
            found.push(failure);
        } else {
            left_out += 1;
        }
    }
    for failure in &mut found {
        for text in [&mut failure.test, &mut failure.file].into_iter().flatten() {
            *text = clip(text);
        }
    }
    Failures { found, left_out }
}

fn is_same(known: &TestFailure, other: &TestFailure) -> bool {
    match (&known.test, &other.test) {
        (Some(known_test), Some(test)) => {
            let elsewhere =
                matches!((&known.file, &other.file), (Some(one), Some(two)) if one != two);
            known_test == test && !elsewhere
        }
        (None, None) => known.file == other.file,
        _ => false,
    }
}

fn clip(text: &str) -> String {
    match text.char_indices().nth(NAME) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fixture begins with lines `#> test | file | line` that say what is to be found in it.
    #[test]
    fn the_output_of_common_runners_is_read() {
        let folder =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/runners");
        let mut names = Vec::new();
        for entry in std::fs::read_dir(folder).expect("the fixtures are in the repository") {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let expected: Vec<&str> = text
                .lines()
                .filter_map(|line| line.strip_prefix("#> "))
                .collect();
            let output: String = text
                .lines()
                .filter(|line| !line.starts_with("#> "))
                .flat_map(|line| [line, "\n"])
                .collect();
            let found: Vec<String> = find(&output)
                .found
                .iter()
                .map(|failure| {
                    let line = failure.line.map(|line| line.to_string());
                    [failure.test.clone(), failure.file.clone(), line]
                        .map(|part| part.unwrap_or_else(|| "-".to_owned()))
                        .join(" | ")
                })
                .collect();
            assert_eq!(found, expected, "{}", path.display());
            names.push(path);
        }
        assert!(names.len() >= 12, "{names:?}");
    }

    #[test]
    fn the_list_is_bounded_and_says_so() {
        let many: String = (0..80)
            .map(|at| format!("test case_{at} ... FAILED\n"))
            .collect();
        let failures = find(&many);
        assert_eq!((failures.found.len(), failures.left_out), (50, 30));
        let long = format!("test {} ... FAILED\n", "x".repeat(5_000));
        let name = find(&long).found[0].test.clone().unwrap();
        assert!(name.chars().count() <= NAME + 1);
    }

    #[test]
    fn the_end_of_a_long_output_is_read() {
        let mut text = "ok\n".repeat(2 << 20);
        text.push_str("FAILED tests/test_a.py::test_x - no\n");
        let read = read_bounded(&mut io::Cursor::new(text.into_bytes())).unwrap();
        assert!(read.len() as u64 <= HEAD + TAIL + 1);
        assert_eq!(find(&read).found.len(), 1);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read(text in "(?s)[ -~\n\u{1b}●×❯›✖]{0,400}") {
            let _ = find(&text);
        }
    }
}
