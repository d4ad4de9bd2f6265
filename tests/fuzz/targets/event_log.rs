//! The log reader: no bytes panic it, how they arrive changes nothing, it accounts for every byte,
//! and what it reads it can write and read again. Read models take whatever came out.
#![no_main]

use std::io::Read;

use agent_protocol::Event;
use agent_protocol::id::SessionId;
use agent_history::fold::{Fold, ReadModels};
use agent_log::{LogItem, LogReader, verify_chain};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|log: &[u8]| {
    let items = read(log);
    assert_eq!(read(Dribble(log)), items);

    let lines = log.split_inclusive(|byte| *byte == b'\n');
    assert_eq!(items.len(), lines.clone().count());
    for (item, line) in items.iter().zip(lines) {
        assert_eq!(item.line, line.strip_suffix(b"\n").unwrap_or(line));
        assert!(item.event.is_some() || item.damage.is_some());
    }

    let chain = verify_chain(log, &session()).expect("memory can be read");
    let damaged = items.iter().filter(|item| item.damage.is_some()).count();
    assert!(chain.damage_count <= damaged as u64, "the reader overlooks what the chain shows");

    let mut models = ReadModels::default();
    for event in items.iter().filter_map(|item| item.event.as_ref()) {
        models.fold(event);
        let written = event.to_line().expect("a read event can be written");
        let again = Event::from_line(&written).expect("a written event can be read");
        assert_eq!(again.to_line().expect("it can be written again"), written);
    }
});

/// One byte at a time.
struct Dribble<'a>(&'a [u8]);

impl Read for Dribble<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let room = buffer.len().min(1);
        self.0.read(&mut buffer[..room])
    }
}

fn read(log: impl Read) -> Vec<LogItem> {
    LogReader::new(log, session(), "events.jsonl".into())
        .noting()
        .map(|item| item.expect("memory can be read"))
        .collect()
}

fn session() -> SessionId {
    "ses_01m7h6beg00000007242m3jyrx".parse().expect("an id")
}
