//! A DCAP quote.
#![no_main]

use confide_evidence::quote::Quote;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(quote) = Quote::parse(data) {
        assert!(quote.signed.len() + quote.padding_length < data.len());
        let _ = quote.report_data();
    }
});
