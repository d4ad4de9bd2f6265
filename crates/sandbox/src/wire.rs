//! Frames between the agent and its helper: a length, a tag, fields. Both ends are the same
//! binary, so there is no version; bytes that do not parse end the launch.

use std::ffi::OsString;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

/// Larger than any plan: the command, the environment and a few thousand paths.
const MAX_FRAME: usize = 16 << 20;

#[derive(Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn with_tag(tag: u8) -> Self {
        Self(vec![tag])
    }

    /// The same frame, to be sent again.
    pub(crate) fn copy_of(frame: &Reader) -> Self {
        Self(frame.bytes.clone())
    }

    pub(crate) fn number(&mut self, value: u64) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(crate) fn flag(&mut self, value: bool) -> &mut Self {
        self.number(u64::from(value))
    }

    pub(crate) fn optional(&mut self, value: Option<u64>) -> &mut Self {
        self.flag(value.is_some()).number(value.unwrap_or(0))
    }

    pub(crate) fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.number(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    pub(crate) fn path(&mut self, value: &Path) -> &mut Self {
        self.bytes(value.as_os_str().as_bytes())
    }

    pub(crate) fn list<T>(
        &mut self,
        values: &[T],
        mut each: impl FnMut(&mut Self, &T),
    ) -> &mut Self {
        self.number(values.len() as u64);
        for value in values {
            each(self, value);
        }
        self
    }

    pub(crate) fn paths(&mut self, values: &[PathBuf]) -> &mut Self {
        self.list(values, |writer, path| {
            writer.path(path);
        })
    }

    /// Sends the frame; `fds` travel with its first byte.
    pub(crate) fn send(&self, socket: impl AsFd, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let length = (self.0.len() as u32).to_le_bytes();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let sent = retry(|| {
            rustix::net::sendmsg(
                &socket,
                &[IoSlice::new(&length), IoSlice::new(&self.0)],
                &mut ancillary,
                SendFlags::NOSIGNAL,
            )
        })?;
        // A stream socket may take only a part; the descriptors went with the first byte.
        let mut rest: Vec<u8> = [&length[..], &self.0].concat().split_off(sent);
        while !rest.is_empty() {
            let sent = retry(|| rustix::net::send(&socket, &rest, SendFlags::NOSIGNAL))?;
            rest = rest.split_off(sent);
        }
        Ok(())
    }
}

/// A received frame, read field by field.
pub(crate) struct Reader {
    pub(crate) tag: u8,
    bytes: Vec<u8>,
    at: usize,
    pub(crate) fds: Vec<OwnedFd>,
}

impl Reader {
    /// Waits for a frame; `None` when the other end is gone.
    pub(crate) fn receive(socket: impl AsFd) -> io::Result<Option<Self>> {
        let mut fds = Vec::new();
        let mut length = [0; 4];
        if !fill(&socket, &mut length, &mut fds)? {
            return Ok(None);
        }
        let length = u32::from_le_bytes(length) as usize;
        if length == 0 || length > MAX_FRAME {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut bytes = vec![0; length];
        if !fill(&socket, &mut bytes, &mut fds)? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Some(Self {
            tag: bytes[0],
            bytes,
            at: 1,
            fds,
        }))
    }

    pub(crate) fn number(&mut self) -> io::Result<u64> {
        let bytes = self.take(8)?;
        let mut value = [0; 8];
        value.copy_from_slice(bytes);
        Ok(u64::from_le_bytes(value))
    }

    pub(crate) fn flag(&mut self) -> io::Result<bool> {
        Ok(self.number()? != 0)
    }

    pub(crate) fn optional(&mut self) -> io::Result<Option<u64>> {
        let present = self.flag()?;
        let value = self.number()?;
        Ok(present.then_some(value))
    }

    pub(crate) fn bytes(&mut self) -> io::Result<Vec<u8>> {
        let length = self.number()? as usize;
        Ok(self.take(length)?.to_vec())
    }

    pub(crate) fn os_string(&mut self) -> io::Result<OsString> {
        Ok(OsString::from_vec(self.bytes()?))
    }

    pub(crate) fn text(&mut self) -> io::Result<String> {
        Ok(String::from_utf8_lossy(&self.bytes()?).into_owned())
    }

    pub(crate) fn path(&mut self) -> io::Result<PathBuf> {
        Ok(PathBuf::from(self.os_string()?))
    }

    pub(crate) fn list<T>(
        &mut self,
        mut each: impl FnMut(&mut Self) -> io::Result<T>,
    ) -> io::Result<Vec<T>> {
        let count = self.number()?;
        let mut values = Vec::new();
        for _ in 0..count {
            values.push(each(self)?);
        }
        Ok(values)
    }

    pub(crate) fn paths(&mut self) -> io::Result<Vec<PathBuf>> {
        self.list(Self::path)
    }

    fn take(&mut self, length: usize) -> io::Result<&[u8]> {
        let end = self
            .at
            .checked_add(length)
            .ok_or(io::ErrorKind::InvalidData)?;
        let bytes = self
            .bytes
            .get(self.at..end)
            .ok_or(io::ErrorKind::InvalidData)?;
        self.at = end;
        Ok(bytes)
    }
}

/// Fills `buffer`; false when the stream ended before its first byte.
fn fill(socket: impl AsFd, buffer: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<bool> {
    let mut filled = 0;
    while filled < buffer.len() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = retry(|| {
            rustix::net::recvmsg(
                &socket,
                &mut [IoSliceMut::new(&mut buffer[filled..])],
                &mut ancillary,
                RecvFlags::CMSG_CLOEXEC,
            )
        })?;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                fds.extend(received);
            }
        }
        if received.bytes == 0 {
            return if filled == 0 {
                Ok(false)
            } else {
                Err(io::ErrorKind::UnexpectedEof.into())
            };
        }
        filled += received.bytes;
    }
    Ok(true)
}

/// Repeats a call that a signal interrupted.
pub(crate) fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    #[test]
    fn a_frame_arrives_as_it_was_sent_with_its_descriptor() {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        let large = vec![7; 1 << 20];
        let copy = large.clone();
        let sender = std::thread::spawn(move || {
            let mut writer = Writer::with_tag(3);
            writer
                .number(9)
                .optional(None)
                .bytes(&copy)
                .paths(&[PathBuf::from("/a")]);
            writer.send(&ours, &[ours.as_fd()]).unwrap();
        });
        let mut reader = Reader::receive(&theirs).unwrap().unwrap();
        sender.join().unwrap();
        assert_eq!(
            (
                reader.tag,
                reader.number().unwrap(),
                reader.optional().unwrap()
            ),
            (3, 9, None)
        );
        assert_eq!(reader.bytes().unwrap(), large);
        assert_eq!(reader.paths().unwrap(), [PathBuf::from("/a")]);
        assert_eq!(reader.fds.len(), 1);
        assert!(reader.number().is_err(), "nothing is left to read");
        drop(reader);
        assert!(
            Reader::receive(&theirs).unwrap().is_none(),
            "the other end is gone"
        );
    }
}
