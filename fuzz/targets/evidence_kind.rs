//! Evidence of any kind: where a parser accepts it, detection has to name the same kind.
#![no_main]

use confide_evidence::{EvidenceKind, detect_kind, gpu::GpuEvidence, quote::Quote, snp::Report};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let kind = detect_kind(data);
    if let Ok(quote) = Quote::parse(data) {
        let wanted = match quote.tee().as_str() {
            "sgx" => EvidenceKind::SgxQuote,
            _ => EvidenceKind::TdxQuote,
        };
        assert_eq!(kind, Some(wanted));
    }
    if Report::parse(data).is_ok() {
        assert_eq!(kind, Some(EvidenceKind::SnpReport));
    }
    if GpuEvidence::is_container(data) {
        assert_eq!(kind, Some(EvidenceKind::GpuEvidence));
    }
});
