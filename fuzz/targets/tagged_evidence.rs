//! Tagged evidence and tagged collateral of a certificate.
#![no_main]

use confide_evidence::tagged_evidence::{TaggedCollateral, TaggedEvidence};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(evidence) = TaggedEvidence::decode(data) {
        assert_eq!(evidence.encode(), data);
    }
    if let Ok(collateral) = TaggedCollateral::decode(data) {
        assert_eq!(collateral.encode(), data);
    }
});
