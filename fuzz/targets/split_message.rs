//! Messages of split mode: what is accepted has tokens, in the shape that it claims.
#![no_main]

use confide_report_003::split_mode::frame::{
    SplitRequest, TokenInput, parse_binary_answer, parse_binary_message, parse_text_message,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for asked in [parse_binary_message(bytes), parse_text_message(bytes)].into_iter().flatten() {
        let SplitRequest::Forward(forward) = asked else { continue };
        match forward.input {
            TokenInput::Ids(ids) => assert!(!ids.is_empty()),
            TokenInput::Embeddings(rows) => {
                assert!(!rows.is_empty() && rows.iter().all(|value| value.is_finite()));
            }
        }
    }
    if let Ok((_, values)) = parse_binary_answer(bytes) {
        assert!(values.iter().all(|value| value.is_finite()));
    }
});
