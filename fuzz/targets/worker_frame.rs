//! Frames of a worker to `confide serve`, cut anywhere, and the messages in them.

#![no_main]

// The files are included, because the crate around them brings a tokenizer; what this end writes is
// not used here.
#[allow(dead_code)]
#[path = "../../crates/worker/src/frame.rs"]
mod frame;
#[allow(dead_code)]
#[path = "../../crates/worker/src/message.rs"]
mod message;
#[allow(dead_code)]
#[path = "../../crates/worker/src/sites.rs"]
mod sites;

use frame::{FRAME_BYTES_MAX, Frame, FrameReader};
use libfuzzer_sys::fuzz_target;
use message::WorkerMessage;

fuzz_target!(|data: &[u8]| {
    // The first byte says how the rest is cut.
    let Some((cut, bytes)) = data.split_first() else { return };
    let (mut whole, mut cut_up) = (FrameReader::default(), FrameReader::default());
    whole.push(bytes);
    let at_once = frames(&mut whole);
    let mut piecewise = Vec::new();
    for part in bytes.chunks(usize::from(*cut).max(1)) {
        cut_up.push(part);
        piecewise.extend(frames(&mut cut_up));
    }
    assert_eq!(at_once, piecewise);
    for (kind, payload) in at_once {
        assert!(payload.len() < FRAME_BYTES_MAX);
        match WorkerMessage::parse(Frame { kind, payload: &payload }) {
            Ok(WorkerMessage::DeltaRequest(need)) => {
                assert!(need.rows.len() % need.width == 0 && !need.rows.is_empty());
                assert!(!need.values.is_empty() && !need.outputs.is_empty());
            }
            Ok(WorkerMessage::Tokens(tokens)) => assert!(!tokens.is_empty()),
            Ok(WorkerMessage::Welcome(welcome)) => assert!(!welcome.weights.contains('\u{1b}')),
            _ => {}
        }
    }
});

/// Reads frames until there are no more, or the next one is refused.
fn frames(reader: &mut FrameReader) -> Vec<(u8, Vec<u8>)> {
    let mut found = Vec::new();
    while let Ok(Some(frame)) = reader.next_frame() {
        found.push((frame.kind, frame.payload.to_vec()));
    }
    found
}
