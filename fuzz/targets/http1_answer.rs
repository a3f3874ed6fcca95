//! Answers of HTTP/1.1: what is read does not depend on the pieces in which it came.
#![no_main]

use bytes::BytesMut;
use confide_http::http1::{AnswerHeadParser, BodyDecoder, BodyPiece, HeadLimits, Http1Error};
use libfuzzer_sys::fuzz_target;

const LIMITS: HeadLimits = HeadLimits { bytes: 1024, fields: 16 };

/// The heads and the bytes of bodies that were read before the end or an error.
#[derive(Default, PartialEq)]
struct Progress {
    heads: Vec<String>,
    body: Vec<u8>,
}

fn read_answers(bytes: &[u8], step: usize, progress: &mut Progress) -> Result<(), Http1Error> {
    let mut pieces = bytes.chunks(step);
    let mut received = BytesMut::new();
    let mut parser = AnswerHeadParser::new(LIMITS);
    loop {
        let Some(mut head) = parser.parse(&mut received)? else {
            let Some(piece) = pieces.next() else { return Ok(()) };
            received.extend_from_slice(piece);
            continue;
        };
        let framing = head.frame_body(&"GET".parse().expect("a method"))?;
        progress.heads.push(format!("{head:?} {framing:?}"));
        let mut decoder = BodyDecoder::new(framing, LIMITS);
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

fuzz_target!(|bytes: &[u8]| {
    let Some((&step, bytes)) = bytes.split_first() else { return };
    let (mut whole, mut pieces) = (Progress::default(), Progress::default());
    let outcome = read_answers(bytes, bytes.len().max(1), &mut whole);
    let other = read_answers(bytes, usize::from(step).max(1), &mut pieces);
    assert_eq!(outcome.is_ok(), other.is_ok());
    assert!(whole == pieces, "the pieces matter");
});
