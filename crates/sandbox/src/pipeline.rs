//! The exit status of every member of a script's last pipeline, as bash itself reports it.
//!
//! Bash reads a few lines before the script ([`REPORTING`]): they set an EXIT trap, and take away all
//! that led to them. The trap writes `PIPESTATUS` to a file in the private temporary directory whose
//! name nothing but the shell knows, so that no program in the pipeline can write it instead. A script
//! that sets a trap of its own, replaces the shell or is killed reports nothing, and nothing is known
//! then.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use agent_fs::Dir;

/// The name of the variable that makes bash read the lines, and the place it reads them from.
pub(crate) const READ_FIRST: (&str, &str) = ("BASH_ENV", "/proc/self/fd/0");

/// Nothing of this is seen by the script: a trace of it is thrown away, and a failure means nothing.
const REPORTING: &str = r#"trap '{ builtin printf "%s\n" "${PIPESTATUS[@]}" >|FILE; set +x; } 2>/dev/null || :' EXIT
unset BASH_ENV
exec </dev/null
"#;

/// No pipeline is longer.
const MOST_BYTES: u64 = 4096;

/// The file a report will be in, seen from outside.
#[derive(Debug)]
pub(crate) struct PipelineReport {
    file: PathBuf,
}

impl PipelineReport {
    /// Prelude for bash, and the report it will write. `inside` is the private directory as the command sees it.
    /// `None` if no report is possible.
    pub(crate) fn ask(private: &Path, inside: &Path) -> Option<(Vec<u8>, Self)> {
        let mut random = [0; 16];
        File::open("/dev/urandom")
            .and_then(|mut source| source.read_exact(&mut random))
            .ok()?;
        let number: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let name = format!(".pipeline-{number}");
        // It stands unquoted in a quoted trap.
        let inside = inside.join(&name);
        let inside = inside.to_str()?;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
        if !inside.bytes().all(is_plain) {
            return None;
        }
        let prelude = REPORTING.replace("FILE", inside).into_bytes();
        let file = private.join(name);
        Some((prelude, Self { file }))
    }

    /// The report, if there is one.
    pub(crate) fn read(&self) -> Option<Vec<i32>> {
        // The directory belonged to the command: what is there must not make us wait or follow.
        let private = Dir::open(self.file.parent()?).ok()?;
        let name = Path::new(self.file.file_name()?);
        let bytes = private.read(name, MOST_BYTES + 1).ok()?;
        if bytes.len() as u64 > MOST_BYTES {
            return None;
        }
        let _ = private.remove_file(name);
        parse(std::str::from_utf8(&bytes).ok()?)
    }
}

fn parse(text: &str) -> Option<Vec<i32>> {
    let numbers: Result<Vec<i32>, _> = text.lines().map(str::parse).collect();
    let numbers = numbers.ok().filter(|numbers| !numbers.is_empty())?;
    let is_status = |number: &i32| (0..=255).contains(number);
    numbers.iter().all(is_status).then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_list_of_statuses_is_a_report() {
        assert_eq!(parse("1\n0\n"), Some(vec![1, 0]));
        assert_eq!(parse(""), None);
        assert_eq!(parse("0\nno\n"), None);
        assert_eq!(parse("256\n"), None);
    }

    #[test]
    fn a_directory_that_would_need_quotes_is_not_asked() {
        let private = Path::new("/private");
        assert!(PipelineReport::ask(private, Path::new("/tmp")).is_some());
        assert!(PipelineReport::ask(private, Path::new("/it's here")).is_none());
    }
}
