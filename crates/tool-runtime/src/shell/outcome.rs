//! Which commands a script's exit code speaks for.

use brush_parser::ast;

use super::parse::parse;
use super::word::{Surroundings, Word, scan};
use super::wrappers::{self, Inner};

/// The words of every simple command that must have succeeded when `script` exits with 0: the last
/// command of each pipeline of a final `&&` chain. `cargo test | tail` speaks for `tail` alone, and
/// `cargo test || true` for nothing. Empty when the script could not be read.
#[must_use]
pub fn commands_behind_exit(script: &str) -> Vec<Vec<String>> {
    let Ok(program) = parse(script) else {
        return Vec::new();
    };
    let Some(ast::CompoundListItem(last, separator)) = program
        .complete_commands
        .last()
        .and_then(|list| list.0.last())
    else {
        return Vec::new();
    };
    if matches!(separator, ast::SeparatorOperator::Async) {
        return Vec::new();
    }
    let mut pipelines = vec![&last.first];
    for more in &last.additional {
        match more {
            ast::AndOr::And(pipeline) => pipelines.push(pipeline),
            ast::AndOr::Or(_) => return Vec::new(),
        }
    }
    pipelines.into_iter().filter_map(deciding_words).collect()
}

fn deciding_words(pipeline: &ast::Pipeline) -> Option<Vec<String>> {
    if pipeline.bang {
        return None;
    }
    let ast::Command::Simple(command) = pipeline.seq.last()? else {
        return None;
    };
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
    for _ in 0..4 {
        let Some(unwrapped) = wrappers::unwrap(&words).filter(|unwrapped| unwrapped.transparent)
        else {
            break;
        };
        match <[Inner; 1]>::try_from(unwrapped.inner) {
            Ok([Inner::Words(inner)]) => words = inner,
            _ => break,
        }
    }
    words
        .iter()
        .map(|word| word.text().map(str::to_owned))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::commands_behind_exit;

    fn check(script: &str, expected: &[&str]) {
        let found: Vec<String> = commands_behind_exit(script)
            .iter()
            .map(|words| words.join(" "))
            .collect();
        assert_eq!(found, expected, "{script}");
    }

    #[test]
    fn an_exit_code_speaks_for_what_it_depends_on() {
        check("cargo test", &["cargo test"]);
        check("cd web && npm test", &["cd web", "npm test"]);
        check("cargo test 2>&1 | tail -30", &["tail -30"]);
        check("cargo test || true", &[]);
        check("cargo test; echo done", &["echo done"]);
        check("! cargo test", &[]);
        check("cargo test &", &[]);
        check("timeout 60 cargo test -p 'a b'", &["cargo test -p a b"]);
        check("FOO=1 sh test.sh", &["sh test.sh"]);
        check("(cargo test)", &[]);
        check("cargo test $(x)", &[]);
        check("if", &[]);
    }
}
