//! Placeholders of masked secrets in what a model wants written: they stand for their values or the
//! call is refused, so that none becomes content.

use agent_protocol::Code;
use agent_tool_runtime::{RuntimeContext, ValidationFailure};

use crate::file::{self, Snapshot};
use crate::path::{Access, Roots, open_file};

/// Larger files are not looked through for a secret.
const LARGEST_SOURCE: u64 = 16 << 20;

/// `text` with the values of the placeholders in it. A value that this process does not know is
/// looked for in the file that is changed, in the files this session has seen, and in the images
/// and outputs it keeps.
pub(crate) fn reveal(
    text: String,
    field: &str,
    target: Option<&Snapshot>,
    roots: &Roots,
    context: &RuntimeContext<'_>,
) -> Result<String, ValidationFailure> {
    let decoded = |snapshot: &Snapshot| {
        let text = snapshot.encoding.decode(&snapshot.content);
        text.into_owned().into_bytes()
    };
    let own = target.into_iter().map(decoded);
    let seen = std::iter::once_with(|| context.baselines.paths()).flatten();
    let seen = seen.filter_map(|name| {
        let path = roots.resolve(&name, Access::Read).ok()?;
        let opened = open_file(roots, &path).ok()?;
        let size = opened.metadata().ok()?.len();
        let snapshot = (size <= LARGEST_SOURCE).then(|| file::load(&opened).ok())?;
        snapshot.as_ref().map(decoded)
    });
    let literal = target.map_or(&[][..], |snapshot| &snapshot.content);
    let revealed = context.journal.reveal(&text, literal, &mut own.chain(seen));
    match revealed {
        Ok(revealed) => Ok(revealed.unwrap_or(text)),
        Err(unknown) => {
            let message = format!(
                "`{}` stands for a masked secret, and its value is in no file or image of this session. Nothing was \
                 changed. Leave that part as it is, or read the file that has the value first.",
                unknown.placeholder
            );
            Err(failure(field, message))
        }
    }
}

/// A command runs as it is written: it would get the placeholder, and values are not put into it,
/// because a command line is shown, recorded and seen by other programs.
pub(crate) fn refuse_placeholder(
    command: &str,
    context: &RuntimeContext<'_>,
) -> Result<(), ValidationFailure> {
    let Some(placeholder) = context.journal.placeholder_in(command) else {
        return Ok(());
    };
    let message = format!(
        "`{placeholder}` stands for a masked secret, and a command does not get its value. Nothing was run. Nothing \
         was changed. Use write or edit, which put the value in, or let the command take it from its file or variable."
    );
    Err(failure("/command", message))
}

fn failure(field: &str, message: String) -> ValidationFailure {
    ValidationFailure::new(Code::RuntimePreconditionFailed, message.clone()).at(field, message)
}
