//! The input of the guest `dcap`: what is read is what would be written, and the program ends on it.
#![no_main]

use confide_guest_dcap::{DcapInput, run};
use confide_verifier::AwsLc;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(input) = DcapInput::decode(bytes) {
        assert_eq!(input.encode(), bytes);
    }
    let _ = run(bytes, &AwsLc);
});
