//! The platform whose endorsements a piece of evidence needs, read from bytes that nobody has
//! verified yet.

use std::fmt;

use confide_evidence::{
    Kind, ParseError,
    certificate::Certificate,
    detect,
    pck::PckExtension,
    pem::decode_chain,
    quote::{Quote, Tee},
    snp::{Product, Report, SigningKey},
};

use crate::{
    document::DocumentKey,
    error::CollateralError,
    identity::{AmdKey, Ca, Evaluation, Signer, unknown_platform},
};

/// The platform that a set of endorsements belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Platform {
    /// A family of Intel's processors.
    Dcap {
        /// Family-Model-Stepping-Platform-CustomSKU.
        fmspc: [u8; 6],
        /// The CA that issued the PCK certificate.
        ca: Ca,
        /// SGX or TDX.
        tee: Tee,
    },
    /// One of AMD's chips at one TCB.
    Snp(AmdKey),
}

impl Platform {
    /// The platform that the evidence names; it says nothing about whether the evidence is genuine.
    ///
    /// Reports before version 3 do not tell which product made them: `product` does then.
    ///
    /// # Errors
    /// If the evidence cannot be read, or names no platform that is known here.
    pub fn of_evidence(evidence: &[u8], product: Option<Product>) -> Result<Self, CollateralError> {
        if detect(evidence) == Some(Kind::SnpReport) {
            return of_report(Report::parse(evidence)?, product).map(Self::Snp);
        }
        let quote = Quote::parse(evidence)?;
        let chain = decode_chain("PCK chain", quote.pck_chain)?;
        let leaf = chain.first().ok_or(ParseError::Missing { subject: "PCK certificate" })?;
        let leaf = Certificate::parse("PCK certificate", leaf)?;
        let missing = ParseError::Missing { subject: "SGX extension of the PCK certificate" };
        let extension = PckExtension::parse(leaf.sgx_extension.ok_or(missing)?)?;
        Ok(Self::Dcap { fmspc: extension.fmspc, ca: ca_of(leaf.issuer)?, tee: quote.tee() })
    }

    /// The documents of the platform's set, in the order in which they are put together.
    pub fn documents(&self, evaluation: Evaluation) -> Vec<DocumentKey> {
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

fn of_report(report: Report<'_>, named: Option<Product>) -> Result<AmdKey, CollateralError> {
    let product = match report.cpuid() {
        None => named.ok_or_else(|| {
            let wanted = "the product by name: a report before version 3 does not say it";
            unknown_platform(wanted, "none".into())
        })?,
        Some(cpu) => Product::from_cpuid(cpu.family, cpu.model).ok_or_else(|| {
            let got = format!("family {:#x} model {:#x}", cpu.family, cpu.model);
            unknown_platform("Milan, Genoa or Turin", got)
        })?,
    };
    if report.signing_key() != SigningKey::Vcek {
        let wanted = "a VCEK as signing key: AMD gives VLEKs to the cloud provider only";
        return Err(unknown_platform(wanted, report.signing_key().to_string()));
    }
    let chip = &report.chip_id()[..product.chip_id_length()];
    if chip.iter().all(|byte| *byte == 0) {
        return Err(unknown_platform("a chip identifier", "a masked one".into()));
    }
    let tcb = *report.reported_tcb();
    Ok(AmdKey { product, signer: Signer::Vcek(chip.to_vec()), tcb })
}

fn ca_of(issuer: &[u8]) -> Result<Ca, CollateralError> {
    let names = |wanted: &[u8]| issuer.windows(wanted.len()).any(|part| part == wanted);
    match (names(b"PCK Platform CA"), names(b"PCK Processor CA")) {
        (true, false) => Ok(Ca::Platform),
        (false, true) => Ok(Ca::Processor),
        _ => Err(unknown_platform(
            "Intel SGX PCK Platform CA or Processor CA as issuer",
            "another".into(),
        )),
    }
}
