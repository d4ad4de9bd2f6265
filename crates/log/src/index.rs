//! A log read by place: any piece of it, without holding the rest.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Seek as _, SeekFrom};
use std::path::PathBuf;

use agent_protocol::Event;

use crate::line::{Line, Lines, link_of};
use crate::reader::ReadError;

/// Lines between two remembered places; a read passes over fewer than this many.
const STRIDE: u64 = 64;

/// Index of the events of a log. It is made by looking for the ends of lines, so that a long log
/// can be opened anywhere at once; what is appended later is not in it. The chain is not followed:
/// who needs to know whether the log is whole asks [`verify_chain`](crate::verify_chain).
#[derive(Debug)]
pub struct LogIndex {
    file: File,
    path: PathBuf,
    /// Offsets of every [`STRIDE`]th line with an event.
    marks: Vec<u64>,
    lines: u64,
    /// Lines that look like events and turned out to be none, by their number.
    broken: BTreeSet<u64>,
}

impl LogIndex {
    /// Looks through the log; `path` is only named in errors.
    pub(crate) fn of(file: File, path: PathBuf) -> Result<Self, ReadError> {
        let mut index = Self {
            file,
            path,
            marks: Vec::new(),
            lines: 0,
            broken: BTreeSet::new(),
        };
        index.look().map_err(|source| index.failed(source))?;
        Ok(index)
    }

    fn look(&mut self) -> io::Result<()> {
        let mut lines = Lines::new(&self.file);
        while let Some(line) = lines.next_line()? {
            if !holds_event(&line) {
                continue;
            }
            if self.lines.is_multiple_of(STRIDE) {
                self.marks.push(line.offset);
            }
            self.lines += 1;
        }
        Ok(())
    }

    /// Number of events. One less whenever a read finds that a line holds none.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.lines - self.broken.len() as u64
    }

    /// Reads `most` events from place `from` on; fewer only at the end. A line that turns out to
    /// hold no event is left out, and those after it move up.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn read(&mut self, from: u64, most: usize) -> Result<Vec<Event>, ReadError> {
        self.read_lines(from, most)
            .map_err(|source| self.failed(source))
    }

    fn read_lines(&mut self, from: u64, most: usize) -> io::Result<Vec<Event>> {
        let mut events = Vec::new();
        let first = self.line_of(from);
        let mark = usize::try_from(first / STRIDE).unwrap_or(usize::MAX);
        let Some(offset) = self.marks.get(mark) else {
            return Ok(events);
        };
        self.file.seek(SeekFrom::Start(*offset))?;
        let mut lines = Lines::new(&self.file);
        let mut number = mark as u64 * STRIDE;
        while events.len() < most && number < self.lines {
            let Some(line) = lines.next_line()? else {
                break;
            };
            if !holds_event(&line) {
                continue;
            }
            if number >= first && !self.broken.contains(&number) {
                match Event::from_line(line.text().unwrap_or_default()) {
                    Ok(event) => events.push(event),
                    Err(_) => {
                        self.broken.insert(number);
                    }
                }
            }
            number += 1;
        }
        Ok(events)
    }

    /// The number of the line that holds the event at `place`.
    fn line_of(&self, place: u64) -> u64 {
        self.broken
            .iter()
            .fold(place, |line, broken| line + u64::from(*broken <= line))
    }

    fn failed(&self, source: io::Error) -> ReadError {
        ReadError {
            path: self.path.clone(),
            source,
        }
    }
}

/// True if a line is one of the log's, as far as can be told without parsing it.
fn holds_event(line: &Line<'_>) -> bool {
    line.is_terminated && line.text().is_some_and(|text| link_of(text).is_some())
}
