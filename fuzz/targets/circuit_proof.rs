//! The header of a circuit proof. The body has a fixed length and is the back end's to read; its
//! tests are in crates/circuits/tests.

#![no_main]

use confide_circuits::ProofHeader;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok((header, body)) = ProofHeader::parse(data) {
        assert_eq!(header.encode_proof(body), data);
    }
});
