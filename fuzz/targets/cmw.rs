//! A CMW in CBOR or JSON; what is read is the same after it was written, and may be evidence.
#![no_main]

use confide_evidence::{cmw::parse_cmw, evidence_wrapper::EvidenceWrapper};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(cmw) = parse_cmw(data) else { return };
    // No form of a wrapper is shorter than its deterministic CBOR, so this fits the limit too.
    let encoded = cmw.encode();
    assert!(encoded.len() <= data.len());
    assert_eq!(parse_cmw(&encoded).map(|again| again.encode()), Ok(encoded));
    if let Ok(wrapper) = EvidenceWrapper::from_cmw(cmw) {
        assert_eq!(EvidenceWrapper::from_cmw(wrapper.to_cmw()), Ok(wrapper));
    }
});
