//! Detects the kind of evidence by its first bytes and its length.

use core::fmt;

use crate::{
    gpu::{self, GpuEvidence},
    snp::REPORT_LENGTH,
};

/// Kinds of evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvidenceKind {
    /// A DCAP quote of an SGX enclave.
    SgxQuote,
    /// A DCAP quote of a TDX trust domain.
    TdxQuote,
    /// An AMD SEV-SNP attestation report.
    SnpReport,
    /// Evidence of an NVIDIA GPU: a report, raw or in hexadecimal, or this project's container.
    GpuEvidence,
}

impl EvidenceKind {
    /// `sgx-quote`, `tdx-quote`, `snp-report` or `gpu-evidence`.
    pub fn as_str(self) -> &'static str {
        match self {
            EvidenceKind::SgxQuote => "sgx-quote",
            EvidenceKind::TdxQuote => "tdx-quote",
            EvidenceKind::SnpReport => "snp-report",
            EvidenceKind::GpuEvidence => "gpu-evidence",
        }
    }
}

impl fmt::Display for EvidenceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EvidenceKind::SgxQuote => "an SGX quote",
            EvidenceKind::TdxQuote => "a TDX quote",
            EvidenceKind::SnpReport => "an SEV-SNP report",
            EvidenceKind::GpuEvidence => "GPU evidence",
        })
    }
}

/// The kind that the bytes look like; only their parser can say whether they are well formed.
///
/// At most one kind fits: a quote has key type 2 where the higher half of a report's version is
/// zero, and neither begins as an SPDM request or as CBOR.
pub fn detect_kind(bytes: &[u8]) -> Option<EvidenceKind> {
    if GpuEvidence::is_container(bytes) || gpu::is_report(bytes) {
        return Some(EvidenceKind::GpuEvidence);
    }
    let head: &[u8; 8] = bytes.first_chunk()?;
    match head {
        [3..=5, 0, 2, 0, 0, 0, 0, 0] => Some(EvidenceKind::SgxQuote),
        [3..=5, 0, 2, 0, 0x81, 0, 0, 0] => Some(EvidenceKind::TdxQuote),
        [version, 0, 0, 0, ..] if *version >= 2 && bytes.len() == REPORT_LENGTH => {
            Some(EvidenceKind::SnpReport)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn each_kind_is_known_by_its_first_bytes() {
        let quote = |version: u8, tee: u8| detect_kind(&[version, 0, 2, 0, tee, 0, 0, 0, 9]);
        for version in 3..=5 {
            assert_eq!(quote(version, 0), Some(EvidenceKind::SgxQuote));
            assert_eq!(quote(version, 0x81), Some(EvidenceKind::TdxQuote));
            assert_eq!(quote(version, 0x82), None);
        }
        assert_eq!(quote(2, 0), None);
        assert_eq!(quote(6, 0x81), None);
        let mut report = vec![0; REPORT_LENGTH];
        assert_eq!(detect_kind(&report), None);
        for version in [2, 3, 5, 9] {
            report[0] = version;
            assert_eq!(detect_kind(&report), Some(EvidenceKind::SnpReport));
            assert_eq!(detect_kind(&report[1..]), None);
        }
        assert_eq!(detect_kind(&[0x11, 0xe0, 1, 0xff]), Some(EvidenceKind::GpuEvidence));
        assert_eq!(detect_kind(b" 11E001ff"), Some(EvidenceKind::GpuEvidence));
        for nothing in [&b""[..], b"{}", b"-----BEGIN", &[0; 4600]] {
            assert_eq!(detect_kind(nothing), None);
        }
    }
}
