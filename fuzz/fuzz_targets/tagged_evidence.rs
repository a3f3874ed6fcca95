//! Certificate extensions with evidence and collateral: whatever is read is what would be written.
#![no_main]

use confide_evidence::tagged_evidence::{TaggedCollateral, TaggedEvidence};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(evidence) = TaggedEvidence::decode(bytes) {
        assert_eq!(evidence.encode(), bytes);
    }
    if let Ok(collateral) = TaggedCollateral::decode(bytes) {
        assert_eq!(collateral.encode(), bytes);
    }
});
