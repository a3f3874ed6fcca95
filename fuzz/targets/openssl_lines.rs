//! The machine-readable lines of openssl speed.
#![no_main]

use confide_tools::openssl;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(rates) = openssl::read(text) else { return };
    let any = !rates.signatures.is_empty() || !rates.agreements.is_empty();
    assert!(any || !rates.bytes.is_empty());
});
