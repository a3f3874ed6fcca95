//! The identifiers of platforms and of their documents: chips, signers, CAs and TCB recoveries.

use std::{fmt, str::FromStr};

use confide_evidence::{escape_untrusted, snp::Product};

use crate::{error::CollateralError, limits::IDENTIFIER_LENGTH_MAX};

/// The choice among Intel's TCB recoveries for which documents are fetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TcbEvaluation {
    /// The recovery that Intel enforces now.
    #[default]
    Standard,
    /// The newest recovery that is published.
    Early,
    /// The recovery with this TCB evaluation data number.
    Number(u32),
}

/// The endorsement key of one chip, or of one cloud provider, at one TCB.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AmdKey {
    /// The product line.
    pub product: Product,
    /// The owner of the key: a chip or a cloud provider.
    pub signer: AmdSigner,
    /// The reported TCB, as the report's eight bytes.
    pub tcb: [u8; 8],
}

/// The signer of a report.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AmdSigner {
    /// The chip's own key, by the chip's identifier at KDS: 8 bytes for Turin, 64 for the others.
    Vcek(Vec<u8>),
    /// The key of a cloud provider, by the provider's name at KDS.
    Vlek(String),
}

/// Intel's CAs for PCK certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PckIssuer {
    /// Multi-package platforms: all TDX machines.
    Platform,
    /// Single-package platforms.
    Processor,
}

impl fmt::Display for TcbEvaluation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Standard => f.write_str("standard"),
            Self::Early => f.write_str("early"),
            Self::Number(number) => number.fmt(f),
        }
    }
}

impl FromStr for TcbEvaluation {
    type Err = CollateralError;

    fn from_str(text: &str) -> Result<Self, CollateralError> {
        match text {
            "standard" => Ok(Self::Standard),
            "early" => Ok(Self::Early),
            number => number.parse().map(Self::Number).map_err(|_| {
                let wanted = "standard, early or a TCB evaluation data number";
                unknown_platform_error(wanted, escape_untrusted(text))
            }),
        }
    }
}

impl AmdSigner {
    /// Whether the key belongs to a cloud provider.
    pub fn is_vlek(&self) -> bool {
        matches!(self, Self::Vlek(_))
    }
}

impl PckIssuer {
    /// The name in Intel's addresses: `platform` or `processor`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Platform => "platform",
            Self::Processor => "processor",
        }
    }
}

impl FromStr for PckIssuer {
    type Err = CollateralError;

    fn from_str(text: &str) -> Result<Self, CollateralError> {
        match text {
            "platform" => Ok(Self::Platform),
            "processor" => Ok(Self::Processor),
            other => Err(unknown_platform_error("platform or processor", other.to_owned())),
        }
    }
}

impl fmt::Display for AmdKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (product, tcb) = (self.product.as_str(), hex::encode(self.tcb));
        match &self.signer {
            AmdSigner::Vcek(chip) => {
                let chip = hex::encode(&chip[..chip.len().min(8)]);
                write!(f, "SNP {product} chip {chip} TCB {tcb}")
            }
            AmdSigner::Vlek(provider) => write!(f, "SNP {product} provider {provider} TCB {tcb}"),
        }
    }
}

/// Parses the name of a product line, or of one of its processors, in upper or lower case.
///
/// # Errors
/// [`CollateralError::UnknownPlatform`] if no product has this name.
pub fn parse_product(name: &str) -> Result<Product, CollateralError> {
    match name.to_ascii_lowercase().as_str() {
        "milan" => Ok(Product::Milan),
        "genoa" | "bergamo" | "siena" => Ok(Product::Genoa),
        "turin" => Ok(Product::Turin),
        other => Err(unknown_platform_error("milan, genoa or turin", escape_untrusted(other))),
    }
}

/// Returns the text if it may be part of an address and of a file name.
pub(crate) fn check_identifier(text: &str) -> Result<&str, CollateralError> {
    let fits = |character: char| character.is_ascii_alphanumeric() || "._".contains(character);
    let good = !text.is_empty()
        && text.len() <= IDENTIFIER_LENGTH_MAX
        && !text.starts_with('.')
        && text.chars().all(fits);
    good.then_some(text).ok_or_else(|| {
        unknown_platform_error("letters, digits, dots and underscores", escape_untrusted(text))
    })
}

/// The error for an unknown platform.
pub(crate) fn unknown_platform_error(wanted: &'static str, got: String) -> CollateralError {
    CollateralError::UnknownPlatform { wanted, got }
}
