//! Requests of HTTP/1.1: what is read does not depend on the pieces in which it came.
#![no_main]

mod pieces;

use confide_http::http1::{Http1Error, RequestHeadParser};
use libfuzzer_sys::fuzz_target;
use pieces::{LIMITS, Progress, read_messages};

fn read_requests(bytes: &[u8], step: usize, progress: &mut Progress) -> Result<(), Http1Error> {
    let mut parser = RequestHeadParser::new(LIMITS);
    read_messages(bytes, step, progress, |received| {
        let Some(mut head) = parser.parse(received)? else { return Ok(None) };
        let framing = head.frame_body()?;
        let text = format!("{head:?} {framing:?} {}", head.keeps_connection());
        Ok(Some((text, framing)))
    })
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&step, bytes)) = bytes.split_first() else { return };
    let (mut whole, mut pieces) = (Progress::default(), Progress::default());
    let outcome = read_requests(bytes, bytes.len().max(1), &mut whole);
    let other = read_requests(bytes, usize::from(step).max(1), &mut pieces);
    // A head that never ends may be refused at the first look at some of it, and not at all of it.
    if outcome.is_ok() && other.is_ok() {
        assert!(whole == pieces, "the pieces matter");
    }
    let both = whole.heads.len().min(pieces.heads.len());
    assert!(whole.heads[..both] == pieces.heads[..both], "the pieces matter");
});
