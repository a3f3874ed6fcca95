//! The endorsements of an SEV-SNP report, JSON.
#![no_main]

use confide_evidence::{pem, snp_endorsements::SnpEndorsements};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(endorsements) = SnpEndorsements::parse(data) {
        assert_eq!(SnpEndorsements::parse(&endorsements.to_json()), Ok(endorsements.clone()));
        let _ = pem::decode_chain("chain", endorsements.chain.as_bytes());
    }
});
