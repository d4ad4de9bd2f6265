//! The notation of a patch: sections for files, and hunks of kept, removed and added lines.
//!
//! Taken as its own program takes it: a here-document or a code fence around the patch, white space
//! around the marker lines, empty lines that lost the space in front, and a first hunk without
//! `@@`. Line numbers behind `@@` say nothing. Everything else that is not the notation is refused
//! with its line, and so is a patch whose end is missing, because it may have been cut.

/// A patch as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    pub sections: Vec<Section>,
}

/// What is to happen to one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The line of its header in the patch, from 1.
    pub line: usize,
    pub path: String,
    pub action: Action,
}

/// The kinds of sections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A new file of these lines.
    Add(Vec<String>),
    Delete,
    Update {
        moved_to: Option<String>,
        hunks: Vec<Hunk>,
    },
}

/// A place in a file, and what changes there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hunk {
    /// Its first line in the patch, from 1.
    pub line: usize,
    /// Lines behind which the place is, the outer one first.
    pub anchors: Vec<String>,
    pub lines: Vec<HunkLine>,
    /// True if the place is the end of the file.
    pub at_end: bool,
    /// How many of the last lines are empty and without their space: they may be no part of it.
    pub loose: usize,
}

/// One line of a hunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HunkLine {
    pub kind: LineKind,
    pub text: String,
}

/// What happens to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineKind {
    Kept,
    Removed,
    Added,
}

/// Why a text is no patch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the patch: {problem}")]
pub struct ParseProblem {
    /// From 1.
    pub line: usize,
    pub problem: String,
}

const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";
const ADD: &str = "*** Add File:";
const DELETE: &str = "*** Delete File:";
const UPDATE: &str = "*** Update File:";
const MOVE: &str = "*** Move to:";
/// Beginnings of the lines that name a file.
pub(super) const HEADERS: [&str; 4] = [ADD, DELETE, UPDATE, MOVE];
const END_OF_FILE: &str = "*** End of File";

/// Reads a patch.
///
/// # Errors
/// When the text is not in the notation.
pub fn parse(text: &str) -> Result<Patch, ParseProblem> {
    let lines: Vec<&str> = text.lines().collect();
    let body = inside(&lines)?;
    let mut reader = Reader {
        lines: &lines,
        at: body.start,
        end: body.end,
    };
    let mut sections = Vec::new();
    while let Some(section) = reader.section()? {
        sections.push(section);
    }
    if sections.is_empty() {
        return Err(problem(body.start, "the patch names no file"));
    }
    Ok(Patch { sections })
}

fn problem(index: usize, problem: impl Into<String>) -> ParseProblem {
    ParseProblem {
        line: index + 1,
        problem: problem.into(),
    }
}

/// The lines between the markers.
fn inside(lines: &[&str]) -> Result<std::ops::Range<usize>, ParseProblem> {
    let is_blank = |line: &&str| line.trim().is_empty();
    let mut first = lines.iter().position(|line| !is_blank(line)).unwrap_or(0);
    let mut last = lines.iter().rposition(|line| !is_blank(line)).unwrap_or(0);
    if let Some(close) = lines.get(first).and_then(|line| wrapper(line)) {
        first += 1;
        if last >= first && lines[last].trim() == close {
            last -= 1;
        }
        while last > first && is_blank(&lines[last]) {
            last -= 1;
        }
    }
    if lines.get(first).is_none_or(|line| line.trim() != BEGIN) {
        return Err(problem(
            first,
            format!("a patch begins with the line `{BEGIN}`"),
        ));
    }
    if last <= first || lines[last].trim() != END {
        let words = format!("a patch ends with the line `{END}`; without it, it may have been cut");
        return Err(problem(last.max(first), words));
    }
    Ok(first + 1..last)
}

/// The line that closes what `line` opens: the word of a here-document, or a fence.
fn wrapper(line: &str) -> Option<&str> {
    let line = line.trim();
    if let Some(language) = line.strip_prefix("```") {
        return language
            .chars()
            .all(|c| c.is_ascii_alphanumeric())
            .then_some("```");
    }
    let opening = line
        .strip_prefix("apply_patch")
        .or_else(|| line.strip_prefix("applypatch"));
    let word = opening
        .unwrap_or(line)
        .trim_start()
        .strip_prefix("<<")?
        .trim();
    let quoted = |quote: char| word.strip_prefix(quote)?.strip_suffix(quote);
    let word = quoted('\'').or_else(|| quoted('"')).unwrap_or(word);
    let is_word = word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    (is_word && !word.is_empty()).then_some(word)
}

struct Reader<'a> {
    lines: &'a [&'a str],
    at: usize,
    end: usize,
}

impl<'a> Reader<'a> {
    fn line(&self) -> Option<&'a str> {
        (self.at < self.end).then(|| self.lines[self.at])
    }

    fn section(&mut self) -> Result<Option<Section>, ParseProblem> {
        while self.line().is_some_and(|line| line.trim().is_empty()) {
            self.at += 1;
        }
        let Some(line) = self.line() else {
            return Ok(None);
        };
        let at = self.at;
        self.at += 1;
        let (action, path) = if let Some(path) = header(line, ADD) {
            (Action::Add(self.added()), path)
        } else if let Some(path) = header(line, DELETE) {
            (Action::Delete, path)
        } else if let Some(path) = header(line, UPDATE) {
            (self.update(at)?, path)
        } else {
            let words =
                format!("`{ADD} PATH`, `{DELETE} PATH` or `{UPDATE} PATH` has to stand here");
            return Err(problem(at, words));
        };
        if path.is_empty() {
            return Err(problem(at, "the header names no path"));
        }
        Ok(Some(Section {
            line: at + 1,
            path: path.to_owned(),
            action,
        }))
    }

    /// The lines of a new file. Empty ones between two of them have lost their `+`.
    fn added(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut empty = 0;
        while let Some(line) = self.line() {
            match line.strip_prefix('+') {
                Some(text) => {
                    lines.extend(std::iter::repeat_n(String::new(), empty));
                    empty = 0;
                    lines.push(text.to_owned());
                }
                None if line.trim().is_empty() => empty += 1,
                None => break,
            }
            self.at += 1;
        }
        lines
    }

    fn update(&mut self, header_at: usize) -> Result<Action, ParseProblem> {
        let moved_to = self.line().and_then(|line| header(line, MOVE));
        if moved_to.is_some() {
            if moved_to == Some("") {
                return Err(problem(self.at, "the header names no path"));
            }
            self.at += 1;
        }
        let mut hunks: Vec<Hunk> = Vec::new();
        let mut is_closed = true;
        while let Some(line) = self.line() {
            let trimmed = line.trim_end();
            if trimmed == END_OF_FILE {
                match hunks.last_mut().filter(|hunk| !hunk.lines.is_empty()) {
                    Some(hunk) => hunk.at_end = true,
                    None => {
                        return Err(problem(
                            self.at,
                            format!("no lines stand before `{END_OF_FILE}`"),
                        ));
                    }
                }
                is_closed = true;
            } else if [ADD, DELETE, UPDATE]
                .iter()
                .any(|word| header(line, word).is_some())
            {
                break;
            } else if let Some(anchor) = anchor(line) {
                let is_nested =
                    !is_closed && hunks.last().is_some_and(|hunk| hunk.lines.is_empty());
                if !is_nested {
                    self.close(hunks.last())?;
                    hunks.push(Hunk {
                        line: self.at + 1,
                        ..Hunk::default()
                    });
                }
                if let (Some(text), Some(hunk)) = (anchor, hunks.last_mut()) {
                    hunk.anchors.push(text.to_owned());
                }
                is_closed = false;
            } else if line == NO_NEWLINE {
                // Said by other notations; the end of the file stays as it is.
            } else {
                let line = self.hunk_line(line)?;
                if is_closed {
                    // Between hunks an empty line is nothing.
                    if line.1 {
                        self.at += 1;
                        continue;
                    }
                    hunks.push(Hunk {
                        line: self.at + 1,
                        ..Hunk::default()
                    });
                    is_closed = false;
                }
                if let Some(hunk) = hunks.last_mut() {
                    hunk.loose = if line.1 { hunk.loose + 1 } else { 0 };
                    hunk.lines.push(line.0);
                }
            }
            self.at += 1;
        }
        self.close(hunks.last())?;
        if hunks.is_empty() && moved_to.is_none() {
            return Err(problem(header_at, "the section has no hunk"));
        }
        let moved_to = moved_to.map(str::to_owned);
        Ok(Action::Update { moved_to, hunks })
    }

    /// A hunk that is over has lines.
    fn close(&self, hunk: Option<&Hunk>) -> Result<(), ParseProblem> {
        match hunk {
            Some(hunk) if hunk.lines.len() == hunk.loose => {
                Err(problem(hunk.line - 1, "the hunk has no lines"))
            }
            _ => Ok(()),
        }
    }

    /// A line of a hunk, and whether it is empty and without its space.
    fn hunk_line(&self, line: &str) -> Result<(HunkLine, bool), ParseProblem> {
        let of = |kind, text: &str| HunkLine {
            kind,
            text: text.to_owned(),
        };
        let mut characters = line.chars();
        match characters.next() {
            None => Ok((of(LineKind::Kept, ""), true)),
            Some(' ') => Ok((of(LineKind::Kept, characters.as_str()), false)),
            Some('-') => Ok((of(LineKind::Removed, characters.as_str()), false)),
            Some('+') => Ok((of(LineKind::Added, characters.as_str()), false)),
            Some(_) => Err(problem(
                self.at,
                "a line of a hunk begins with a space (kept), `-` (removed) or `+` (added)",
            )),
        }
    }
}

const NO_NEWLINE: &str = "\\ No newline at end of file";

fn header<'a>(line: &'a str, word: &str) -> Option<&'a str> {
    line.trim().strip_prefix(word).map(str::trim)
}

/// What stands behind `@@`: nothing for line numbers and for the bare marker.
fn anchor(line: &str) -> Option<Option<&str>> {
    let rest = line.strip_prefix("@@")?;
    if rest.trim().is_empty() {
        return Some(None);
    }
    let text = rest.strip_prefix(' ')?;
    Some((!is_line_numbers(text)).then_some(text))
}

/// `-1,3 +1,4 @@`, whatever follows.
fn is_line_numbers(text: &str) -> bool {
    let is_range = |word: Option<&str>, sign: char| {
        word.and_then(|word| word.strip_prefix(sign))
            .is_some_and(|range| {
                !range.is_empty()
                    && range
                        .bytes()
                        .all(|byte| byte.is_ascii_digit() || byte == b',')
            })
    };
    let mut words = text.split_whitespace();
    is_range(words.next(), '-') && is_range(words.next(), '+') && words.next() == Some("@@")
}

impl Hunk {
    /// The lines that have to be in the file.
    pub fn old(&self) -> impl Iterator<Item = &str> {
        let old = self
            .lines
            .iter()
            .filter(|line| line.kind != LineKind::Added);
        old.map(|line| &*line.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(body: &str) -> String {
        format!("{BEGIN}\n{body}\n{END}")
    }

    /// The hunks of a patch of one file, as the notation would have them.
    fn hunks(body: &str) -> Vec<String> {
        let patch = parse(&wrapped(body)).unwrap();
        let Action::Update { hunks, .. } = &patch.sections[0].action else {
            panic!("no update");
        };
        let line = |line: &HunkLine| {
            let sign = match line.kind {
                LineKind::Kept => ' ',
                LineKind::Removed => '-',
                LineKind::Added => '+',
            };
            format!("{sign}{}", line.text)
        };
        let words = |hunk: &Hunk| {
            let lines: Vec<_> = hunk.lines.iter().map(line).collect();
            let end = if hunk.at_end { "$" } else { "" };
            format!("@{}|{}{end}", hunk.anchors.join("@"), lines.join("|"))
        };
        hunks.iter().map(words).collect()
    }

    fn refused(text: &str, line: usize, part: &str) {
        let found = parse(text).unwrap_err();
        assert!(
            found.line == line && found.problem.contains(part),
            "{text:?}: {found}"
        );
    }

    #[test]
    fn all_sections_are_read() {
        let text = "*** Add File: a b\n+1\n+\n*** Delete File: c\n*** Update File: d\n*** Move to: e\n@@\n-x\n+y";
        let patch = parse(&wrapped(text)).unwrap();
        let found: Vec<_> = patch
            .sections
            .iter()
            .map(|one| (one.line, &*one.path))
            .collect();
        assert_eq!(found, [(2, "a b"), (5, "c"), (6, "d")]);
        assert_eq!(
            patch.sections[0].action,
            Action::Add(vec!["1".into(), String::new()])
        );
        let Action::Update { moved_to, hunks } = &patch.sections[2].action else {
            panic!("no update");
        };
        assert_eq!(
            (moved_to.as_deref(), hunks.len(), hunks[0].line),
            (Some("e"), 1, 8)
        );
    }

    #[test]
    fn hunks_anchors_and_the_end() {
        let check = |body: &str, expected: &[&str]| {
            assert_eq!(
                hunks(&format!("*** Update File: a\n{body}")),
                expected,
                "{body:?}"
            );
        };
        check("-a\n+b", &["@|-a|+b"]);
        check("@@\n a\n-b\n@@ fn x()\n+c", &["@| a|-b", "@fn x()|+c"]);
        check("@@ class A\n@@   def f\n-b", &["@class A@  def f|-b"]);
        check("@@ -1,3 +1,4 @@ fn x()\n-b", &["@|-b"]);
        check("@@\n-b\n*** End of File", &["@|-b$"]);
        check("@@\n-b\n*** End of File\n\n@@\n-c", &["@|-b$", "@|-c"]);
        check("@@\n a\n\n-b\n", &["@| a| |-b| "]);
        check("-b\n\\ No newline at end of file\n+c", &["@|-b|+c"]);
        let patch = parse(&wrapped("*** Update File: a\n-b\n\n\n*** Delete File: c")).unwrap();
        let Action::Update { hunks, .. } = &patch.sections[0].action else {
            panic!("no update");
        };
        assert_eq!((hunks[0].lines.len(), hunks[0].loose), (3, 2));
    }

    #[test]
    fn what_is_around_a_patch_is_taken_off() {
        let plain = parse(&wrapped("*** Delete File: a")).unwrap().sections;
        for (before, after) in [
            ("<<'EOF'\n", "\nEOF\n"),
            ("<<\"END_1\"\n", "\nEND_1"),
            ("apply_patch <<EOF\n", "\nEOF"),
            ("```diff\n", "\n```\n"),
            ("\n\n  ", "  \n\n"),
        ] {
            let text = format!("{before}{}{after}", wrapped("*** Delete File: a"));
            let found = parse(&text).unwrap_or_else(|problem| panic!("{text:?}: {problem}"));
            let names = |sections: &[Section]| -> Vec<_> {
                sections
                    .iter()
                    .map(|one| (one.path.clone(), one.action.clone()))
                    .collect()
            };
            assert_eq!(names(&found.sections), names(&plain), "{text:?}");
        }
        let feeds = wrapped("*** Add File: a\n+x").replace('\n', "\r\n");
        assert_eq!(
            parse(&feeds).unwrap().sections[0].action,
            Action::Add(vec!["x".into()])
        );
    }

    #[test]
    fn what_is_no_patch_is_refused_with_its_line() {
        refused("", 1, "begins with");
        refused("hello", 1, "begins with");
        refused(
            "*** Begin Patch\n*** Delete File: a",
            2,
            "may have been cut",
        );
        refused("*** Begin Patch", 1, "may have been cut");
        refused(&wrapped(""), 2, "names no file");
        refused(&wrapped("hello"), 2, "has to stand here");
        refused(&wrapped("*** Update File: a"), 2, "no hunk");
        refused(&wrapped("*** Update File: a\n@@"), 3, "no lines");
        refused(
            &wrapped("*** Update File: a\n@@ x\n\n@@\n-a"),
            3,
            "no lines",
        );
        refused(
            &wrapped("*** Update File: a\n*** End of File"),
            3,
            "no lines stand before",
        );
        refused(
            &wrapped("*** Update File: a\n-a\nfoo"),
            4,
            "begins with a space",
        );
        refused(&wrapped("*** Update File:\n-a"), 2, "names no path");
        refused(
            &wrapped("*** Update File: a\n*** Move to: \n-a"),
            3,
            "names no path",
        );
        refused(&wrapped("*** Add File: a\n+x\nfoo"), 4, "has to stand here");
    }
}
