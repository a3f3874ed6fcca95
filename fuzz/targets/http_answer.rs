//! An answer of HTTP/1.1 and the events in its body; the first byte says how it is cut.
#![no_main]

use confide_load::{EventStreamParser, EventTooLong, ResponseParser};
use libfuzzer_sys::fuzz_target;

/// The status, whether the answer is whole, its body and the data of its events; `None` if it is
/// not HTTP.
fn read(bytes: &[u8], size: usize) -> Option<(u16, bool, Vec<u8>, Vec<Vec<u8>>)> {
    let (mut answer, mut events) = (ResponseParser::default(), EventStreamParser::default());
    let (mut body, mut told) = (Vec::new(), Vec::new());
    for piece in bytes.chunks(size.max(1)) {
        let mut part = Vec::new();
        answer.feed(piece, |bytes| part.extend_from_slice(bytes)).ok()?;
        let each = |data: &[u8]| -> Result<(), EventTooLong> {
            told.push(data.to_vec());
            Ok(())
        };
        events.feed(&part, each).ok()?;
        body.extend_from_slice(&part);
    }
    Some((answer.status(), answer.is_done(), body, told))
}

fuzz_target!(|data: &[u8]| {
    let Some((size, bytes)) = data.split_first() else { return };
    // The answer is the same, however its bytes are cut.
    assert_eq!(read(bytes, usize::from(*size)), read(bytes, bytes.len()));
});
