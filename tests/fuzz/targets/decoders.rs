//! Every wire decoder: whatever a server sends, it neither panics nor hangs, and where the stream is
//! cut changes nothing. The first byte chooses the dialect.
#![no_main]

use agent_provider::quirks::GENERIC;
use agent_provider::{Decoder, Dialect, decode_all};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((first, stream)) = data.split_first() else { return };
    let dialect = Dialect::ALL[usize::from(*first) % 3];
    let whole = decode_all(dialect, &GENERIC, stream);
    let (head, tail) = stream.split_at(stream.len() / 2);
    let mut decoder = Decoder::new(dialect, &GENERIC);
    let mut pieces = Vec::new();
    decoder.feed(head, &mut pieces);
    decoder.feed(tail, &mut pieces);
    decoder.finish(&mut pieces);
    assert_eq!(pieces, whole);
});
