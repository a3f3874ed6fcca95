//! A stream of events in slots: each has the same size, a reader finds the model server's events, and nothing else is
//! changed.
#![no_main]

use confide_gateway::SlotQueue;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, stream)) = bytes.split_first() else { return };
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
        let sent = slots.concat();
        assert_eq!(read_events(&sent), read_events(stream));
        // Without a colon of the model server's, every comment is a filler, and the rest is the stream byte for byte.
        if !stream.contains(&b':') {
            assert_eq!(without_comments(&sent), stream);
        }
    }
});

/// The events of a stream, each as its lines, without comments and without events that have no other line (HTML
/// standard, section 9.2.6). The last one may be incomplete.
fn read_events(stream: &[u8]) -> Vec<Vec<&[u8]>> {
    let (mut events, mut event) = (Vec::new(), Vec::new());
    let mut rest = stream;
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        let (line, after) = rest.split_at(end.unwrap_or(rest.len()));
        rest = after.strip_prefix(b"\r\n").unwrap_or_else(|| after.get(1..).unwrap_or_default());
        match line {
            [] if event.is_empty() => {}
            [] => events.push(std::mem::take(&mut event)),
            [b':', ..] => {}
            line => event.push(line),
        }
    }
    events.extend(Some(event).filter(|event| !event.is_empty()));
    events
}

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
