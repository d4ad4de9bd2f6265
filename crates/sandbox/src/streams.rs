//! The two output pipes of a command, read in the order in which they were written.
//!
//! Two pipes have no common clock, so the order is kept by not letting it arise too fast. Each pipe
//! has room for one write: it is in packet mode, where writes are not joined, and one page long. A
//! command that writes to the same stream again waits until the first piece was taken. At most one
//! piece per stream is on its way then, and the kernel's list of ready descriptors, which an
//! edge-triggered epoll hands out in the order they became ready, says which came first.
//!
//! That costs a switch of processes per write, so a stream that is alone and busy gets a large pipe
//! until the other one says something. What a program writes in large pieces was gathered
//! in its own buffer and has no order to keep; only a long run of small pieces gives up some.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{Timespec, epoll};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

use crate::running::Stream;

/// The largest piece that packet mode keeps whole.
const PAGE: usize = 4096;
/// Default size of a pipe.
const USUAL: usize = 16 * PAGE;
/// Size of a pipe for a stream that is alone and busy, so that writer and reader seldom wait for
/// each other: the most that the kernel gives every user.
const WIDE: usize = 1 << 20;
/// So many bytes in a row, in pieces of at least so many, make a stream busy.
const BUSY_BYTES: usize = 16 * PAGE;
const BUSY_PIECE: usize = PAGE / 4;
/// And so many pieces of any size.
const BUSY_PIECES: usize = 4096;
/// A busy stream is left for other business after this much.
const TURN: usize = 1 << 20;

const AT_ONCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// Receives the pieces.
pub(crate) type OutputFn<'a> = &'a mut dyn FnMut(Stream, &[u8]);

/// The reading ends.
#[derive(Debug)]
pub(crate) struct Streams {
    ready: OwnedFd,
    lanes: [Lane; 2],
    buffer: Vec<u8>,
}

/// The writing ends, for the command.
pub(crate) struct WritingEnds {
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
}

#[derive(Debug)]
struct Lane {
    end: OwnedFd,
    is_open: bool,
    /// It is large, because it was alone and busy.
    is_wide: bool,
    /// The other stream has spoken since.
    is_disturbed: bool,
    /// It was left before it was empty; there will be no further word about what is in it.
    has_more: bool,
    /// Bytes that came since the other stream's last output.
    bytes: usize,
    pieces: usize,
}

impl Streams {
    /// Opens two pipes, for now of the usual size: the helper may print before they are read.
    pub(crate) fn open() -> io::Result<(Self, WritingEnds)> {
        let (stdout, to_stdout) = packet_pipe()?;
        let (stderr, to_stderr) = packet_pipe()?;
        let ready = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (number, end) in [(0, &stdout), (1, &stderr)] {
            rustix::io::ioctl_fionbio(end, true)?;
            let wanted = epoll::EventFlags::IN | epoll::EventFlags::ET;
            epoll::add(&ready, end, epoll::EventData::new_u64(number), wanted)?;
        }
        let lane = |end| Lane {
            end,
            is_open: true,
            is_wide: false,
            is_disturbed: false,
            has_more: false,
            bytes: 0,
            pieces: 0,
        };
        let streams = Self {
            ready,
            lanes: [lane(stdout), lane(stderr)],
            buffer: vec![0; USUAL],
        };
        let ends = WritingEnds {
            stdout: to_stdout,
            stderr: to_stderr,
        };
        Ok((streams, ends))
    }

    /// Keeps the order from here on, now that the pipes are read. What is there already comes first.
    pub(crate) fn keep_order(&mut self) {
        for lane in &mut self.lanes {
            if fcntl_setpipe_size(&lane.end, PAGE).is_err() {
                lane.is_wide = true;
                lane.is_disturbed = true;
                lane.has_more = true;
            }
        }
    }

    /// Becomes readable when a stream has something.
    pub(crate) fn ready(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    /// True if there is data that [`ready`](Self::ready) does not report.
    pub(crate) fn has_more(&self) -> bool {
        self.lanes.iter().any(|lane| lane.has_more)
    }

    /// Passes on what is there, in order, and returns how many bytes it was.
    pub(crate) fn pass_on(&mut self, give: OutputFn<'_>) -> usize {
        let mut passed = 0;
        for number in 0..self.lanes.len() {
            if self.lanes[number].has_more {
                passed += self.take(number, give);
            }
        }
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; 2];
        let count = epoll::wait(&self.ready, &mut events[..], Some(&AT_ONCE)).unwrap_or(0);
        for event in &events[..count] {
            let (flags, data) = (event.flags, event.data);
            let number = usize::from(data.u64() != 0);
            // The end of a stream is reported once, together with the last piece in it.
            if flags.contains(epoll::EventFlags::HUP) {
                self.lanes[number].is_wide = true;
            }
            passed += self.take(number, give);
        }
        passed
    }

    /// Passes on what is left, in no particular order: for when epoll can report nothing more.
    pub(crate) fn drain(&mut self, most: usize, give: OutputFn<'_>) {
        for number in 0..self.lanes.len() {
            let mut taken = 0;
            while self.lanes[number].is_open && taken <= most {
                match self.read(number, 0) {
                    0 => break,
                    count => {
                        give(stream(number), &self.buffer[..count]);
                        taken += count;
                    }
                }
            }
        }
    }

    fn take(&mut self, number: usize, give: OutputFn<'_>) -> usize {
        let taken = if self.lanes[number].is_wide {
            self.take_all(number, give)
        } else {
            self.take_one(number, give)
        };
        if taken > 0 {
            let other = &mut self.lanes[1 - number];
            other.is_disturbed = other.is_wide;
            other.bytes = 0;
            other.pieces = 0;
        }
        taken
    }

    /// One piece: what was written after it may come behind a piece of the other stream.
    fn take_one(&mut self, number: usize, give: OutputFn<'_>) -> usize {
        let count = self.read(number, 0);
        if count == 0 {
            return 0;
        }
        give(stream(number), &self.buffer[..count]);
        let lane = &mut self.lanes[number];
        lane.pieces += 1;
        lane.bytes += count;
        let is_large = lane.bytes >= BUSY_BYTES && lane.bytes / lane.pieces >= BUSY_PIECE;
        // A user with very many pipes gets no more than the usual size.
        let widen = |end: &OwnedFd| {
            fcntl_setpipe_size(end, WIDE).is_ok() || fcntl_setpipe_size(end, USUAL).is_ok()
        };
        if (is_large || lane.pieces >= BUSY_PIECES) && widen(&lane.end) {
            lane.is_wide = true;
            lane.is_disturbed = false;
        }
        count
    }

    /// All there is, in large pieces, as long as it is this stream's turn.
    fn take_all(&mut self, number: usize, give: OutputFn<'_>) -> usize {
        let mut taken = 0;
        let mut is_empty = false;
        while !is_empty && taken < TURN {
            let mut filled = 0;
            // A piece that does not fit into what is left of the buffer would lose its end.
            while !is_empty && filled + PAGE <= self.buffer.len() {
                let count = self.read(number, filled);
                is_empty = count == 0;
                filled += count;
            }
            if filled > 0 {
                give(stream(number), &self.buffer[..filled]);
            }
            taken += filled;
        }
        let lane = &mut self.lanes[number];
        lane.has_more = !is_empty;
        // With more than one piece in it the kernel refuses, and it is tried again the next time.
        if is_empty && lane.is_disturbed && fcntl_setpipe_size(&lane.end, PAGE).is_ok() {
            lane.is_wide = false;
            lane.bytes = 0;
            lane.pieces = 0;
        }
        taken
    }

    /// Reads once, to `from` in the buffer; nothing when there is nothing now or any more.
    fn read(&mut self, number: usize, from: usize) -> usize {
        let lane = &mut self.lanes[number];
        loop {
            match rustix::io::read(&lane.end, &mut self.buffer[from..]) {
                Ok(0) => lane.is_open = false,
                Ok(count) => return count,
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::AGAIN) => {}
                Err(_) => lane.is_open = false,
            }
            if !lane.is_open {
                // Epoll would report it for ever.
                let _ = epoll::delete(&self.ready, &lane.end);
            }
            return 0;
        }
    }
}

fn stream(number: usize) -> Stream {
    match number {
        0 => Stream::Stdout,
        _ => Stream::Stderr,
    }
}

/// A pipe that does not join writes. A kernel that cannot give that gives a plain one, whose order
/// is right as far as we are fast enough.
fn packet_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let pipe = pipe_with(PipeFlags::CLOEXEC | PipeFlags::DIRECT);
    Ok(pipe.or_else(|_| pipe_with(PipeFlags::CLOEXEC))?)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;

    use super::*;

    /// Takes until both ends are closed.
    fn collect(streams: &mut Streams) -> Vec<(Stream, Vec<u8>)> {
        let mut all: Vec<(Stream, Vec<u8>)> = Vec::new();
        while streams.lanes.iter().any(|lane| lane.is_open) {
            let mut events = [rustix::event::PollFd::new(
                &streams.ready,
                rustix::event::PollFlags::IN,
            )];
            if !streams.has_more() {
                rustix::event::poll(&mut events, None).unwrap();
            }
            streams.pass_on(&mut |stream, bytes| match all.last_mut() {
                Some((last, text)) if *last == stream => text.extend_from_slice(bytes),
                _ => all.push((stream, bytes.to_vec())),
            });
        }
        all
    }

    #[test]
    fn small_writes_come_in_the_order_they_were_made() {
        let (mut streams, ends) = Streams::open().unwrap();
        streams.keep_order();
        let writer = std::thread::spawn(move || {
            let (mut stdout, mut stderr) = (File::from(ends.stdout), File::from(ends.stderr));
            for number in 0..2_000 {
                writeln!(stdout, "o{number}").unwrap();
                if number % 3 == 0 {
                    writeln!(stdout, "and").unwrap();
                }
                writeln!(stderr, "e{number}").unwrap();
            }
        });
        let all = collect(&mut streams);
        writer.join().unwrap();
        let expected = (0..2_000).flat_map(|number| {
            let and = if number % 3 == 0 { "and\n" } else { "" };
            [
                (Stream::Stdout, format!("o{number}\n{and}").into_bytes()),
                (Stream::Stderr, format!("e{number}\n").into_bytes()),
            ]
        });
        assert!(all.into_iter().eq(expected));
    }

    #[test]
    fn no_writer_waits_for_a_reader_before_the_order_counts() {
        let (mut streams, ends) = Streams::open().unwrap();
        let (mut stdout, mut stderr) = (File::from(ends.stdout), File::from(ends.stderr));
        for _ in 0..10 {
            stderr.write_all(b"early").unwrap();
        }
        streams.keep_order();
        let writer = std::thread::spawn(move || {
            for _ in 0..10 {
                stdout.write_all(b"o").unwrap();
                stderr.write_all(b"e").unwrap();
            }
        });
        let all = collect(&mut streams);
        writer.join().unwrap();
        let early = b"early".repeat(10);
        assert!(all[0].1.starts_with(&early) && all[0].0 == Stream::Stderr);
    }

    #[test]
    fn a_busy_stream_gets_room_and_gives_it_back() {
        let (mut streams, ends) = Streams::open().unwrap();
        streams.keep_order();
        let writer = std::thread::spawn(move || {
            let (mut stdout, mut stderr) = (File::from(ends.stdout), File::from(ends.stderr));
            for round in 0..3 {
                stdout.write_all(&vec![b'0' + round; 3 << 20]).unwrap();
                stderr.write_all(&[b'a'; 10_000]).unwrap();
            }
            for _ in 0..10_000 {
                stdout.write_all(b"x").unwrap();
            }
            for _ in 0..500 {
                stderr.write_all(b"e").unwrap();
                stdout.write_all(b"o").unwrap();
            }
        });
        let all = collect(&mut streams);
        writer.join().unwrap();
        let total = |wanted| -> Vec<u8> {
            let of_stream = all.iter().filter(|(stream, _)| *stream == wanted);
            of_stream.flat_map(|(_, bytes)| bytes.clone()).collect()
        };
        let expected: Vec<u8> = (0..3)
            .flat_map(|round| vec![b'0' + round; 3 << 20])
            .chain(vec![b'x'; 10_000])
            .chain(vec![b'o'; 500])
            .collect();
        assert!(total(Stream::Stdout) == expected);
        assert_eq!(total(Stream::Stderr).len(), 30_500);
        // Where the run of small pieces ends may be off by what the pipe held; then it is exact.
        let exact: Vec<(Stream, Vec<u8>)> = (0..400)
            .flat_map(|_| {
                [
                    (Stream::Stderr, b"e".to_vec()),
                    (Stream::Stdout, b"o".to_vec()),
                ]
            })
            .collect();
        assert!(all.ends_with(&exact));
    }
}
