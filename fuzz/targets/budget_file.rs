//! A budget file: what is read is written again, and a last line that a crash cut short counts nothing.
#![no_main]

use confide_lora::host::{format_answer_counts, parse_answer_counts};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(counts) = parse_answer_counts(text) else { return };
    let again =
        parse_answer_counts(&format_answer_counts(&counts)).expect("what was read is written");
    assert_eq!(again, counts);
    if text.ends_with('\n') {
        let torn = parse_answer_counts(&format!("{text}{{")).expect("a torn line is ignored");
        assert_eq!(torn, counts);
    }
});
