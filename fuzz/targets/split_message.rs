//! Messages of split mode: what is accepted has tokens, in the shape that it claims.
#![no_main]

use confide_report_003::split_mode::frame::{
    Input, SplitRequest, parse_answer, parse_binary, parse_text,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for asked in [parse_binary(bytes), parse_text(bytes)].into_iter().flatten() {
        let SplitRequest::Forward(forward) = asked else { continue };
        match forward.input {
            Input::Ids(ids) => assert!(!ids.is_empty()),
            Input::Rows(rows) => {
                assert!(!rows.is_empty() && rows.iter().all(|value| value.is_finite()));
            }
        }
    }
    if let Ok((_, values)) = parse_answer(bytes) {
        assert!(values.iter().all(|value| value.is_finite()));
    }
});
