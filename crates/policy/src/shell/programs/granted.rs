//! Commands that do more than read, with flags and operands of which it is known what they do (`granted.toml`).

use super::Arguments;
use super::table::granted;
use crate::shell::analysis::Directories;
use crate::shell::word::Word;

/// A command of `granted.toml`, used only with flags and operands that stand there.
pub(crate) struct Granted {
    /// Its sub-commands, and the program in front: `git stash push`.
    pub(crate) name: String,
    /// The directories it works in.
    pub(crate) directories: Directories,
    pub(crate) operands: Vec<String>,
    /// Flags with their values.
    pub(crate) values: Vec<(String, String)>,
}

/// The command as one of `granted.toml`.
pub(crate) fn judge_granted(words: &[Word], directories: &Directories) -> Option<Granted> {
    let name = words.first().and_then(Word::plain_text)?;
    let program = granted(name)?;
    let mut arguments = Arguments::new(name, directories);
    arguments
        .judge(program, words.get(1..).unwrap_or_default())
        .ok()?;
    Some(Granted {
        operands: arguments.texts,
        values: arguments.values,
        name: arguments.name,
        directories: arguments.directories,
    })
}
