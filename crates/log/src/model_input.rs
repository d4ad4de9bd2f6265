//! Model inputs, kept so that a session's inputs together grow with the session and not
//! with its square.
//!
//! The first megabytes are kept whole, so that in most sessions an input is simply the bytes of its
//! artifact. But a request repeats the one before it and adds a little near its end. So from then on
//! most inputs are kept as a difference: a line of JSON that names the input before, how many bytes of its beginning and end
//! are repeated and the hash of the whole, then the new bytes between. An input is kept whole when
//! the differences since the last whole one have grown as large as it, so that reading one back
//! never reads more than about twice its size.

use std::borrow::Cow;
use std::io::Read as _;

use agent_protocol::id::ArtifactId;
use serde_json::{Value, json};

use crate::artifact::{ArtifactError, ArtifactStore};

/// The media type of an input that is kept whole.
pub(crate) const WHOLE: &str = "application/json";
/// The media type of an input that is kept as a difference.
pub(crate) const DIFFERENCE: &str = "application/vnd.agent.model-input-difference";

/// Bytes of whole inputs a session keeps before it begins to save.
const GENEROUS: u64 = 4 << 20;
/// Larger than any request a server takes.
const MOST_BYTES: u64 = 256 << 20;

/// Reason an input cannot be read back.
#[derive(Debug, thiserror::Error)]
pub enum ModelInputError {
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    #[error("the model input {artifact_id} is not what it says: {problem}")]
    Broken {
        artifact_id: ArtifactId,
        problem: &'static str,
    },
}

/// An input as it is to be kept.
#[derive(Debug, PartialEq, Eq)]
pub struct Kept<'a> {
    pub media_type: &'static str,
    pub bytes: Cow<'a, [u8]>,
}

/// Remembers the input before, to find what the next one repeats. It is held as whoever sent it
/// holds it, so that it need not be copied.
#[derive(Debug)]
pub struct ModelInputs<B = Vec<u8>> {
    last: Option<(ArtifactId, B)>,
    /// Bytes that may still be kept whole without a thought.
    generosity: u64,
    /// Bytes of differences since the last whole input.
    since_whole: u64,
}

impl<B> Default for ModelInputs<B> {
    fn default() -> Self {
        Self {
            last: None,
            generosity: GENEROUS,
            since_whole: 0,
        }
    }
}

impl<B: AsRef<[u8]>> ModelInputs<B> {
    /// The form in which `body` is kept, whose hash is `sha256` in hexadecimal digits. Tell
    /// [`ModelInputs::stored`] under which name it was.
    #[must_use]
    pub fn keep<'a>(&self, body: &'a [u8], sha256: &str) -> Kept<'a> {
        let whole = || Kept {
            media_type: WHOLE,
            bytes: Cow::Borrowed(body),
        };
        let before = self.last.as_ref();
        let Some((base, before)) = before.filter(|_| self.generosity < body.len() as u64) else {
            return whole();
        };
        let before = before.as_ref();
        let beginning = common_beginning(before, body);
        let end = common_end(&before[beginning..], &body[beginning..]);
        let header = json!({
            "base": base,
            "beginning": beginning,
            "end": end,
            "sha256": sha256,
        });
        let mut bytes = header.to_string().into_bytes();
        bytes.push(b'\n');
        bytes.extend_from_slice(&body[beginning..body.len() - end]);
        if self.since_whole + bytes.len() as u64 > body.len() as u64 {
            return whole();
        }
        Kept {
            media_type: DIFFERENCE,
            bytes: bytes.into(),
        }
    }

    /// The input is on disk, kept in so many bytes of that media type.
    pub fn stored(&mut self, artifact_id: ArtifactId, media_type: &str, kept: u64, body: B) {
        if media_type == WHOLE {
            self.since_whole = 0;
            self.generosity = self.generosity.saturating_sub(kept);
        } else {
            self.since_whole += kept;
        }
        self.last = Some((artifact_id, body));
    }
}

/// The bytes that were sent, whichever way they are kept.
///
/// # Errors
/// When an artifact is missing, altered, or not a model input.
pub fn read_model_input(
    artifacts: &ArtifactStore,
    artifact_id: &ArtifactId,
) -> Result<Vec<u8>, ModelInputError> {
    read_after(artifacts, artifact_id, None)
}

/// The same for whoever has just read the input before: what repeats it is not read again.
///
/// # Errors
/// When an artifact is missing, altered, or not a model input.
pub fn read_after(
    artifacts: &ArtifactStore,
    artifact_id: &ArtifactId,
    before: Option<&(ArtifactId, Vec<u8>)>,
) -> Result<Vec<u8>, ModelInputError> {
    let mut differences = Vec::new();
    let mut next = artifact_id.clone();
    let mut body = loop {
        if let Some((_, known)) = before.filter(|(id, _)| *id == next) {
            break known.clone();
        }
        let broken = |problem| ModelInputError::Broken {
            artifact_id: next.clone(),
            problem,
        };
        let bytes = artifacts.read(&next, MOST_BYTES)?;
        let Some(difference) = Difference::parse(&bytes) else {
            break bytes;
        };
        // A difference names an earlier artifact by its hash, so it cannot name itself in a circle.
        let base = difference
            .base
            .parse()
            .map_err(|_| broken("it names no input before"))?;
        differences.push((next.clone(), bytes));
        next = base;
    };
    while let Some((artifact_id, bytes)) = differences.pop() {
        let broken = |problem| ModelInputError::Broken {
            artifact_id: artifact_id.clone(),
            problem,
        };
        let difference = Difference::parse(&bytes).ok_or_else(|| broken("it has no header"))?;
        let applied = difference
            .apply(&body)
            .ok_or_else(|| broken("it repeats more than there was"))?;
        if agent_text::sha256_hex(&applied) != difference.sha256 {
            return Err(broken("its bytes have another hash"));
        }
        body = applied;
    }
    Ok(body)
}

struct Difference<'a> {
    base: String,
    beginning: usize,
    end: usize,
    sha256: String,
    new: &'a [u8],
}

impl<'a> Difference<'a> {
    /// `None` for an input that is kept whole: no request has these fields.
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let mut line = Vec::new();
        // A header is short; what has no early line end is none.
        bytes.take(1024).read_to_end(&mut line).ok()?;
        let end = line.iter().position(|byte| *byte == b'\n')?;
        let header: Value = serde_json::from_slice(&line[..end]).ok()?;
        let number = |name: &str| usize::try_from(header.get(name)?.as_u64()?).ok();
        Some(Self {
            base: header.get("base")?.as_str()?.to_owned(),
            beginning: number("beginning")?,
            end: number("end")?,
            sha256: header.get("sha256")?.as_str()?.to_owned(),
            new: &bytes[end + 1..],
        })
    }

    fn apply(&self, before: &[u8]) -> Option<Vec<u8>> {
        let beginning = before.get(..self.beginning)?;
        let end = before.get(before.len().checked_sub(self.end)?..)?;
        Some([beginning, self.new, end].concat())
    }
}

/// Compared piece by piece: requests repeat hundreds of kilobytes, and equal pieces are told at the
/// speed of memory.
const PIECE: usize = 4096;

fn common_beginning(left: &[u8], right: &[u8]) -> usize {
    let pieces = left.chunks_exact(PIECE).zip(right.chunks_exact(PIECE));
    let equal = PIECE * pieces.take_while(|(left, right)| left == right).count();
    let rest = left[equal..].iter().zip(&right[equal..]);
    equal + rest.take_while(|(left, right)| left == right).count()
}

fn common_end(left: &[u8], right: &[u8]) -> usize {
    let pieces = left.rchunks_exact(PIECE).zip(right.rchunks_exact(PIECE));
    let equal = PIECE * pieces.take_while(|(left, right)| left == right).count();
    let (left, right) = (&left[..left.len() - equal], &right[..right.len() - equal]);
    let rest = left.iter().rev().zip(right.iter().rev());
    equal + rest.take_while(|(left, right)| left == right).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A conversation that grows by one message per request, as a server sees it.
    fn body(messages: usize) -> Vec<u8> {
        let said: Vec<String> = (0..messages)
            .map(|number| format!("message {number} {}", "x".repeat(500)))
            .collect();
        json!({"messages": said, "model": "m", "tools": ["a", "b", "c"]})
            .to_string()
            .into_bytes()
    }

    #[test]
    fn every_input_is_read_back_and_all_together_grow_with_the_session() {
        let directory = tempfile::tempdir().unwrap();
        let place = crate::place::Place::open_or_create(&directory.path().join("a")).unwrap();
        let store = ArtifactStore::new(place);
        let mut inputs = ModelInputs {
            generosity: 0,
            ..ModelInputs::default()
        };
        let mut kept_bytes = 0;
        let mut names = Vec::new();
        for messages in 1..200 {
            let body = body(messages);
            let kept = inputs.keep(&body, &agent_text::sha256_hex(&body));
            kept_bytes += kept.bytes.len();
            let artifact_id = store.put(&kept.bytes).unwrap().artifact_id;
            let (media_type, bytes) = (kept.media_type, kept.bytes.len() as u64);
            inputs.stored(artifact_id.clone(), media_type, bytes, body.clone());
            names.push((artifact_id, body));
        }
        // A shorter one follows, as after making room.
        let body = body(3);
        let kept = inputs.keep(&body, &agent_text::sha256_hex(&body));
        let artifact_id = store.put(&kept.bytes).unwrap().artifact_id;
        names.push((artifact_id, body));
        for (artifact_id, body) in &names {
            assert!(read_model_input(&store, artifact_id).unwrap() == *body);
        }
        let last = names[198].1.len();
        assert!(
            kept_bytes < 4 * last,
            "{kept_bytes} for a last one of {last}"
        );
    }
}
