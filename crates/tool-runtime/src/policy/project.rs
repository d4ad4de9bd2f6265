//! From the bodies of a result to bounded, escaped, masked text, with an exact account of what was
//! left out.

use std::borrow::Cow;

use agent_protocol::id::ArtifactId;
use agent_protocol::payload::ArtifactRef;
use agent_protocol::payload::conversation::ArtifactKind;
use agent_protocol::payload::model::Trust;
use agent_protocol::payload::tool::{
    ContentBlock, ContentFormat, OutputSpilled, OutputTruncated, ReadMore, TruncationStrategy,
};
use agent_protocol::{Refs, Scope};
use serde_json::json;

use super::collector::Segment;
use super::excerpt::{CollectLimits, Excerpt};
use super::noise::is_noise;
use super::piece::{Hidden, hidden_in, masked_piece, read_range};
use crate::journal::{Journal, JournalError};
use crate::result::Body;
use agent_text::push_visible;

/// No text for the model is longer than this.
pub const MAX_MODEL_CHARS: usize = 30_000;

/// What model and screen may see of the bodies of a result.
#[derive(Debug, Default)]
pub(crate) struct Projection {
    /// All bodies as text, with marks where something is left out.
    pub(crate) text: String,
    pub(crate) blocks: Vec<ContentBlock>,
    pub(crate) artifacts: Vec<ArtifactRef>,
    pub(crate) output_bytes: u64,
    pub(crate) omitted_bytes: u64,
    pub(crate) read_more: Option<ReadMore>,
    /// The tool that shows more of an artifact, where there is one.
    reader: Option<String>,
}

/// Projects `bodies` into at most `budget` characters. Keeps the whole of what it cuts as an
/// artifact, and records what was cut.
pub(crate) fn project(
    bodies: &[Body],
    budget: usize,
    reader: Option<&str>,
    journal: &dyn Journal,
    scope: &Scope,
    producer: &str,
) -> Result<Projection, JournalError> {
    let mut projection = Projection {
        reader: reader.map(str::to_owned),
        ..Projection::default()
    };
    for (number, body) in bodies.iter().enumerate() {
        let left = budget.saturating_sub(projection.text.chars().count());
        let share = left / (bodies.len() - number);
        if number > 0 && !projection.text.is_empty() && !projection.text.ends_with('\n') {
            projection.text.push('\n');
        }
        match body {
            Body::Whole {
                source,
                format,
                bytes,
            } => {
                // Masked before it is measured, so that what is kept and what is shown agree.
                let hidden = hidden_in(
                    0..bytes.len() as u64,
                    |bytes| journal.secrets(bytes),
                    |_| bytes.clone(),
                );
                let bytes = &masked_piece(bytes, 0, &hidden)[..];
                let whole = Output {
                    source,
                    format: *format,
                    total: bytes.len() as u64,
                    artifact: None,
                    whole: Some(bytes),
                    segments: if bytes.len() <= share.saturating_mul(4) {
                        vec![Segment {
                            offset: 0,
                            bytes: bytes.to_vec(),
                            stderr: Vec::new(),
                        }]
                    } else {
                        Vec::new()
                    },
                };
                projection.add(whole, share, journal, scope, producer)?;
            }
            Body::Collected { source, output } => {
                projection.artifacts.extend(output.index.clone());
                if let Some(artifact) = &output.artifact
                    && is_noise(&output.segments)
                {
                    projection.leave_out(source, artifact, journal, scope)?;
                    continue;
                }
                let collected = Output {
                    source,
                    format: ContentFormat::Text,
                    total: output.total_bytes,
                    artifact: output.artifact.clone(),
                    whole: None,
                    segments: output.segments.clone(),
                };
                projection.add(collected, share, journal, scope, producer)?;
            }
            Body::Artifact {
                source,
                format,
                media_type,
                artifact,
            } => {
                projection.artifacts.push(artifact.clone());
                projection.output_bytes += artifact.bytes;
                projection.text.push_str(&format!(
                    "[{format} {source}: {media_type}, {} bytes; artifact {}]",
                    artifact.bytes, artifact.artifact_id
                ));
                projection.blocks.push(ContentBlock {
                    trust: Trust::ToolOutputUntrusted,
                    format: *format,
                    source: Some(source.clone()),
                    artifact: Some(artifact.artifact_id.clone()),
                    media_type: Some(media_type.clone()),
                    text: None,
                    omitted_bytes: None,
                });
            }
        }
    }
    Ok(projection)
}

struct Output<'a> {
    source: &'a str,
    format: ContentFormat,
    total: u64,
    artifact: Option<ArtifactRef>,
    /// All bytes, when they are in memory and not yet kept.
    whole: Option<&'a [u8]>,
    segments: Vec<Segment>,
}

impl Projection {
    fn offer_more(&mut self, id: &ArtifactId, offset: u64) {
        let Some(reader) = &self.reader else { return };
        self.read_more.get_or_insert(ReadMore {
            tool: reader.clone(),
            input_hint: json!({ "artifact_id": id, "offset": offset }),
        });
    }

    fn add(
        &mut self,
        mut output: Output<'_>,
        share: usize,
        journal: &dyn Journal,
        scope: &Scope,
        producer: &str,
    ) -> Result<(), JournalError> {
        self.output_bytes += output.total;
        let kept: u64 = output.segments.iter().map(|s| s.bytes.len() as u64).sum();
        let mut text = String::new();
        let mut omitted = 0;
        let fits = kept == output.total && {
            let hidden = output.hidden(&output.segments, journal);
            render(&output.segments, &hidden, &mut text, journal);
            text.chars().count() <= share
        };
        let content = if fits {
            text.len()
        } else {
            let artifact = match &output.artifact {
                Some(artifact) => artifact.clone(),
                None => self.keep(&output, journal, scope, producer)?,
            };
            spilled(&artifact, share, journal, scope)?;
            let budget = share.saturating_sub(MARK_CHARS);
            let in_memory = output.whole.or_else(|| match &*output.segments {
                [only] if kept == output.total => Some(&only.bytes),
                _ => None,
            });
            let segments = match in_memory {
                Some(bytes) => choose(bytes, &output.segments, budget),
                None => std::mem::take(&mut output.segments),
            };
            let segments = select(segments, budget);
            let shown: u64 = segments.iter().map(|s| s.bytes.len() as u64).sum();
            omitted = output.total - shown;
            let hidden = output.hidden(&segments, journal);
            text.clear();
            render(&segments, &hidden, &mut text, journal);
            let content = text.len();
            let id = &artifact.artifact_id;
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(&format!(
                "[truncated: {omitted} bytes omitted; artifact {id}]"
            ));
            let first_gap = segments
                .first()
                .filter(|segment| segment.offset == 0)
                .map_or(0, Segment::end);
            self.offer_more(id, first_gap);
            let strategy = match segments.len() {
                0 | 1 => TruncationStrategy::Head,
                2 => TruncationStrategy::HeadTail,
                _ => TruncationStrategy::ErrorWindow,
            };
            journal.append(
                scope,
                OutputTruncated {
                    shown_bytes: shown,
                    omitted_bytes: omitted,
                    strategy,
                    artifact_id: Some(id.clone()),
                }
                .into(),
                Refs::default().with("output", id),
            )?;
            output.artifact = Some(artifact);
            content
        };
        self.omitted_bytes += omitted;
        self.artifacts.extend(output.artifact.clone());
        // Beside the text for the model, which is bounded for the model's sake, the event has what a
        // reader wants to see of it: the beginning and the end.
        let most = match output.format {
            ContentFormat::Diff => INLINE_DIFF_BYTES,
            _ => INLINE_BYTES,
        };
        let (shown, left_out) = ends(&text[..content], most, output.artifact.as_ref());
        self.blocks.push(ContentBlock {
            trust: Trust::ToolOutputUntrusted,
            format: output.format,
            source: Some(output.source.to_owned()),
            text: Some(shown.into_owned()),
            omitted_bytes: (left_out > 0).then_some(left_out),
            artifact: output.artifact.map(|artifact| artifact.artifact_id),
            media_type: None,
        });
        self.text.push_str(&text);
        Ok(())
    }

    /// Names an output that is no text, and shows nothing of it.
    fn leave_out(
        &mut self,
        source: &str,
        artifact: &ArtifactRef,
        journal: &dyn Journal,
        scope: &Scope,
    ) -> Result<(), JournalError> {
        let id = &artifact.artifact_id;
        spilled(artifact, 0, journal, scope)?;
        let truncated = OutputTruncated {
            shown_bytes: 0,
            omitted_bytes: artifact.bytes,
            strategy: TruncationStrategy::Head,
            artifact_id: Some(id.clone()),
        };
        journal.append(scope, truncated.into(), Refs::default().with("output", id))?;
        let text = format!(
            "[binary: {} bytes, not shown; artifact {id}]",
            artifact.bytes
        );
        self.output_bytes += artifact.bytes;
        self.omitted_bytes += artifact.bytes;
        self.artifacts.push(artifact.clone());
        self.offer_more(id, 0);
        self.blocks.push(ContentBlock {
            trust: Trust::ToolOutputUntrusted,
            format: ContentFormat::Text,
            source: Some(source.to_owned()),
            text: Some(text.clone()),
            omitted_bytes: Some(artifact.bytes),
            artifact: Some(id.clone()),
            media_type: None,
        });
        self.text.push_str(&text);
        Ok(())
    }

    fn keep(
        &self,
        output: &Output<'_>,
        journal: &dyn Journal,
        scope: &Scope,
        producer: &str,
    ) -> Result<ArtifactRef, JournalError> {
        let bytes = output.whole.unwrap_or_default();
        let kind = ArtifactKind::ToolResult;
        journal.put_artifact(scope, kind, "text/plain", bytes, producer)
    }
}

impl Output<'_> {
    /// The secrets in the pieces, also those that are cut by the border of a piece.
    fn hidden(&self, segments: &[Segment], journal: &dyn Journal) -> Vec<Hidden> {
        let secrets = |bytes: &[u8]| journal.secrets(bytes);
        if let Some(whole) = self.whole {
            return hidden_in(0..whole.len() as u64, secrets, |_| whole.to_vec());
        }
        let file = self.artifact.as_ref();
        let file = file.and_then(|artifact| journal.open_artifact(&artifact.artifact_id).ok());
        let mut hidden: Vec<Hidden> = Vec::new();
        for segment in segments {
            let found = hidden_in(
                segment.offset..segment.end(),
                secrets,
                |range| match &file {
                    Some(file) => read_range(file, range),
                    // The piece at its place, as if nothing stood before it.
                    None => {
                        let before = usize::try_from(segment.offset - range.start).unwrap_or(0);
                        [&vec![0; before], &segment.bytes[..]].concat()
                    }
                },
            );
            let known = hidden.last().map_or(0, |last| last.end);
            hidden.extend(found.into_iter().filter(|found| found.start >= known));
        }
        hidden
    }
}

/// Records that the whole of an output is kept, because it is longer than what is shown.
pub(crate) fn spilled(
    artifact: &ArtifactRef,
    threshold: usize,
    journal: &dyn Journal,
    scope: &Scope,
) -> Result<(), JournalError> {
    let spilled = OutputSpilled {
        artifact_id: artifact.artifact_id.clone(),
        bytes: artifact.bytes,
        threshold: threshold as u64,
    };
    let refs = Refs::default().with("output", &artifact.artifact_id);
    journal.append(scope, spilled.into(), refs)?;
    Ok(())
}

/// The beginning and the end of a text, whole lines where there are any, with a mark between them
/// that says how much is missing and where it is; and how much that is.
fn ends<'a>(text: &'a str, most: usize, whole: Option<&ArtifactRef>) -> (Cow<'a, str>, u64) {
    if text.len() <= most {
        return (Cow::Borrowed(text), 0);
    }
    let room = most - ENDS_MARK;
    // Errors tend to be at the end, so the end gets the larger part.
    let head = text.floor_char_boundary(room / 3);
    let head = match text[..head].rfind('\n') {
        Some(newline) if newline + 1 >= head / 2 => newline + 1,
        _ => head,
    };
    let tail = text.ceil_char_boundary(text.len() - room * 2 / 3);
    let tail = match text[tail..].find('\n') {
        Some(newline) if newline < (text.len() - tail) / 2 => tail + newline + 1,
        _ => tail,
    };
    let left_out = tail - head;
    let place = whole.map_or_else(String::new, |artifact| {
        format!("; all of it is artifact {}", artifact.artifact_id)
    });
    let between = if text[..head].ends_with('\n') {
        ""
    } else {
        "\n"
    };
    let shown = format!(
        "{}{between}[… {left_out} bytes not shown here{place} …]\n{}",
        &text[..head],
        &text[tail..]
    );
    (Cow::Owned(shown), left_out as u64)
}

/// So much of an output stands in its block.
const INLINE_BYTES: usize = 4096;
/// And so much of a diff, which people read to its end.
const INLINE_DIFF_BYTES: usize = 20 * 1024;
/// Room for the mark between the ends.
const ENDS_MARK: usize = 200;
/// Room for the marks between pieces and at the end.
const MARK_CHARS: usize = 700;

/// Chooses from the whole, which is in memory.
fn choose(bytes: &[u8], marked: &[Segment], budget: usize) -> Vec<Segment> {
    let mut excerpt = Excerpt::new(CollectLimits::for_chars(budget));
    excerpt.push(bytes);
    let mut segments = excerpt.finish();
    for segment in &mut segments {
        let (start, end) = (segment.offset, segment.end());
        let ranges = marked.iter().flat_map(|segment| &segment.stderr);
        segment.stderr = clip_ranges(ranges, start, end);
    }
    segments
}

fn clip_ranges<'a>(
    ranges: impl Iterator<Item = &'a (u64, u64)>,
    start: u64,
    end: u64,
) -> Vec<(u64, u64)> {
    ranges
        .map(|(from, to)| ((*from).max(start), (*to).min(end)))
        .filter(|(from, to)| from < to)
        .collect()
}

/// Chooses from what was kept as much as fits into `budget` characters: a good part of the
/// beginning and of the end, and windows between them while there is room.
fn select(segments: Vec<Segment>, budget: usize) -> Vec<Segment> {
    let count = segments.len();
    let mut left = budget;
    let mut chosen: Vec<Option<Segment>> = Vec::new();
    chosen.resize_with(count, || None);
    let windows: usize = segments
        .iter()
        .skip(1)
        .take(count.saturating_sub(2))
        .map(|segment| visible_chars(&segment.bytes))
        .sum();
    let for_windows = windows.min(budget / 4);
    let for_ends = budget - for_windows;
    let order = [0, count.saturating_sub(1)]
        .into_iter()
        .chain(1..count.saturating_sub(1));
    for at in order {
        let Some(segment) = segments.get(at) else {
            continue;
        };
        if chosen[at].is_some() {
            continue;
        }
        let piece = if count == 1 {
            cut_end(segment, left)
        } else if at == 0 {
            let piece = cut_end(segment, for_ends * 45 / 100);
            clipped(
                &piece,
                0,
                whole_lines_before(&piece.bytes, piece.bytes.len()),
            )
        } else if at == count - 1 {
            cut_start(segment, left.saturating_sub(for_windows))
        } else {
            cut_end(segment, left)
        };
        left = left.saturating_sub(visible_chars(&piece.bytes));
        chosen[at] = (!piece.bytes.is_empty()).then_some(piece);
    }
    chosen.into_iter().flatten().collect()
}

/// The beginning of a piece, whole lines if that loses little.
fn cut_end(segment: &Segment, budget: usize) -> Segment {
    let mut used = 0;
    let mut end = 0;
    for chunk in segment.bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            let mut shown = [0; 4];
            used += visible_chars(character.encode_utf8(&mut shown).as_bytes());
            if used > budget {
                return clipped(segment, 0, whole_lines_before(&segment.bytes, end));
            }
            end += character.len_utf8();
        }
        for _ in chunk.invalid() {
            used += 4;
            if used > budget {
                return clipped(segment, 0, whole_lines_before(&segment.bytes, end));
            }
            end += 1;
        }
    }
    segment.clone()
}

fn whole_lines_before(bytes: &[u8], end: usize) -> usize {
    match memchr::memrchr(b'\n', &bytes[..end]) {
        Some(newline) if newline + 1 >= end / 2 => newline + 1,
        _ => end,
    }
}

/// The end of a piece, whole lines if that loses little.
fn cut_start(segment: &Segment, budget: usize) -> Segment {
    let bytes = &segment.bytes;
    let mut start = bytes.len();
    let mut used = 0;
    while start > 0 {
        // Back to the start of a character; a lone continuation byte stands for itself.
        let mut at = start - 1;
        while at > 0 && start - at < 4 && bytes[at] & 0xC0 == 0x80 {
            at -= 1;
        }
        if std::str::from_utf8(&bytes[at..start]).is_err() {
            at = start - 1;
        }
        used += visible_chars(&bytes[at..start]);
        if used > budget {
            break;
        }
        start = at;
    }
    // What is before the piece is not known; it hardly ever ends a line.
    let starts_a_line = match start.checked_sub(1) {
        Some(before) => bytes[before] == b'\n',
        None => segment.offset == 0,
    };
    if !starts_a_line
        && let Some(newline) = memchr::memchr(b'\n', &bytes[start..])
        && newline < (bytes.len() - start) / 2
    {
        start += newline + 1;
    }
    clipped(segment, start, bytes.len())
}

fn clipped(segment: &Segment, from: usize, to: usize) -> Segment {
    let (start, end) = (segment.offset + from as u64, segment.offset + to as u64);
    Segment {
        offset: start,
        bytes: segment.bytes[from..to].to_vec(),
        stderr: clip_ranges(segment.stderr.iter(), start, end),
    }
}

fn visible_chars(bytes: &[u8]) -> usize {
    if bytes
        .iter()
        .all(|byte| matches!(byte, b' '..=b'~' | b'\n' | b'\t'))
    {
        return bytes.len();
    }
    let mut shown = String::new();
    push_visible(&mut shown, bytes);
    shown.chars().count()
}

/// The pieces as text, with a mark for each gap and where the stream changes. What is hidden is
/// replaced, once, where it begins.
fn render(segments: &[Segment], hidden: &[Hidden], out: &mut String, journal: &dyn Journal) {
    let marks_streams = segments.iter().any(|segment| !segment.stderr.is_empty());
    let mut end = 0;
    let mut in_stderr = false;
    let mut told = 0;
    for segment in segments {
        if segment.offset > end {
            new_line(out);
            out.push_str(&format!("[… {} bytes not shown …]\n", segment.offset - end));
        }
        let mut at = segment.offset;
        let bytes_of = |from: u64, to: u64| {
            let index = |place: u64| usize::try_from(place - segment.offset).unwrap_or(usize::MAX);
            segment
                .bytes
                .get(index(from)..index(to))
                .unwrap_or_default()
        };
        let mut push = |stderr: bool, from: u64, to: u64, out: &mut String| {
            // The rest of a secret whose beginning was in the other stream.
            let from = from.max(told);
            if from >= to {
                return;
            }
            if marks_streams && stderr != in_stderr {
                new_line(out);
                out.push_str(if stderr { "[stderr]\n" } else { "[stdout]\n" });
                in_stderr = stderr;
            }
            let masked = masked_piece(bytes_of(from, to), from, hidden);
            let last = hidden.iter().rfind(|hidden| hidden.start < to);
            told = last.map_or(told, |hidden| hidden.end.max(told));
            let mut text = String::new();
            push_visible(&mut text, &masked);
            out.push_str(&journal.mask(&text));
        };
        for (from, to) in &segment.stderr {
            push(false, at, *from, out);
            push(true, *from, *to, out);
            at = *to;
        }
        push(false, at, segment.end(), out);
        end = segment.end();
    }
}

fn new_line(out: &mut String) {
    if !out.is_empty() && !out.ends_with('\n') {
        out.push('\n');
    }
}
