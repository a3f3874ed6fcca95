//! Reads messages of HTTP/1.1 that come in pieces.

use bytes::BytesMut;
use confide_http::http1::{BodyDecoder, BodyFraming, BodyPiece, HeadLimits, Http1Error};

pub const LIMITS: HeadLimits = HeadLimits { bytes: 1024, fields: 16 };

/// The heads and the bytes of bodies that were read before the end or an error.
#[derive(Default, PartialEq)]
pub struct Progress {
    pub heads: Vec<String>,
    pub body: Vec<u8>,
}

/// Reads messages to the end of `bytes`, which come in pieces of `step`; where that is even, small
/// chunks of a body are joined. `parse_head` takes the next head, as a text that tells it from others,
/// with the framing of its body.
pub fn read_messages(
    bytes: &[u8],
    step: usize,
    progress: &mut Progress,
    mut parse_head: impl FnMut(&mut BytesMut) -> Result<Option<(String, BodyFraming)>, Http1Error>,
) -> Result<(), Http1Error> {
    let mut pieces = bytes.chunks(step);
    let mut received = BytesMut::new();
    loop {
        let Some((head, framing)) = parse_head(&mut received)? else {
            let Some(piece) = pieces.next() else { return Ok(()) };
            received.extend_from_slice(piece);
            continue;
        };
        progress.heads.push(head);
        let mut decoder = BodyDecoder::new(framing, LIMITS);
        if step.is_multiple_of(2) {
            decoder = decoder.joining_small_chunks();
        }
        loop {
            match decoder.decode(&mut received)? {
                BodyPiece::Data(data) => {
                    assert!(!data.is_empty());
                    progress.body.extend_from_slice(&data);
                }
                BodyPiece::Trailers(fields) => progress.heads.push(format!("{fields:?}")),
                BodyPiece::End => break,
                BodyPiece::Incomplete => match pieces.next() {
                    Some(piece) => received.extend_from_slice(piece),
                    None => decoder.finish()?,
                },
            }
        }
        assert!(decoder.is_complete());
    }
}
