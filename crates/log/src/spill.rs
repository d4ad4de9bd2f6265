//! Texts that do not fit into a line: the known ones go to the field that refers to them, any
//! other to an artifact that `refs` names, with its beginning left in place.

use agent_protocol::id::ArtifactId;
use agent_protocol::payload::conversation::ArtifactKind;
use agent_protocol::{Event, MAX_LINE_BYTES, Payload};
use serde_json::Value;

/// Shorter texts stay in the line: moving them would not help.
const WORTH_MOVING: usize = 2048;
/// Bytes of a text without a reference field of its own that stay in the line.
const LEFT_IN_PLACE: usize = 512;

/// Moves the large texts that have a field for their reference.
pub(super) fn known_fields<E>(
    payload: &mut Payload,
    put: &mut impl FnMut(ArtifactKind, &str, &[u8]) -> Result<ArtifactId, E>,
) -> Result<(), E> {
    use ArtifactKind as Kind;
    let mut text = |kind, field: &mut Option<String>, reference: &mut Option<ArtifactId>| {
        if let Some(taken) = field.take_if(|text| text.len() > WORTH_MOVING) {
            *reference = Some(put(kind, "text/plain; charset=utf-8", taken.as_bytes())?);
        }
        Ok(())
    };
    match payload {
        Payload::ToolObservation(observation) => {
            text(
                Kind::ToolResult,
                &mut observation.model_text,
                &mut observation.model_text_ref,
            )?;
            for block in &mut observation.content {
                text(Kind::ToolResult, &mut block.text, &mut block.artifact)?;
            }
        }
        Payload::ModelCompleted(completed) => {
            text(
                Kind::ModelOutput,
                &mut completed.text,
                &mut completed.text_ref,
            )?;
        }
        Payload::ReasoningSummary(summary) => {
            text(Kind::ModelOutput, &mut summary.text, &mut summary.text_ref)?;
        }
        Payload::TurnSubmitted(submitted) => {
            text(
                Kind::UserInput,
                &mut submitted.text,
                &mut submitted.input_ref,
            )?;
        }
        Payload::TurnCompleted(completed) => {
            text(
                Kind::ModelOutput,
                &mut completed.final_text,
                &mut completed.final_text_ref,
            )?;
        }
        Payload::ToolIntent(intent) => {
            json(&mut intent.raw_input, &mut intent.raw_input_ref, put)?;
            json(&mut intent.own_input, &mut intent.own_input_ref, put)?;
        }
        Payload::ToolArgs(args) => json(&mut args.safe_args, &mut args.args_ref, put)?,
        Payload::ToolCatalogResolved(catalog) => {
            // The catalogue artifact holds these in full.
            for tool in &mut catalog.tools {
                tool.input_schema = None;
            }
        }
        _ => {}
    }
    Ok(())
}

fn json<E>(
    field: &mut Option<Value>,
    reference: &mut Option<ArtifactId>,
    put: &mut impl FnMut(ArtifactKind, &str, &[u8]) -> Result<ArtifactId, E>,
) -> Result<(), E> {
    if let Some(taken) = field.take() {
        let bytes = taken.to_string().into_bytes();
        if bytes.len() > WORTH_MOVING {
            *reference = Some(put(ArtifactKind::ToolInput, "application/json", &bytes)?);
        } else {
            *field = Some(taken);
        }
    }
    Ok(())
}

/// Clips the largest texts and lists of any payload, one after the other, until the line fits or
/// nothing large is left. What was clipped is whole in an artifact that `refs` names by its field.
pub(super) fn largest_parts<E>(
    event: &mut Event,
    line: &[u8],
    put: &mut impl FnMut(ArtifactKind, &str, &[u8]) -> Result<ArtifactId, E>,
) -> Result<(), E> {
    let Ok(mut whole) = serde_json::from_slice::<Value>(line) else {
        return Ok(());
    };
    let mut size = line.len();
    // Room for the references that are added, and for a sequence that grows.
    let target = MAX_LINE_BYTES - 8 * 1024;
    for _ in 0..64 {
        if size <= target {
            break;
        }
        let Some(payload) = whole.get_mut("payload") else {
            break;
        };
        let Some((weight, pointer)) = heaviest(payload) else {
            break;
        };
        let Some(part) = payload.pointer_mut(&pointer) else {
            break;
        };
        let role = pointer
            .rsplit('/')
            .find(|step| step.parse::<usize>().is_err());
        let role = role
            .filter(|role| !role.is_empty())
            .unwrap_or("payload")
            .to_owned();
        let artifact_id = match part {
            Value::String(text) => {
                let id = put(
                    ArtifactKind::Other,
                    "text/plain; charset=utf-8",
                    text.as_bytes(),
                )?;
                let kept = text.floor_char_boundary(LEFT_IN_PLACE);
                let omitted = text.len() - kept;
                text.truncate(kept);
                text.push_str(&format!(
                    " [truncated: {omitted} bytes omitted; artifact {id}]"
                ));
                id
            }
            Value::Array(entries) => {
                let bytes = serde_json::to_vec(entries).unwrap_or_default();
                let id = put(ArtifactKind::Other, "application/json", &bytes)?;
                // As many entries stay as there is room for.
                let mut room = bytes.len().saturating_sub(size - target);
                let fits = entries.iter().take_while(|entry| {
                    let length = entry.to_string().len() + 1;
                    let fits = length <= room;
                    room = room.saturating_sub(length);
                    fits
                });
                let kept = fits.count();
                entries.truncate(kept);
                id
            }
            whole => {
                let bytes = whole.to_string().into_bytes();
                let id = put(ArtifactKind::Other, "application/json", &bytes)?;
                *whole = Value::Null;
                id
            }
        };
        event.refs.add(&role, &artifact_id);
        size -= weight.min(size);
    }
    let refs = std::mem::take(&mut event.refs);
    if let Ok(read) = Event::from_line(whole.to_string().as_bytes()) {
        event.payload = read.payload;
    }
    event.refs = refs;
    Ok(())
}

/// True if a field of this name may be empty although it held something.
fn is_replaceable(path: &str) -> bool {
    matches!(
        path.rsplit('/').next(),
        Some("safe_args" | "schema" | "edited_input" | "answer" | "input_hint" | "result")
    )
}

/// The text, list or foreign JSON whose clipping could save most, with what it could save.
fn heaviest(value: &Value) -> Option<(usize, String)> {
    fn visit(value: &Value, path: &mut String, best: &mut Option<(usize, String)>) -> usize {
        let length = path.len();
        let (size, saving) = match value {
            Value::String(text) => {
                let size = text.len() + 2;
                let clippable = text.len() > WORTH_MOVING;
                (size, if clippable { size - LEFT_IN_PLACE } else { 0 })
            }
            Value::Array(entries) => {
                let (mut size, mut largest) = (2, 0);
                for (index, entry) in entries.iter().enumerate() {
                    path.push_str(&format!("/{index}"));
                    let entry_size = visit(entry, path, best) + 1;
                    path.truncate(length);
                    size += entry_size;
                    largest = largest.max(entry_size);
                }
                // A list that is large because of one entry is better clipped inside that entry.
                (size, size - largest)
            }
            Value::Object(fields) => {
                let mut size = 2;
                for (name, field) in fields {
                    path.push('/');
                    path.push_str(&name.replace('~', "~0").replace('/', "~1"));
                    size += name.len() + 4 + visit(field, path, best);
                    path.truncate(length);
                }
                (size, if is_replaceable(path) { size } else { 0 })
            }
            _ => (8, 0),
        };
        if saving > WORTH_MOVING && best.as_ref().is_none_or(|(most, _)| saving > *most) {
            *best = Some((saving, path.clone()));
        }
        size
    }
    let mut best = None;
    visit(value, &mut String::new(), &mut best);
    best
}
