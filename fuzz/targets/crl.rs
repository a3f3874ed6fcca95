//! A revocation list, DER.
#![no_main]

use confide_evidence::crl::CrlDates;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = CrlDates::parse("list", data);
});
