//! The platform whose endorsements a piece of evidence needs, parsed from evidence that is not yet
//! verified.

use std::fmt;

use confide_evidence::{
    EvidenceKind, ParseError,
    certificate::Certificate,
    detect_kind,
    pck::PckExtension,
    pem::decode_chain,
    quote::{Quote, Tee},
    snp::{Product, Report, SigningKey},
};

use crate::{
    document::DocumentKey,
    error::CollateralError,
    identity::{AmdKey, AmdSigner, PckIssuer, TcbEvaluation, unknown_platform_error},
};

/// The platform that a set of endorsements belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Platform {
    /// A family of Intel's processors.
    Dcap {
        /// Family-Model-Stepping-Platform-CustomSKU.
        fmspc: [u8; 6],
        /// The CA that issued the PCK certificate.
        ca: PckIssuer,
        /// SGX or TDX.
        tee: Tee,
    },
    /// One AMD chip at one TCB.
    Snp(AmdKey),
}

impl Platform {
    /// Parses the platform from evidence, without verifying the evidence.
    ///
    /// `product` is the product line for reports before version 3, which do not contain it.
    ///
    /// # Errors
    /// If the evidence cannot be read, or its platform is unknown.
    pub fn from_evidence(
        evidence: &[u8],
        product: Option<Product>,
    ) -> Result<Self, CollateralError> {
        if detect_kind(evidence) == Some(EvidenceKind::SnpReport) {
            return amd_key_from_report(Report::parse(evidence)?, product).map(Self::Snp);
        }
        let quote = Quote::parse(evidence)?;
        let chain = decode_chain("PCK chain", quote.pck_chain)?;
        let leaf = chain.first().ok_or(ParseError::Missing { subject: "PCK certificate" })?;
        let leaf = Certificate::parse("PCK certificate", leaf)?;
        let missing = ParseError::Missing { subject: "SGX extension of the PCK certificate" };
        let extension = PckExtension::parse(leaf.sgx_extension.ok_or(missing)?)?;
        Ok(Self::Dcap {
            fmspc: extension.fmspc,
            ca: parse_pck_issuer(leaf.issuer)?,
            tee: quote.tee(),
        })
    }

    /// The documents of the platform's set, in the order in which the set lists them.
    pub fn document_keys(&self, evaluation: TcbEvaluation) -> Vec<DocumentKey> {
        match self {
            Self::Dcap { fmspc, ca, tee } => vec![
                DocumentKey::IntelRootCrl,
                DocumentKey::IntelPckCrl(*ca),
                DocumentKey::TcbInfo { tee: *tee, fmspc: *fmspc, evaluation },
                DocumentKey::QeIdentity { tee: *tee, evaluation },
            ],
            Self::Snp(key) => {
                let (product, vlek) = (key.product, key.signer.is_vlek());
                vec![
                    DocumentKey::AmdKey(key.clone()),
                    DocumentKey::AmdChain { product, vlek },
                    DocumentKey::AmdCrl { product, vlek },
                ]
            }
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dcap { fmspc, ca, tee } => {
                write!(f, "{} {} {}", tee.as_str(), hex::encode(fmspc), ca.as_str())
            }
            Self::Snp(key) => key.fmt(f),
        }
    }
}

fn amd_key_from_report(
    report: Report<'_>,
    named: Option<Product>,
) -> Result<AmdKey, CollateralError> {
    let product = match report.cpuid() {
        None => named.ok_or_else(|| {
            let wanted =
                "the name of the product line, which reports before version 3 do not contain";
            unknown_platform_error(wanted, "none".into())
        })?,
        Some(cpu) => Product::from_cpuid(cpu.family, cpu.model).ok_or_else(|| {
            let got = format!("family {:#x} model {:#x}", cpu.family, cpu.model);
            unknown_platform_error("Milan, Genoa or Turin", got)
        })?,
    };
    if report.signing_key() != SigningKey::Vcek {
        let wanted = "a VCEK as signing key: AMD issues VLEKs only to cloud providers";
        return Err(unknown_platform_error(wanted, report.signing_key().to_string()));
    }
    let chip = &report.chip_id()[..product.chip_id_length()];
    if chip.iter().all(|byte| *byte == 0) {
        return Err(unknown_platform_error("a chip identifier", "a masked one".into()));
    }
    let tcb = *report.reported_tcb();
    Ok(AmdKey { product, signer: AmdSigner::Vcek(chip.to_vec()), tcb })
}

fn parse_pck_issuer(issuer: &[u8]) -> Result<PckIssuer, CollateralError> {
    let names = |wanted: &[u8]| issuer.windows(wanted.len()).any(|part| part == wanted);
    match (names(b"PCK Platform CA"), names(b"PCK Processor CA")) {
        (true, false) => Ok(PckIssuer::Platform),
        (false, true) => Ok(PckIssuer::Processor),
        _ => Err(unknown_platform_error(
            "Intel SGX PCK Platform CA or Processor CA as issuer",
            "another".into(),
        )),
    }
}
