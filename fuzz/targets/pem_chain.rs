//! A PEM chain of certificates.
#![no_main]

use confide_evidence::{certificate::Certificate, pem::decode_chain};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for der in decode_chain("chain", data).unwrap_or_default() {
        let _ = Certificate::parse("certificate", &der);
    }
});
