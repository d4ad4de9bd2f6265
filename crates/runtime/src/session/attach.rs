//! Images that an input names: kept as artifacts of the session before the input is recorded.

use std::path::Path;

use agent_protocol::Scope;
use agent_protocol::command::SubmitTurn;
use agent_protocol::payload::conversation::{ArtifactKind, InputPartKind};
use agent_protocol::reply::{AnswerCode, ControlNotice};
use agent_tool_runtime::{Journal, JournalError};

/// An image larger than this is not sent to a model.
const LARGEST_IMAGE: u64 = 20 << 20;

/// Keeps the images that the parts of `submit` name, seen from `cwd`. An image that cannot be read is
/// left out, with a notice.
pub(super) fn attach(
    journal: &dyn Journal,
    scope: &Scope,
    cwd: &Path,
    submit: &mut SubmitTurn,
) -> Result<Vec<ControlNotice>, JournalError> {
    let mut notices = Vec::new();
    for part in &mut submit.parts {
        let Some(name) = part.name.as_deref().filter(|_| part.artifact.is_none()) else {
            continue;
        };
        let path = cwd.join(name);
        let length = std::fs::metadata(&path).map(|facts| facts.len());
        part.bytes = length.as_ref().copied().unwrap_or_default();
        if part.kind != InputPartKind::Image {
            continue;
        }
        let read = match length {
            Ok(length) if length > LARGEST_IMAGE => {
                Err(format!("`{name}` is too large ({length} bytes)"))
            }
            Ok(_) => std::fs::read(&path).map_err(|error| format!("`{name}`: {error}")),
            Err(error) => Err(format!("`{name}`: {error}")),
        };
        match read {
            Ok(bytes) => {
                let media_type = part.media_type.clone().unwrap_or_default();
                let kind = ArtifactKind::UserInput;
                let kept = journal.put_artifact(scope, kind, &media_type, &bytes, "")?;
                part.artifact = Some(kept.artifact_id);
            }
            Err(problem) => notices.push(ControlNotice {
                code: AnswerCode::ImageNotAttached,
                message: format!("the image was not attached: {problem}"),
            }),
        }
    }
    Ok(notices)
}
