//! Then and now, call by call.

use std::path::Path;

use agent_local_tools::Encoding;
use agent_local_tools::diff::{changed_range, unified};
use agent_protocol::Code;
use agent_protocol::payload::permission::Effect;

use super::record::{Recorded, RecordedCall};

/// One call, then and now.
pub struct CallComparison {
    pub then: RecordedCall,
    /// Missing when it was not reached.
    pub now: Option<RecordedCall>,
    /// Unified diff of the observation's text, without what differs every time.
    pub text: Option<String>,
}

impl CallComparison {
    pub fn decision_differs(&self) -> bool {
        self.decisions().is_some_and(|(then, now)| then != now)
    }

    pub fn code_differs(&self) -> bool {
        let now = self.now.as_ref();
        now.is_some_and(|now| now.code != self.then.code)
    }

    pub fn differs(&self) -> bool {
        self.now.is_none() || self.decision_differs() || self.code_differs() || self.text.is_some()
    }

    /// What the gate said and what was decided in the end, then and now.
    pub fn decisions(&self) -> Option<(Decision, Decision)> {
        let now = self.now.as_ref()?;
        let of = |call: &RecordedCall| (call.decision, call.outcome());
        Some((of(&self.then), of(now)))
    }

    pub fn codes(&self) -> (Option<Code>, Option<Code>) {
        (self.then.code, self.now.as_ref().and_then(|now| now.code))
    }
}

/// What the gate said, and what was decided in the end.
pub(super) type Decision = (Option<Effect>, Option<Effect>);

/// Compares the calls of two sessions, the second of which played the first in `copy`.
pub fn compare(then: &Recorded, now: &Recorded, root: &Path, copy: &Path) -> Vec<CallComparison> {
    let played = |call: &RecordedCall| {
        let same = |now: &&RecordedCall| now.provider_call_id.as_ref() == Some(&call.id);
        now.calls().iter().find(same).cloned()
    };
    let compared = then.calls().iter().map(|call| {
        let now = played(call);
        let text = now.as_ref().and_then(|now| {
            let then = steady(call.text.as_deref().unwrap_or_default(), root, &call.id);
            let now = steady(now.text.as_deref().unwrap_or_default(), copy, &now.id);
            difference(&then, &now)
        });
        CallComparison {
            then: call.clone(),
            now,
            text,
        }
    });
    compared.collect()
}

fn difference(then: &str, now: &str) -> Option<String> {
    let changes: Vec<_> = changed_range(then.as_bytes(), now.as_bytes())
        .into_iter()
        .collect();
    if changes.is_empty() {
        return None;
    }
    let diff = unified(
        "observation",
        then.as_bytes(),
        now.as_bytes(),
        Encoding::of(then.as_bytes()),
        &changes,
    );
    // The first two lines name the file, and there is none.
    let hunks = diff.shown.lines().skip(2);
    Some(hunks.map(|line| format!("{line}\n")).collect())
}

/// Text without what differs from run to run: where the project is, ids, hashes of outputs, times.
fn steady(text: &str, root: &Path, call: &str) -> String {
    let root = root.display().to_string();
    let text = text.replace(&root, "<project>").replace(call, "<call>");
    let mut steady = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(character) = rest.chars().next() {
        let at_word = !steady.ends_with(|before: char| before.is_alphanumeric() || before == '_');
        if at_word && let Some((length, word)) = varying(rest) {
            steady.push_str(word);
            rest = &rest[length..];
            continue;
        }
        steady.push(character);
        rest = &rest[character.len_utf8()..];
    }
    steady
}

/// A hash, an id, a time of day or a duration at the beginning of `text`, and what stands for it.
fn varying(text: &str) -> Option<(usize, &'static str)> {
    if let Some(hash) = text.strip_prefix("sha256:") {
        let digits = hash.bytes().take_while(u8::is_ascii_hexdigit).count();
        return (digits >= 16).then_some((7 + digits, "<hash>"));
    }
    for prefix in ["call_", "proc_", "act_", "ses_", "turn_"] {
        if let Some(id) = text.strip_prefix(prefix) {
            let letters = id.bytes().take_while(u8::is_ascii_alphanumeric).count();
            return (letters >= 20).then_some((prefix.len() + letters, "<id>"));
        }
    }
    let number = text
        .bytes()
        .take_while(|byte| byte.is_ascii_digit() || *byte == b'.')
        .count();
    if number == 0 {
        return None;
    }
    // 2026-11-16T07:12:29.716Z
    let stamp = text.bytes().take_while(|byte| {
        byte.is_ascii_digit() || matches!(byte, b'-' | b':' | b'T' | b'.' | b'Z')
    });
    let stamp = stamp.count();
    if stamp >= 19 && text[..stamp].contains('T') {
        return Some((stamp, "<time>"));
    }
    let unit = text[number..].strip_prefix(' ').unwrap_or(&text[number..]);
    let gap = text.len() - number - unit.len();
    for word in ["ms", "s", "µs", "ns"] {
        let ends = |rest: &str| !rest.starts_with(|next: char| next.is_alphanumeric());
        if unit.strip_prefix(word).is_some_and(ends) {
            return Some((number + gap + word.len(), "<time>"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(steady(text, Path::new("/tmp/copy"), "call_x"), expected);
    }

    #[test]
    fn what_differs_every_time_is_taken_out() {
        check("in /tmp/copy/src", "in <project>/src");
        check(
            "took 12 ms, 0.35s and 3 s.",
            "took <time>, <time> and <time>.",
        );
        check(
            "finished in 0.00s; 12 passed",
            "finished in <time>; 12 passed",
        );
        check("at 2026-11-16T07:12:29.716Z", "at <time>");
        check("v1.2s3 and 12 sheep", "v1.2s3 and 12 sheep");
        check(
            "artifact sha256:0123456789abcdef0123, call_x",
            "artifact <hash>, <call>",
        );
    }

    #[test]
    fn only_differences_are_shown() {
        assert_eq!(difference("a\nb\n", "a\nb\n"), None);
        let shown = difference("a\nb\n", "a\nc\n").unwrap();
        assert_eq!(shown, "@@ -1,2 +1,2 @@\n a\n-b\n+c\n");
    }
}
