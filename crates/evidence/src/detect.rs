//! Detects the kind of evidence by its first bytes and its length.

use core::fmt;

use crate::{
    gpu::{self, GpuEvidence},
    snp::REPORT_LENGTH,
};

/// Kinds of evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A DCAP quote of an SGX enclave.
    SgxQuote,
    /// A DCAP quote of a TDX trust domain.
    TdxQuote,
    /// An AMD SEV-SNP attestation report.
    SnpReport,
    /// Evidence of an NVIDIA GPU: a report, raw or in hexadecimal, or this project's container.
    GpuEvidence,
}

impl Kind {
    /// `sgx-quote`, `tdx-quote`, `snp-report` or `gpu-evidence`.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::SgxQuote => "sgx-quote",
            Kind::TdxQuote => "tdx-quote",
            Kind::SnpReport => "snp-report",
            Kind::GpuEvidence => "gpu-evidence",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::SgxQuote => "an SGX quote",
            Kind::TdxQuote => "a TDX quote",
            Kind::SnpReport => "an SEV-SNP report",
            Kind::GpuEvidence => "GPU evidence",
        })
    }
}

/// The kind that the bytes look like; only their parser can say whether they are well formed.
///
/// At most one kind fits: a quote has key type 2 where the higher half of a report's version is
/// zero, and neither begins as an SPDM request or as CBOR.
pub fn detect(bytes: &[u8]) -> Option<Kind> {
    if GpuEvidence::is_container(bytes) || gpu::is_report(bytes) {
        return Some(Kind::GpuEvidence);
    }
    let head: &[u8; 8] = bytes.first_chunk()?;
    match head {
        [3..=5, 0, 2, 0, 0, 0, 0, 0] => Some(Kind::SgxQuote),
        [3..=5, 0, 2, 0, 0x81, 0, 0, 0] => Some(Kind::TdxQuote),
        [version, 0, 0, 0, ..] if *version >= 2 && bytes.len() == REPORT_LENGTH => {
            Some(Kind::SnpReport)
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
        let quote = |version: u8, tee: u8| detect(&[version, 0, 2, 0, tee, 0, 0, 0, 9]);
        for version in 3..=5 {
            assert_eq!(quote(version, 0), Some(Kind::SgxQuote));
            assert_eq!(quote(version, 0x81), Some(Kind::TdxQuote));
            assert_eq!(quote(version, 0x82), None);
        }
        assert_eq!(quote(2, 0), None);
        assert_eq!(quote(6, 0x81), None);
        let mut report = vec![0; REPORT_LENGTH];
        assert_eq!(detect(&report), None);
        for version in [2, 3, 5, 9] {
            report[0] = version;
            assert_eq!(detect(&report), Some(Kind::SnpReport));
            assert_eq!(detect(&report[1..]), None);
        }
        assert_eq!(detect(&[0x11, 0xe0, 1, 0xff]), Some(Kind::GpuEvidence));
        assert_eq!(detect(b" 11E001ff"), Some(Kind::GpuEvidence));
        for nothing in [&b""[..], b"{}", b"-----BEGIN", &[0; 4600]] {
            assert_eq!(detect(nothing), None);
        }
    }
}
