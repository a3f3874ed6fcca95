//! A CMW in CBOR or JSON; what is read is the same after it was written, and may be evidence.
#![no_main]

use confide_evidence::{cmw::parse_cmw, evidence_wrapper::EvidenceWrapper};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(cmw) = parse_cmw(data) else { return };
    let encoded = cmw.encode();
    // Content that came as JSON or as a tag may be longer in CBOR than the limit.
    if let Ok(again) = parse_cmw(&encoded) {
        assert_eq!(again.encode(), encoded);
    }
    if let Ok(wrapper) = EvidenceWrapper::from_cmw(cmw) {
        assert_eq!(EvidenceWrapper::from_cmw(wrapper.to_cmw()), Ok(wrapper));
    }
});
