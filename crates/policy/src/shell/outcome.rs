//! Outcome of each command in a script, as far as the end of the script tells it.
//!
//! A script has one exit status, and bash reports the statuses of its last pipeline. What follows from
//! these for a command is its [`Outcome`]; what does not follow is not guessed.

use std::path::{Path, PathBuf};

use brush_parser::ast;

use super::analysis::normalise;
use super::parse::parse;
use super::walk::analyse_parsed;
use super::word::{Surroundings, Word, scan};
use super::wrappers::{self, Inner};
use super::{Directories, Place, Start, segments};

/// Known outcome of a command in a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// With this status. In a chain that failed it is that of the chain: the command failed, or was
    /// not reached.
    Status(i32),
    /// It was not reached.
    NotRun,
    /// Nothing is known, and why.
    Unknown(&'static str),
}

/// A simple command of a script and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// Its words without wrappers such as `timeout`; a word only the shell knows has a `$` in it.
    pub words: Vec<String>,
    /// The directory it ran in, if that is known.
    pub directory: Option<PathBuf>,
    pub outcome: Outcome,
}

/// End of a script.
#[derive(Clone, Copy, Debug)]
pub struct ScriptEnd<'a> {
    pub exit_code: i32,
    /// The statuses of the members of its last pipeline, if the shell reported them.
    pub pipe_status: Option<&'a [i32]>,
    /// Its start.
    pub directory: &'a Path,
}

const GOES_ON: &str = "the script continues after it and discards its exit status";
const IN_PIPELINE: &str = "only the exit status of the last command in its pipeline is known";
const CUT_OFF: &str = "it was ended when the next command of its pipeline stopped reading";
const HIDDEN: &str = "`||` hides its exit status";
const IN_BACKGROUND: &str = "the script does not wait for it";
const ELSEWHERE: &str = "it is in a part of the script whose exit status is not known";
const UNREAD: &str = "the script could not be read";
const UNKNOWN_WORDS: &str = "some of its arguments are only known to the shell";

/// The status of a process that SIGPIPE ended.
const CLOSED_PIPE: i32 = 128 + 13;
/// Scripts inside scripts that are looked into.
const MOST_DEPTH: usize = 4;

/// Every simple command of `script` with what its end tells about it.
#[must_use]
pub fn judge(script: &str, end: &ScriptEnd<'_>) -> Vec<Judged> {
    let mut judge = Judge {
        found: Vec::new(),
        directory: Some(end.directory.to_owned()),
        errexit: false,
        pipefail: false,
        depth: 0,
    };
    let Ok(program) = parse(script) else {
        let unread = |words: Vec<String>| Judged {
            words,
            directory: None,
            outcome: Outcome::Unknown(UNREAD),
        };
        return segments(script).into_iter().map(unread).collect();
    };
    let status = Known::Is(end.exit_code);
    judge.list(&items(&program), status, end.pipe_status);
    judge.add_the_rest(script, &program, end.directory);
    judge.found
}

/// The words of every simple command that must have succeeded when `script` exits with 0 and nothing
/// more is known: the last command of each pipeline of a final `&&` chain. `cargo test | tail` speaks for
/// `tail` alone, and `cargo test || true` for nothing. Empty when the script could not be read.
#[must_use]
pub fn commands_behind_exit(script: &str) -> Vec<Vec<String>> {
    let end = ScriptEnd {
        exit_code: 0,
        pipe_status: None,
        directory: Path::new("/"),
    };
    let judged = judge(script, &end).into_iter();
    let decided = judged.filter(|judged| judged.outcome == Outcome::Status(0));
    decided.map(|judged| judged.words).collect()
}

/// True if the last thing a script does is a pipeline of more than one command, whose statuses bash can
/// be asked for without the script noticing.
pub(super) fn ends_in_plain_pipeline(script: &str, program: &ast::Program) -> bool {
    if script.contains("trap") || script.contains("BASH_ENV") {
        return false;
    }
    let items = items(program);
    let Some(ast::CompoundListItem(last, separator)) = items.last() else {
        return false;
    };
    !matches!(separator, ast::SeparatorOperator::Async) && last_pipeline(last).seq.len() > 1
}

fn items(program: &ast::Program) -> Vec<&ast::CompoundListItem> {
    let lists = program.complete_commands.iter();
    lists.flat_map(|list| &list.0).collect()
}

fn last_pipeline(list: &ast::AndOrList) -> &ast::Pipeline {
    match list.additional.last() {
        Some(ast::AndOr::And(pipeline) | ast::AndOr::Or(pipeline)) => pipeline,
        None => &list.first,
    }
}

/// The status of a part of a script.
#[derive(Clone, Copy)]
enum Known {
    Is(i32),
    /// It was not reached.
    Never,
    No(&'static str),
}

struct Judge {
    found: Vec<Judged>,
    directory: Option<PathBuf>,
    errexit: bool,
    pipefail: bool,
    depth: usize,
}

impl Judge {
    /// Commands one after the other, of which the last decides.
    fn list(
        &mut self,
        items: &[&ast::CompoundListItem],
        status: Known,
        pipe_status: Option<&[i32]>,
    ) {
        for (at, ast::CompoundListItem(item, separator)) in items.iter().enumerate() {
            let is_last = at + 1 == items.len();
            if matches!(separator, ast::SeparatorOperator::Async) {
                self.and_or(item, Known::No(IN_BACKGROUND), None);
            } else if is_last {
                self.and_or(item, status, pipe_status);
            } else if self.errexit && item.additional.is_empty() && !item.first.bang {
                // The script ends at the first command that fails.
                self.and_or(item, status, None);
            } else {
                self.and_or(item, Known::No(GOES_ON), None);
            }
        }
    }

    fn and_or(&mut self, list: &ast::AndOrList, status: Known, pipe_status: Option<&[i32]>) {
        let mut pipelines = vec![&list.first];
        let mut hidden = false;
        for (at, more) in list.additional.iter().enumerate() {
            match more {
                ast::AndOr::And(pipeline) => pipelines.push(pipeline),
                // `… || exit 1` hides nothing.
                ast::AndOr::Or(pipeline)
                    if at + 1 == list.additional.len() && only_fails(pipeline) => {}
                ast::AndOr::Or(pipeline) => {
                    hidden = true;
                    pipelines.push(pipeline);
                }
            }
        }
        if hidden {
            let status = match status {
                Known::No(why) => Known::No(why),
                _ => Known::No(HIDDEN),
            };
            for pipeline in pipelines {
                self.pipeline(pipeline, status, None);
            }
            return;
        }
        let Some((last, earlier)) = pipelines.split_last() else {
            return;
        };
        // Another number of statuses than members means that the last pipeline was not reached.
        let members = last.seq.len();
        let reached = match (status, pipe_status) {
            (Known::Is(0), _) => Some(true),
            (Known::Is(_), Some(_)) if earlier.is_empty() => Some(true),
            (Known::Is(_), Some(statuses)) if statuses.len() != members => Some(false),
            (Known::Is(_), Some(_)) if earlier.iter().all(|one| one.seq.len() != members) => {
                Some(true)
            }
            _ => None,
        };
        let before = match (status, reached) {
            (Known::Is(_), Some(true)) => Known::Is(0),
            _ => status,
        };
        for pipeline in earlier {
            self.pipeline(pipeline, before, None);
        }
        match reached {
            Some(false) => self.pipeline(last, Known::Never, None),
            Some(true) => self.pipeline(last, status, pipe_status),
            // The statuses may be those of an earlier pipeline of the same length.
            None => self.pipeline(last, status, None),
        }
    }

    fn pipeline(&mut self, pipeline: &ast::Pipeline, status: Known, pipe_status: Option<&[i32]>) {
        let members = pipeline.seq.len();
        let known = pipe_status.filter(|known| members > 1 && known.len() == members);
        let status = match status {
            Known::Is(code) if pipeline.bang => Known::Is(i32::from(code == 0)),
            other => other,
        };
        for (at, command) in pipeline.seq.iter().enumerate() {
            let own = match (status, known) {
                (Known::Never | Known::No(_), _) => status,
                (_, Some(known)) if known[at] == CLOSED_PIPE && at + 1 < members => {
                    Known::No(CUT_OFF)
                }
                (_, Some(known)) => Known::Is(known[at]),
                (Known::Is(0), None) if self.pipefail => status,
                (Known::Is(_), None) if members > 1 && self.pipefail => Known::No(IN_PIPELINE),
                (Known::Is(_), None) if at + 1 == members => status,
                (Known::Is(_), None) => Known::No(IN_PIPELINE),
            };
            // Every member of a pipeline is a process of its own.
            let outside = (members > 1).then(|| self.directory.clone());
            self.command(command, own);
            if let Some(outside) = outside {
                self.directory = outside;
            }
        }
    }

    fn command(&mut self, command: &ast::Command, status: Known) {
        match command {
            ast::Command::Simple(simple) => self.simple(simple, status),
            ast::Command::Compound(ast::CompoundCommand::Subshell(shell), _) => {
                let outside = (self.directory.clone(), self.errexit, self.pipefail);
                let items: Vec<&ast::CompoundListItem> = shell.list.0.iter().collect();
                self.list(&items, status, None);
                (self.directory, self.errexit, self.pipefail) = outside;
            }
            ast::Command::Compound(ast::CompoundCommand::BraceGroup(group), _) => {
                let items: Vec<&ast::CompoundListItem> = group.list.0.iter().collect();
                self.list(&items, status, None);
            }
            // Found again as part of the whole script; see `add_the_rest`.
            _ => self.directory = None,
        }
    }

    fn simple(&mut self, command: &ast::SimpleCommand, status: Known) {
        let surroundings = Surroundings::default();
        let mut words: Vec<Word> = Vec::new();
        if let Some(name) = &command.word_or_name {
            words.push(scan(&name.value, &surroundings).word);
        }
        for item in command.suffix.iter().flat_map(|suffix| &suffix.0) {
            if let ast::CommandPrefixOrSuffixItem::Word(word) = item {
                words.push(scan(&word.value, &surroundings).word);
            }
        }
        // `timeout 60 cargo test` succeeds when `cargo test` does.
        for _ in 0..MOST_DEPTH {
            let Some(unwrapped) = wrappers::unwrap(&words) else {
                break;
            };
            let shell = words.first().and_then(Word::text);
            let is_shell = shell.is_some_and(wrappers::is_shell);
            match <[Inner; 1]>::try_from(unwrapped.inner) {
                Ok([Inner::Words(inner)])
                    if unwrapped.transparent && !unwrapped.appends_arguments =>
                {
                    words = inner;
                }
                Ok([Inner::Script(script)]) if is_shell && runs(&words) => {
                    return self.script(&script, status);
                }
                _ => break,
            }
        }
        self.follow(&words);
        let is_known = words.iter().all(|word| word.text().is_some());
        let text = |word: &Word| word.sketch().replace(super::word::UNKNOWN, "$");
        let outcome = match status {
            Known::Never => Outcome::NotRun,
            Known::No(why) => Outcome::Unknown(why),
            Known::Is(_) if !is_known => Outcome::Unknown(UNKNOWN_WORDS),
            Known::Is(code) => Outcome::Status(code),
        };
        self.found.push(Judged {
            words: words.iter().map(text).collect(),
            directory: self.directory.clone(),
            outcome,
        });
    }

    /// A script that a shell of its own runs, as in `sh -c '…'`.
    fn script(&mut self, script: &str, status: Known) {
        if self.depth == MOST_DEPTH {
            return;
        }
        let Ok(program) = parse(script) else { return };
        let outside = (self.directory.clone(), self.errexit, self.pipefail);
        (self.errexit, self.pipefail) = (false, false);
        self.depth += 1;
        self.list(&items(&program), status, None);
        self.depth -= 1;
        (self.directory, self.errexit, self.pipefail) = outside;
    }

    /// Takes in what a command changes for those behind it.
    fn follow(&mut self, words: &[Word]) {
        let texts: Option<Vec<&str>> = words.iter().map(Word::text).collect();
        match texts.as_deref() {
            Some(["cd", to]) if !to.starts_with(['-', '~']) => {
                self.directory = self.directory.as_ref().map(|at| normalise(&at.join(to)));
            }
            Some(["cd" | "pushd" | "popd", ..]) => self.directory = None,
            Some(["set", options @ ..]) => self.set(options),
            None if words.first().and_then(Word::text) == Some("cd") => self.directory = None,
            _ => {}
        }
    }

    fn set(&mut self, options: &[&str]) {
        let mut options = options.iter();
        while let Some(option) = options.next() {
            let Some(letters) = option.strip_prefix(['-', '+']) else {
                return;
            };
            let on = option.starts_with('-');
            if letters.contains('e') {
                self.errexit = on;
            }
            if letters.contains('o') {
                match options.next().copied() {
                    Some("errexit") => self.errexit = on,
                    Some("pipefail") => self.pipefail = on,
                    _ => {}
                }
            }
        }
    }

    /// Commands inside loops, conditions, functions and substitutions: they may have run.
    fn add_the_rest(&mut self, script: &str, program: &ast::Program, directory: &Path) {
        let start = Start {
            directory: directory.to_owned(),
            home: PathBuf::from("/"),
            is_directory: &|_| None,
        };
        let commands = analyse_parsed(script, Ok(program), &start).commands;
        for command in &commands {
            // `command -v pytest` starts nothing.
            if let Place::Wrapped(by) = command.place
                && !commands.get(by).is_some_and(|wrapper| wrapper.transparent)
            {
                continue;
            }
            let text = |word: &Word| word.sketch().replace(super::word::UNKNOWN, "$");
            let words: Vec<String> = command.words.iter().map(text).collect();
            if words.is_empty() || self.found.iter().any(|found| found.words == words) {
                continue;
            }
            let directory = match &command.directories {
                Directories::Known(known) => <[PathBuf; 1]>::try_from(known.clone()).ok(),
                Directories::Unknown => None,
            };
            self.found.push(Judged {
                words,
                directory: directory.map(|[only]| only),
                outcome: Outcome::Unknown(ELSEWHERE),
            });
        }
    }
}

/// True unless a shell is told to read its script only.
fn runs(words: &[Word]) -> bool {
    let options = words.iter().skip(1).map(Word::sketch);
    let mut options = options.take_while(|word| word.starts_with(['-', '+']) || *word == "noexec");
    options.all(|word| word.starts_with("--") || !(word.contains('n') && word != "-o"))
}

/// `exit 1`, `false`: what stands behind `||` and does not make up for a failure.
fn only_fails(pipeline: &ast::Pipeline) -> bool {
    let [ast::Command::Simple(command)] = pipeline.seq.as_slice() else {
        return false;
    };
    let name = command.word_or_name.as_ref().map(|word| &*word.value);
    let mut words = command.suffix.iter().flat_map(|suffix| &suffix.0);
    match (name, words.next(), words.next()) {
        (Some("false"), None, None) => true,
        (Some("exit"), None, None) => true,
        (Some("exit"), Some(ast::CommandPrefixOrSuffixItem::Word(code)), None) => {
            code.value.parse::<u8>().is_ok_and(|code| code != 0)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::analyse;
    use super::*;

    fn behind(script: &str, expected: &[&str]) {
        let found: Vec<String> = commands_behind_exit(script)
            .iter()
            .map(|words| words.join(" "))
            .collect();
        assert_eq!(found, expected, "{script}");
    }

    #[test]
    fn an_exit_code_speaks_for_what_it_depends_on() {
        behind("cargo test", &["cargo test"]);
        behind("cd web && npm test", &["cd web", "npm test"]);
        behind("cargo test 2>&1 | tail -30", &["tail -30"]);
        behind("cargo test || true", &[]);
        behind("cargo test; echo done", &["echo done"]);
        behind("! cargo test", &[]);
        behind("cargo test &", &[]);
        behind("timeout 60 cargo test -p 'a b'", &["cargo test -p a b"]);
        behind("FOO=1 sh test.sh", &["sh test.sh"]);
        behind("(cargo test)", &["cargo test"]);
        behind("cargo test $(x)", &[]);
        behind("if", &[]);
        behind(
            "set -e; cargo test; echo done",
            &["cargo test", "echo done"],
        );
        behind(
            "set -o pipefail; cargo test | tail",
            &["cargo test", "tail"],
        );
        behind("bash -lc 'cargo test'", &["cargo test"]);
        behind("cargo test || exit 1", &["cargo test"]);
    }

    /// Outcome of the command that begins with `t`.
    fn check(script: &str, exit_code: i32, pipe_status: &[i32], expected: &str) {
        let end = ScriptEnd {
            exit_code,
            pipe_status: (!pipe_status.is_empty()).then_some(pipe_status),
            directory: Path::new("/p"),
        };
        let judged = judge(script, &end);
        let found: Vec<String> = judged
            .iter()
            .filter(|judged| judged.words.first().is_some_and(|word| word == "t"))
            .map(|judged| match judged.outcome {
                Outcome::Status(code) => code.to_string(),
                Outcome::NotRun => "not run".to_owned(),
                Outcome::Unknown(_) => "unknown".to_owned(),
            })
            .collect();
        assert_eq!(found.join(","), expected, "{script}: {judged:?}");
    }

    #[test]
    fn members_of_the_last_pipeline_are_judged_by_their_own_status() {
        check("t | tail", 0, &[1, 0], "1");
        check("t | tail", 0, &[0, 0], "0");
        check("t | tail", 0, &[], "unknown");
        check("t | head -1", 0, &[141, 0], "unknown");
        check("cd x && t | tail", 1, &[1], "not run");
        check("cd x && t | tail", 0, &[2, 0], "2");
        check("cd x && t | tail", 1, &[0, 1], "0");
        check("a | b && t | tail", 1, &[0, 1], "unknown");
        check("set -o pipefail; t | tail", 1, &[1, 0], "1");
        check("timeout 9 t 2>&1 | tee o", 0, &[124, 0], "124");
        check("! t | tail", 1, &[3, 0], "3");
    }

    #[test]
    fn what_nobody_kept_is_not_known() {
        check("t; echo $?", 0, &[], "unknown");
        check("t > out; tail out", 0, &[], "unknown");
        check("t || true", 0, &[], "unknown");
        check("t && echo yes || echo no", 0, &[], "unknown");
        check("t & wait", 0, &[], "unknown");
        check("(t | tail)", 0, &[], "unknown");
        check("sh -c 't | tail'", 0, &[], "unknown");
        check("if t; then echo yes; fi", 0, &[], "unknown");
        check("for i in 1 2; do t; done", 0, &[], "unknown");
        check("out=$(t); echo done", 0, &[], "unknown");
        check("t \"$ARGUMENTS\"", 0, &[], "unknown");
        check("sh -c 't'", 1, &[], "1");
        check("(cd x && t)", 1, &[], "1");
        check("{ t; }", 0, &[], "0");
        check("env A=1 t", 3, &[], "3");
        check("t && echo ok", 0, &[], "0");
        check("set -e\nt\necho ok", 1, &[], "1");
        check("command -v t", 0, &[], "");
    }

    #[test]
    fn the_directory_is_followed() {
        let end = ScriptEnd {
            exit_code: 0,
            pipe_status: None,
            directory: Path::new("/p"),
        };
        let of = |script: &str| {
            let mut found = judge(script, &end).into_iter();
            found.find(|judged| judged.words == ["t"])?.directory
        };
        assert_eq!(of("cd a && t"), Some("/p/a".into()));
        assert_eq!(of("cd a; cd ../b && t"), Some("/p/b".into()));
        assert_eq!(of("(cd a); t"), Some("/p".into()));
        assert_eq!(of("cd \"$x\" && t"), None);
        assert_eq!(of("sh -c 'cd a && t'"), Some("/p/a".into()));
    }

    #[test]
    fn a_last_pipeline_is_asked_for() {
        for (script, expected) in [
            ("a | b", true),
            ("cd x && a |& b", true),
            ("a | b; c", false),
            ("a | b &", false),
            ("a", false),
            ("trap 'echo bye' EXIT; a | b", false),
        ] {
            let start = Start {
                directory: PathBuf::from("/p"),
                home: PathBuf::from("/"),
                is_directory: &|_| None,
            };
            let analysis = analyse(script, &start);
            assert_eq!(analysis.ends_in_pipeline, expected, "{script}");
        }
    }
}
