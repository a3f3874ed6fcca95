//! Which endorsements a piece of evidence needs: read from bytes that nobody has verified yet.

use std::{fmt, str::FromStr};

use confide_evidence::{
    ParseError,
    certificate::Certificate,
    pck::PckExtension,
    pem::decode_chain,
    quote::{Quote, Tee},
};

use crate::{CollateralError, DocumentKey, Evaluation, limits::IDENTIFIER_LENGTH_MAX};

/// An SEV-SNP attestation report (AMD 56860, table 22) has one length.
const SNP_REPORT_LENGTH: usize = 1184;

/// What endorsements belong to.
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
    /// One chip of AMD's at one TCB.
    Snp(AmdKey),
}

/// The endorsement key of one chip, or of one cloud provider, at one TCB.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AmdKey {
    /// The product line.
    pub product: Product,
    /// Whose key it is.
    pub signer: Signer,
    /// The reported TCB, as the report's eight bytes.
    pub tcb: [u8; 8],
}

/// Who signed a report.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signer {
    /// The chip's own key; the identifier as KDS wants it (64 bytes, Turin 8).
    Vcek(Vec<u8>),
    /// A key loaded for a cloud provider, by the provider's name at KDS.
    Vlek(String),
}

/// Intel's CAs for PCK certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ca {
    /// Multi-package platforms: all TDX machines.
    Platform,
    /// Single-package platforms.
    Processor,
}

/// AMD's product lines, by the name that KDS uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Product {
    /// Third generation.
    Milan,
    /// Fourth generation, with Bergamo and Siena.
    Genoa,
    /// Fifth generation.
    Turin,
}

impl Platform {
    /// The platform that the evidence names, and nothing about whether the evidence is genuine.
    ///
    /// Reports before version 3 do not say which product made them: `product` does then.
    pub fn of_evidence(evidence: &[u8], product: Option<Product>) -> Result<Self, CollateralError> {
        if evidence.len() == SNP_REPORT_LENGTH && evidence.get(1..4) == Some(&[0, 0, 0]) {
            return of_report(evidence, product).map(Self::Snp);
        }
        let quote = Quote::parse(evidence)?;
        let chain = decode_chain("PCK chain", quote.pck_chain)?;
        let leaf = chain.first().ok_or(ParseError::Missing { subject: "PCK certificate" })?;
        let leaf = Certificate::parse("PCK certificate", leaf)?;
        let missing = ParseError::Missing { subject: "SGX extension of the PCK certificate" };
        let extension = PckExtension::parse(leaf.sgx_extension.ok_or(missing)?)?;
        Ok(Self::Dcap { fmspc: extension.fmspc, ca: ca_of(leaf.issuer)?, tee: quote.tee() })
    }

    /// The documents that make its set.
    pub(crate) fn documents(&self, evaluation: Evaluation) -> Vec<DocumentKey> {
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

impl Signer {
    /// Whether it is a key loaded for a provider.
    pub fn is_vlek(&self) -> bool {
        matches!(self, Self::Vlek(_))
    }
}

impl Product {
    /// The name that KDS uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Milan => "Milan",
            Self::Genoa => "Genoa",
            Self::Turin => "Turin",
        }
    }

    /// By the family and model of a report (AMD 57230, section 3).
    fn of_cpu(family: u8, model: u8) -> Option<Self> {
        match (family, model) {
            (0x19, 0x00..=0x0f) => Some(Self::Milan),
            (0x19, 0x10..=0x1f | 0xa0..=0xaf) => Some(Self::Genoa),
            (0x1a, 0x00..=0x1f) => Some(Self::Turin),
            _ => None,
        }
    }
}

impl FromStr for Product {
    type Err = CollateralError;

    fn from_str(text: &str) -> Result<Self, CollateralError> {
        match text.to_ascii_lowercase().as_str() {
            "milan" => Ok(Self::Milan),
            "genoa" | "bergamo" | "siena" => Ok(Self::Genoa),
            "turin" => Ok(Self::Turin),
            other => Err(unknown("milan, genoa or turin", other.to_owned())),
        }
    }
}

impl Ca {
    /// As Intel's addresses spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Platform => "platform",
            Self::Processor => "processor",
        }
    }
}

impl FromStr for Ca {
    type Err = CollateralError;

    fn from_str(text: &str) -> Result<Self, CollateralError> {
        match text {
            "platform" => Ok(Self::Platform),
            "processor" => Ok(Self::Processor),
            other => Err(unknown("platform or processor", other.to_owned())),
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

impl fmt::Display for AmdKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (product, tcb) = (self.product.as_str(), hex::encode(self.tcb));
        match &self.signer {
            Signer::Vcek(chip) => {
                let chip = hex::encode(&chip[..chip.len().min(8)]);
                write!(f, "SNP {product} chip {chip} TCB {tcb}")
            }
            Signer::Vlek(provider) => write!(f, "SNP {product} provider {provider} TCB {tcb}"),
        }
    }
}

/// Offsets: AMD 56860, table 22.
fn of_report(report: &[u8], product: Option<Product>) -> Result<AmdKey, CollateralError> {
    let byte = |at: usize| report.get(at).copied().unwrap_or(0);
    let product = match byte(0) {
        0..=2 => product.ok_or_else(|| {
            unknown(
                "the product by name, as a report before version 3 does not say it",
                "none".into(),
            )
        })?,
        _ => Product::of_cpu(byte(0x188), byte(0x189)).ok_or_else(|| {
            let got = format!("family {:#x} model {:#x}", byte(0x188), byte(0x189));
            unknown("Milan, Genoa or Turin", got)
        })?,
    };
    let mut tcb = [0; 8];
    tcb.copy_from_slice(&report[0x180..0x188]);
    // Signing key: bits 2 to 4 of the flags, 0 for VCEK and 1 for VLEK.
    match byte(0x48) >> 2 & 7 {
        0 => {
            let id = &report[0x1a0..0x1e0];
            let id = if product == Product::Turin { &id[..8] } else { id };
            if id.iter().all(|byte| *byte == 0) {
                return Err(unknown("a chip identifier", "a masked one".into()));
            }
            Ok(AmdKey { product, signer: Signer::Vcek(id.to_vec()), tcb })
        }
        1 => Err(unknown("a VLEK stapled: AMD gives it to the cloud provider only", "none".into())),
        other => Err(unknown("VCEK or VLEK as signing key", format!("{other}"))),
    }
}

fn ca_of(issuer: &[u8]) -> Result<Ca, CollateralError> {
    let names = |wanted: &[u8]| issuer.windows(wanted.len()).any(|part| part == wanted);
    match (names(b"PCK Platform CA"), names(b"PCK Processor CA")) {
        (true, false) => Ok(Ca::Platform),
        (false, true) => Ok(Ca::Processor),
        _ => Err(unknown("Intel SGX PCK Platform CA or Processor CA as issuer", "another".into())),
    }
}

/// What may stand in an address and in the name of a file.
pub(crate) fn identifier(text: &str) -> Result<&str, CollateralError> {
    let fits = |character: char| character.is_ascii_alphanumeric() || "._".contains(character);
    let good = !text.is_empty()
        && text.len() <= IDENTIFIER_LENGTH_MAX
        && !text.starts_with('.')
        && text.chars().all(fits);
    good.then_some(text).ok_or_else(|| {
        unknown("letters, digits, dots and underscores", confide_evidence::foreign_text(text))
    })
}

fn unknown(wanted: &'static str, got: String) -> CollateralError {
    CollateralError::Platform { wanted, got }
}
