//! The commitments in a receipt that can be opened.

use confide_receipt::{COMMITMENT, Json, RECEIVED_EVENT, RETURNED_EVENT};
use confide_transcript::{Direction, DirectionCommitment};

/// The depths of the trees of bodies: 1 KiB to 16 MiB.
const DEPTHS: std::ops::RangeInclusive<i64> = 4..=18;

/// The type of the event of a body.
pub fn event_of(direction: Direction) -> &'static str {
    match direction {
        Direction::Request => RECEIVED_EVENT,
        Direction::Response => RETURNED_EVENT,
    }
}

/// The commitment in an event of a body; `None` if it has none that can be read.
pub fn read_commitment(event: &Json) -> Option<DirectionCommitment> {
    let commitment = event.get(COMMITMENT)?;
    let depth = match commitment.get("depth")? {
        Json::Integer(depth) if DEPTHS.contains(depth) => u8::try_from(*depth).ok()?,
        _ => return None,
    };
    let digest = |name| {
        let text = commitment.get_text(name)?;
        let mut digest = [0; 32];
        hex::decode_to_slice(text, &mut digest).ok()?;
        (hex::encode(digest) == text).then_some(digest)
    };
    Some(DirectionCommitment { depth, length: digest("length")?, root: digest("root")? })
}
