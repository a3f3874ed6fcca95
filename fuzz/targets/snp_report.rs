//! An SEV-SNP attestation report.
#![no_main]

use confide_evidence::snp::Report;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(report) = Report::parse(data) {
        assert_eq!(report.signed_bytes(), &data[..0x2a0]);
        let _ = (report.signature(), report.cpuid(), report.mitigations(), report.signing_key());
    }
});
