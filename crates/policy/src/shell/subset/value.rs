//! The value of a word, and what names of variables and values without quotes may be.

use crate::shell::word::{Dynamic, UNKNOWN, Value, Word};

/// A word in the making; quoted glob characters are escaped in it.
pub(super) struct Built {
    pub(super) text: String,
    pub(super) plain: bool,
    pub(super) is_glob: bool,
    dynamic: Option<Dynamic>,
}

impl Default for Built {
    fn default() -> Self {
        Self {
            text: String::new(),
            plain: true,
            is_glob: false,
            dynamic: None,
        }
    }
}

impl Built {
    pub(super) fn push(&mut self, text: &str) {
        for character in text.chars() {
            if matches!(character, '*' | '?' | '[' | '\\') {
                self.text.push('\\');
            }
            self.text.push(character);
        }
    }

    pub(super) fn glob(&mut self, sign: char) {
        self.is_glob = true;
        self.text.push(sign);
    }

    pub(super) fn unknown(&mut self, why: Dynamic) {
        if self.dynamic.is_none_or(|known| known == Dynamic::ExitCode) {
            self.dynamic = Some(why);
        }
        self.text.push(UNKNOWN);
    }

    pub(super) fn value(self) -> Value {
        match self.dynamic {
            Some(why) => Value::Dynamic {
                why,
                sketch: unescape(&self.text),
            },
            None if self.is_glob => Value::Glob { pattern: self.text },
            None => Value::Literal {
                text: unescape(&self.text),
                plain: self.plain,
            },
        }
    }
}

pub(super) fn unescape(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => result.extend(characters.next()),
            other => result.push(other),
        }
    }
    result
}

/// Without quotes a value stays as it is only if nothing in it is split or takes part in a pattern.
pub(super) fn is_one_word(value: &str) -> bool {
    !value.is_empty()
        && value
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_./-+:@,=%".contains(c))
}

/// Variables of the environment that are named like secrets.
pub(super) fn may_hold_secret(name: &str) -> bool {
    const PARTS: &[&str] = &[
        "KEY", "TOKEN", "SECRET", "PASS", "CRED", "AUTH", "AWS", "PRIVATE", "COOKIE", "SESSION",
    ];
    let upper = name.to_ascii_uppercase();
    PARTS.iter().any(|part| upper.contains(part))
}

/// `cd` and one literal directory, which goes up only in front.
pub(super) fn is_plain_cd(words: &[Word]) -> bool {
    let [_, target] = words else { return false };
    let Some(target) = target.text() else {
        return false;
    };
    let mut went_down = false;
    !target.is_empty()
        && !target.starts_with(['-', '+'])
        && target.split('/').all(|step| {
            let climbs = step == "..";
            let fits = !(climbs && went_down);
            went_down |= !climbs && !step.is_empty() && step != ".";
            fits
        })
}

/// Names of variables that mean something to the shell or to programs are not set.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    const TAKEN: &[&str] = &[
        "histchars",
        "auto_resume",
        "http_proxy",
        "https_proxy",
        "ftp_proxy",
        "all_proxy",
        "no_proxy",
    ];
    let is_own = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        && !name.starts_with("npm_")
        && !name.starts_with("pip_")
        && !TAKEN.contains(&name);
    let is_letter = name.len() == 1 && name.bytes().all(|b| b.is_ascii_uppercase());
    if is_own || is_letter {
        Ok(())
    } else {
        Err(format!("it sets the variable `{name}`"))
    }
}
