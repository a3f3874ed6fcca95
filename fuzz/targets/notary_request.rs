//! A client's request to a notary, the notary's answer, and its policy file.
#![no_main]

use confide_notary::{FetchRequest, FrameReader, NotaryPolicy, limits::REQUEST_HEAD_BYTES_MAX};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = FetchRequest::decode(bytes) {
        match request.encode() {
            Ok(written) => {
                let again = FetchRequest::decode(&written).expect("what is written is read");
                assert_eq!(again, request);
            }
            // In its one spelling an address may be a few bytes longer than it was.
            Err(_) => assert!(bytes.len() > REQUEST_HEAD_BYTES_MAX - 64),
        }
        // One request line, its fields, one empty line: no value makes a second message.
        let transcript = request.transcript_bytes();
        let head = &transcript[..transcript.len() - request.body().len()];
        let lines = head.windows(2).filter(|pair| pair == b"\r\n").count();
        assert_eq!(lines, request.sent_fields().len() + 2);
        assert!(head.ends_with(b"\r\n\r\n") && !head.contains(&0));
    }
    let mut frames = FrameReader::default();
    let _ = frames.push(bytes).and_then(|_| frames.finish());
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = NotaryPolicy::from_toml(text);
    }
});
