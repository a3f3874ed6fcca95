//! The usage in an event stream and in a JSON answer: where the bytes are cut changes nothing.
#![no_main]

use confide_gateway::UsageScanner;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for new_scanner in [UsageScanner::for_events, UsageScanner::for_json] {
        let mut scanner = new_scanner();
        scanner.read_piece(bytes);
        let whole = scanner.finish(true);
        let (first, second) = bytes.split_at(bytes.len() / 2);
        let mut scanner = new_scanner();
        scanner.read_piece(first);
        scanner.read_piece(second);
        assert_eq!(scanner.finish(true), whole);
        let mut scanner = new_scanner();
        bytes.iter().for_each(|byte| scanner.read_piece(std::slice::from_ref(byte)));
        assert_eq!(scanner.finish(true), whole);
    }
    // Of a document that is JSON, a whole parser reads the same counts.
    let Ok(document) = serde_json::from_slice::<serde_json::Value>(bytes) else { return };
    let text = document.to_string();
    let mut scanner = UsageScanner::for_json();
    scanner.read_piece(text.as_bytes());
    let usage = scanner.finish(true);
    let count = |name: &str| {
        let count = document["usage"][name].as_u64().filter(|count| *count <= 1 << 40);
        count.filter(|_| document["usage"].is_object())
    };
    let is_plain = ["message", "response"].iter().all(|name| document.get(name).is_none());
    if is_plain && document.is_object() && count("output_tokens").is_none() {
        assert_eq!(usage.completion_tokens, count("completion_tokens").unwrap_or(0));
    }
});
