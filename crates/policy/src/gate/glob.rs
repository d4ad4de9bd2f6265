//! Patterns of the shell and the files they stand for.
//!
//! What a running bash lists depends on its version and locale, so this lists whatever any of them would: `.` and
//! `..` for a pattern that fits them (bash before 5.2), names by their characters and by their bytes (what `?` stands
//! for is a matter of locale), and for brackets anything at all.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Files a pattern may stand for before it is given up.
const MAX_MATCHES: usize = 2_000;

/// The files that `pattern` stands for in `directory`. Quoted signs stand behind a backslash in it. `None` when
/// there are too many.
pub(super) fn expand(directory: &Path, pattern: &str) -> Option<Vec<PathBuf>> {
    let is_absolute = pattern.starts_with('/');
    let mut found = vec![if is_absolute {
        "/".into()
    } else {
        directory.to_owned()
    }];
    let mut after_pattern = false;
    for step in pattern.split('/').filter(|step| !step.is_empty()) {
        let step = Step::read(step);
        if let Some(name) = step.literal() {
            found.iter_mut().for_each(|path| path.push(&name));
            // Behind a pattern only what is there is a match.
            if after_pattern {
                found.retain(|path| path.symlink_metadata().is_ok());
            }
            continue;
        }
        after_pattern = true;
        let mut next = Vec::new();
        for directory in &found {
            let Ok(entries) = std::fs::read_dir(directory) else {
                continue;
            };
            let dots = [".", ".."].map(|dots| OsStr::new(dots).to_owned());
            let names = entries.flatten().map(|entry| entry.file_name());
            for name in dots.into_iter().chain(names) {
                if step.fits(&name) {
                    next.push(directory.join(name));
                }
                if next.len() > MAX_MATCHES {
                    return None;
                }
            }
        }
        found = next;
    }
    Some(found)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    /// Any run of characters.
    Run,
    /// Any one of them.
    One,
    This(char),
}

/// One step of a pattern, between slashes.
struct Step {
    signs: Vec<Sign>,
    /// The signs of the same pattern where a character is a byte.
    in_bytes: Vec<Sign>,
    /// It may fit a name with a dot in front.
    takes_hidden: bool,
}

impl Step {
    fn read(text: &str) -> Self {
        let mut signs = Vec::new();
        let mut rest = text;
        while let Some(character) = rest.chars().next() {
            rest = rest.get(character.len_utf8()..).unwrap_or_default();
            match character {
                '*' => signs.push(Sign::Run),
                '?' => signs.push(Sign::One),
                // Brackets end in more than one way, so all from the first to the last may be anything.
                '[' if rest.contains(']') => {
                    signs.push(Sign::Run);
                    rest = rest.rsplit(']').next().unwrap_or_default();
                }
                '\\' => {
                    let quoted = rest.chars().next();
                    rest = rest
                        .get(quoted.map_or(0, char::len_utf8)..)
                        .unwrap_or_default();
                    signs.extend(quoted.map(Sign::This));
                }
                other => signs.push(Sign::This(other)),
            }
        }
        signs.dedup_by(|next, before| *next == Sign::Run && *before == Sign::Run);
        let in_bytes = signs.iter().copied().flat_map(bytes_of).collect();
        Self {
            takes_hidden: text.starts_with('[') || signs.first() == Some(&Sign::This('.')),
            signs,
            in_bytes,
        }
    }

    /// The name, where there is only one.
    fn literal(&self) -> Option<String> {
        let this = |sign: &Sign| match sign {
            Sign::This(character) => Some(*character),
            Sign::Run | Sign::One => None,
        };
        self.signs.iter().map(this).collect()
    }

    fn fits(&self, name: &OsStr) -> bool {
        let bytes = name.as_bytes();
        if bytes.starts_with(b".") && !self.takes_hidden {
            return false;
        }
        let by_bytes: Vec<char> = bytes.iter().copied().map(char::from).collect();
        let by_characters = || {
            let text: Vec<char> = name.to_str()?.chars().collect();
            Some(fits(&self.signs, &text))
        };
        fits(&self.in_bytes, &by_bytes) || by_characters() == Some(true)
    }
}

fn bytes_of(sign: Sign) -> Vec<Sign> {
    match sign {
        Sign::This(character) => {
            let mut buffer = [0; 4];
            let bytes = character.encode_utf8(&mut buffer).bytes();
            bytes.map(|byte| Sign::This(char::from(byte))).collect()
        }
        other => vec![other],
    }
}

/// Goes back to the last run only, which is enough, and takes no more steps than both are long, multiplied.
fn fits(signs: &[Sign], name: &[char]) -> bool {
    let shortest = signs.iter().filter(|sign| **sign != Sign::Run).count();
    if shortest > name.len() {
        return false;
    }
    let (mut sign, mut at) = (0, 0);
    let mut last_run: Option<(usize, usize)> = None;
    while at < name.len() {
        let goes_on = match signs.get(sign) {
            Some(Sign::Run) => {
                last_run = Some((sign + 1, at));
                sign += 1;
                continue;
            }
            Some(Sign::One) => true,
            Some(Sign::This(this)) => name.get(at) == Some(this),
            None => false,
        };
        if goes_on {
            sign += 1;
            at += 1;
        } else if let Some((behind, from)) = last_run {
            last_run = Some((behind, from + 1));
            (sign, at) = (behind, from + 1);
        } else {
            return false;
        }
    }
    signs
        .get(sign..)
        .unwrap_or_default()
        .iter()
        .all(|sign| *sign == Sign::Run)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, name: &[u8], expected: bool) {
        let fits = Step::read(pattern).fits(OsStr::from_bytes(name));
        assert_eq!(fits, expected, "{pattern:?} {name:?}");
    }

    #[test]
    fn a_pattern_fits_whatever_some_bash_would_list() {
        check("*.y", b"x.y", true);
        check("*.y", b".y", false);
        check(".*", b"..", true);
        check("\\**", b"*a", true);
        check("\\**", b"a", false);
        check("a?b*c", b"axbbcc", true);
        check("a?b*c", b"axbbcd", false);
        // One character or two bytes.
        check("?", "é".as_bytes(), true);
        check("??", "é".as_bytes(), true);
        check("???", "é".as_bytes(), false);
        check("a?", b"a\xff", true);
        check("[[:lower:]]", b"v", true);
        check(".en[a-z]", b".env", true);
        check("[.]env", b".env", true);
        check("a[b", b"a[b", true);
        check("a[b]c[d", b"aXc[d", true);
    }

    #[test]
    fn many_stars_take_no_time() {
        let begun = std::time::Instant::now();
        check(&"*a".repeat(60), "a".repeat(254).as_bytes(), true);
        check(
            &format!("{}b", "*a".repeat(60)),
            "a".repeat(254).as_bytes(),
            false,
        );
        assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
    }

    #[test]
    fn signs_in_the_name_of_the_directory_are_no_pattern() {
        let directory = tempfile::tempdir().unwrap();
        for odd in ["b\\s", "*", "[a]"] {
            let place = directory.path().join(odd);
            std::fs::create_dir(&place).unwrap();
            std::fs::write(place.join("x.pem"), "").unwrap();
            assert_eq!(
                expand(&place, "x*"),
                Some(vec![place.join("x.pem")]),
                "{odd}"
            );
        }
    }
}
