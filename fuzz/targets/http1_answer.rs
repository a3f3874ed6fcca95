//! Answers of HTTP/1.1: what is read does not depend on the pieces in which it came.
#![no_main]

mod pieces;

use confide_http::http1::{AnswerHeadParser, Http1Error};
use http::Method;
use libfuzzer_sys::fuzz_target;
use pieces::{LIMITS, Progress, read_messages};

fn read_answers(bytes: &[u8], step: usize, progress: &mut Progress) -> Result<(), Http1Error> {
    let mut parser = AnswerHeadParser::new(LIMITS);
    read_messages(bytes, step, progress, |received| {
        let Some(mut head) = parser.parse(received)? else { return Ok(None) };
        let framing = head.frame_body(&Method::GET)?;
        Ok(Some((format!("{head:?} {framing:?}"), framing)))
    })
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&step, bytes)) = bytes.split_first() else { return };
    let (mut whole, mut pieces) = (Progress::default(), Progress::default());
    let outcome = read_answers(bytes, bytes.len().max(1), &mut whole);
    let other = read_answers(bytes, usize::from(step).max(1), &mut pieces);
    assert_eq!(outcome.is_ok(), other.is_ok());
    assert!(whole == pieces, "the pieces matter");
});
