//! A stream of events in slots: each has the same size, and without the comments the bytes are the engine's.
#![no_main]

use confide_gateway::SlotQueue;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, stream)) = bytes.split_first() else { return };
    // Fillers would be taken for comments of the engine's.
    if stream.contains(&b':') {
        return;
    }
    let (record_bytes, step) = (u16::from(first % 16) + 3, u16::from(first / 16) + 1);
    for piece_bytes in [1, 7, stream.len().max(1)] {
        let mut queue = SlotQueue::new(record_bytes, step);
        let mut slots = Vec::new();
        for piece in stream.chunks(piece_bytes) {
            if queue.push(piece).is_err() {
                return;
            }
            slots.extend(queue.next_slot());
        }
        queue.end();
        slots.extend(std::iter::from_fn(|| queue.next_slot()));
        assert!(queue.is_over());
        assert!(slots.iter().all(|slot| slot.len() == usize::from(record_bytes)));
        assert_eq!(slots.len() % usize::from(step), 0);
        assert_eq!(without_comments(&slots.concat()), stream);
    }
});

/// The stream without its comments: a colon, spaces and two line feeds.
fn without_comments(stream: &[u8]) -> Vec<u8> {
    let (mut rest, mut events) = (stream, Vec::new());
    while let Some(start) = rest.iter().position(|byte| *byte == b':') {
        events.extend_from_slice(&rest[..start]);
        let comment = &rest[start + 1..];
        let spaces = comment.iter().take_while(|byte| **byte == b' ').count();
        rest = comment[spaces..].strip_prefix(b"\n\n").expect("a comment ends with an empty line");
    }
    events.extend_from_slice(rest);
    events
}
