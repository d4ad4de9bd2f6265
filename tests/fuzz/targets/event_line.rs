//! The reader of log lines: no line panics it, and what it reads it can write and read again.
#![no_main]

use agent_protocol::Event;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|line: &[u8]| {
    if let Ok(event) = Event::from_line(line) {
        let written = event.to_line().expect("a read event can be written");
        let again = Event::from_line(&written).expect("a written event can be read");
        assert_eq!(again.to_line().expect("it can be written again"), written);
    }
});
