//! Path and query of a PCCS's request: what is accepted is kept under a key that says the same.
#![no_main]

use confide_pccs::{DocumentRequest, parse_request};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (path, query) = match text.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (text, None),
    };
    let Ok(wanted) = parse_request(path, query) else { return };
    let key = wanted.key();
    assert!(key.len() <= 256 && key.is_ascii());
    if let Some(again) = DocumentRequest::from_stored_key(wanted.kind(), &key) {
        assert_eq!((again.kind(), again.key()), (wanted.kind(), key));
    }
});
