//! Enclave identity JSON.
#![no_main]

use confide_evidence::qe_identity::QeIdentity;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = QeIdentity::parse(text);
});
