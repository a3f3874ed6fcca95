//! An answer of Intel's service: a signed document and its signature.
#![no_main]

use confide_collateral::split_signed;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(signed) = split_signed(data, "tcbInfo") {
        // What was taken out stands in the answer as it is, and is JSON.
        let text = std::str::from_utf8(data).expect("it was read as text");
        assert!(text.contains(signed.document) && text.contains(signed.signature));
        assert!(signed.document.starts_with('{') && signed.document.ends_with('}'));
    }
});
