//! The lines by which runners name what failed.

use agent_protocol::payload::conversation::TestFailure;

/// Failures in the order of their lines; a test may come more than once.
pub(super) fn read(output: &str) -> Vec<TestFailure> {
    let mut reader = Reader::default();
    for line in output.lines() {
        reader.line(&plain(line));
    }
    reader.found
}

#[derive(Default)]
struct Reader {
    found: Vec<TestFailure>,
    /// What the next place in a file belongs to.
    open: Option<Open>,
    /// The file whose tests Jest names next.
    file: Option<String>,
    /// The numbered list of Mocha or PHPUnit.
    list: Option<List>,
    /// CTest lists what failed.
    ctest: bool,
}

/// A failure whose place comes in a later line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    /// `File "a.py", line 3, in test`
    Unittest,
    /// `a_test.go:3: text`
    Go,
    /// `❯ a.test.ts:3:5`
    Vitest,
    /// `at f (a.js:3:5)`
    Stack,
    /// `/a/ATest.php:3`
    Php,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum List {
    Mocha { in_title: bool },
    Php,
}

impl Reader {
    fn add(&mut self, test: Option<&str>, file: Option<&str>, line: Option<u64>) {
        let text = |text: &str| {
            Some(text.trim())
                .filter(|text| !text.is_empty())
                .map(str::to_owned)
        };
        let failure = TestFailure {
            test: test.and_then(text),
            file: file.and_then(text),
            line,
        };
        if failure.test.is_some() || failure.file.is_some() {
            self.found.push(failure);
        }
    }

    fn line(&mut self, line: &str) {
        let trimmed = line.trim();
        if self.place(trimmed) || self.numbered(line, trimmed) {
            return;
        }
        let _ = self.rust(trimmed)
            || self.python(line)
            || self.go(trimmed)
            || self.javascript(line, trimmed)
            || self.others(trimmed);
    }

    /// The place of the failure named before.
    fn place(&mut self, line: &str) -> bool {
        let Some(open) = self.open else { return false };
        let found = match open {
            Open::Unittest => unittest_place(line),
            Open::Go => file_and_line(line).filter(|(file, _)| file.ends_with(".go")),
            Open::Vitest => line.strip_prefix("❯ ").and_then(file_and_line),
            Open::Stack => stack_place(line),
            Open::Php => file_and_line(line).filter(|(file, _)| file.ends_with(".php")),
        };
        let Some((file, number)) = found else {
            return false;
        };
        if let Some(last) = self.found.last_mut() {
            last.file = Some(file.to_owned());
            last.line = Some(number);
        }
        // The innermost frame of a Python test comes last.
        if open != Open::Unittest {
            self.open = None;
        }
        true
    }

    fn rust(&mut self, line: &str) -> bool {
        if let Some(name) = line
            .strip_prefix("test ")
            .and_then(|rest| rest.strip_suffix(" ... FAILED"))
        {
            self.add(Some(name), None, None);
            return true;
        }
        if let Some(rest) = line.strip_prefix("thread '")
            && let Some((name, rest)) = rest.split_once('\'')
            && let Some((_, at)) = rest.split_once("panicked at ")
        {
            let at = at.rsplit_once(", ").map_or(at, |(_, at)| at);
            if let Some((file, number)) = file_and_line(at)
                && name != "main"
            {
                self.add(Some(name), Some(file), Some(number));
            }
            return true;
        }
        // nextest: `FAIL [   0.005s] (1/2) crate::binary tests::name`
        if let Some(rest) = line.strip_prefix("FAIL [")
            && let Some((_, rest)) = rest.split_once(']')
            && let Some(name) = rest.split_whitespace().last()
        {
            self.add(Some(name), None, None);
            return true;
        }
        false
    }

    fn python(&mut self, line: &str) -> bool {
        for mark in ["FAILED ", "ERROR "] {
            if let Some(rest) = line.strip_prefix(mark) {
                let name = rest.split(" - ").next().unwrap_or(rest).trim();
                let file = name.split("::").next().unwrap_or(name);
                if !file.ends_with(".py") || file.contains(' ') {
                    continue;
                }
                let test = name.split_once("::").map(|(_, test)| test);
                self.add(test, Some(file), None);
                self.take_pytest_line();
                return true;
            }
        }
        for mark in ["FAIL: ", "ERROR: "] {
            if let Some(rest) = line.strip_prefix(mark)
                && let Some((name, rest)) = rest.split_once(" (")
                && let Some((class, _)) = rest.split_once(')')
            {
                let test = if class.ends_with(name) {
                    class.to_owned()
                } else {
                    format!("{class}.{name}")
                };
                self.add(Some(&test), None, None);
                self.open = Some(Open::Unittest);
                return true;
            }
        }
        // pytest: `tests/test_a.py:12: AssertionError`, above the summary that names the test.
        if !line.starts_with(' ')
            && let Some((file, number)) = file_and_line(line)
            && file.ends_with(".py")
            && line
                .rsplit(": ")
                .next()
                .is_some_and(|error| !error.contains(' '))
        {
            self.add(None, Some(file), Some(number));
            return true;
        }
        false
    }

    /// Gives the test that was just named the line pytest printed for its file above.
    fn take_pytest_line(&mut self) {
        let Some(named) = self.found.last().cloned() else {
            return;
        };
        let is_its = |known: &TestFailure| known.test.is_none() && known.file == named.file;
        if named.test.is_some()
            && let Some(at) = self.found.iter().position(is_its)
        {
            let line = self.found.remove(at).line;
            if let Some(last) = self.found.last_mut() {
                last.line = line;
            }
        }
    }

    fn go(&mut self, line: &str) -> bool {
        let Some(rest) = line.strip_prefix("--- FAIL: ") else {
            return false;
        };
        let name = rest.split(" (").next().unwrap_or(rest);
        self.add(Some(name), None, None);
        self.open = Some(Open::Go);
        true
    }

    fn javascript(&mut self, line: &str, trimmed: &str) -> bool {
        // Vitest has the test behind the file, Jest in lines of its own.
        if let Some(rest) = trimmed.strip_prefix("FAIL ") {
            let rest = rest.trim();
            if let Some((file, test)) = rest.split_once(" > ") {
                let file = file.rsplit(' ').next().unwrap_or(file);
                self.add(Some(test), Some(file), None);
                self.open = Some(Open::Vitest);
                return true;
            }
            let file = rest.split(' ').next().unwrap_or(rest);
            if is_javascript(file) {
                self.file = Some(file.to_owned());
                if rest.contains(" [ ") {
                    self.add(None, Some(file), None);
                }
                return true;
            }
            return false;
        }
        if let Some(name) = line.strip_prefix("  ● ") {
            let file = self.file.clone();
            match name.trim() {
                "Console" => {}
                "Test suite failed to run" => self.add(None, file.as_deref(), None),
                name => {
                    self.add(Some(name), file.as_deref(), None);
                    self.open = Some(Open::Stack);
                }
            }
            return true;
        }
        if let Some(rest) = trimmed.strip_suffix(" failing")
            && rest.parse::<u64>().is_ok()
        {
            self.list = Some(List::Mocha { in_title: false });
            return true;
        }
        if let Some(name) = trimmed.strip_prefix("✖ ") {
            let name = name.rsplit_once(" (").map_or(name, |(name, _)| name);
            if !name.starts_with("failing tests") {
                self.add(Some(name), None, None);
            }
            return true;
        }
        false
    }

    fn numbered(&mut self, line: &str, trimmed: &str) -> bool {
        let Some(list) = self.list else { return false };
        let number = trimmed.split_once(") ");
        let title = number.filter(|(number, _)| number.parse::<u32>().is_ok());
        match (list, title) {
            (List::Mocha { .. }, Some((_, title))) => {
                self.add(Some(title.trim_end_matches(':')), None, None);
                let in_title = !title.ends_with(':');
                self.list = Some(List::Mocha { in_title });
                self.open = (!in_title).then_some(Open::Stack);
                true
            }
            (List::Mocha { in_title: true }, None) if !trimmed.is_empty() => {
                if let Some(last) = self.found.last_mut()
                    && let Some(test) = &mut last.test
                {
                    test.push_str(" › ");
                    test.push_str(trimmed.trim_end_matches(':'));
                }
                if trimmed.ends_with(':') {
                    self.list = Some(List::Mocha { in_title: false });
                    self.open = Some(Open::Stack);
                }
                true
            }
            (List::Php, Some((_, title))) if title.contains("::") && !line.starts_with(' ') => {
                self.add(Some(title), None, None);
                self.open = Some(Open::Php);
                true
            }
            _ => false,
        }
    }

    fn others(&mut self, line: &str) -> bool {
        // RSpec: `rspec ./spec/a_spec.rb:12 # Sum adds`
        if let Some(rest) = line.strip_prefix("rspec ")
            && let Some((place, name)) = rest.split_once(" # ")
        {
            let (file, number) =
                file_and_line(place).map_or((place, None), |(file, line)| (file, Some(line)));
            self.add(Some(name), Some(file), number);
            return true;
        }
        if line.starts_with("There was ") || line.starts_with("There were ") {
            let is_bad = line.contains(" failure") || line.contains(" error");
            self.list = is_bad.then_some(List::Php);
            return is_bad;
        }
        if line == "The following tests FAILED:" {
            self.ctest = true;
            return true;
        }
        if self.ctest {
            let name = line
                .split_once(" - ")
                .filter(|(number, _)| number.parse::<u32>().is_ok());
            match name {
                Some((_, name)) => {
                    let name = name.rsplit_once(" (").map_or(name, |(name, _)| name);
                    self.add(Some(name), None, None);
                }
                None => self.ctest = false,
            }
            return true;
        }
        // The Test Anything Protocol, as bats and prove speak it.
        if let Some(rest) = line.strip_prefix("not ok ")
            && !rest.contains("# TODO")
            && !rest.contains("# SKIP")
        {
            let name = rest.split_once(" - ").map_or_else(
                || rest.split_once(' ').map_or(rest, |(_, name)| name),
                |(_, name)| name,
            );
            self.add(Some(name), None, None);
            return true;
        }
        false
    }
}

/// `File "tests/test_a.py", line 12, in test_x`
fn unittest_place(line: &str) -> Option<(&str, u64)> {
    let (file, rest) = line.strip_prefix("File \"")?.split_once("\", line ")?;
    let number = rest.split(',').next()?;
    Some((file, number.parse().ok()?))
}

/// `at Context.<anonymous> (test/a.js:12:10)`, outside of packages.
fn stack_place(line: &str) -> Option<(&str, u64)> {
    let rest = line.strip_prefix("at ")?;
    let place = rest.rsplit_once('(').map_or(rest, |(_, place)| place);
    let place = place.trim_end_matches(')');
    let place = place.strip_prefix("file://").unwrap_or(place);
    file_and_line(place).filter(|(file, _)| is_javascript(file) && !file.contains("node_modules/"))
}

fn is_javascript(file: &str) -> bool {
    let ending = file.rsplit('.').next().unwrap_or_default();
    matches!(
        ending,
        "js" | "jsx" | "ts" | "tsx" | "mjs" | "cjs" | "mts" | "cts"
    )
}

/// `path:12` or `path:12:5`, with or without something behind.
fn file_and_line(text: &str) -> Option<(&str, u64)> {
    let text = text.split(' ').next()?;
    let mut from = 0;
    // A name may have colons of its own.
    while let Some(at) = text[from..].find(':') {
        let at = from + at;
        let digits: String = text[at + 1..]
            .chars()
            .take_while(char::is_ascii_digit)
            .collect();
        if let Ok(number) = digits.parse()
            && at > 0
        {
            return Some((&text[..at], number));
        }
        from = at + 1;
    }
    None
}

/// The line without colours and other commands to a terminal.
fn plain(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        if character != '\u{1b}' {
            text.push(character);
            continue;
        }
        if characters.as_str().starts_with('[') {
            // Up to the letter that ends it.
            for inner in characters.by_ref().skip(1) {
                if inner.is_ascii_alphabetic() {
                    break;
                }
            }
        }
    }
    text.truncate(text.trim_end().len());
    text
}
