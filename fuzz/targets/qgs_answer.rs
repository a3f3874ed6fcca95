//! An answer of the quote generation service.
#![no_main]

use confide_attester::qgs;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(quote) = qgs::decode_quote(data) {
        assert!(data.ends_with(quote));
    }
});
