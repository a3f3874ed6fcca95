//! What names a platform and its documents: chips, signers, CAs and TCB recoveries.

use std::{fmt, str::FromStr};

use confide_evidence::{foreign_text, snp::Product};

use crate::{error::CollateralError, limits::IDENTIFIER_LENGTH_MAX};

/// The choice among Intel's TCB recoveries for which documents are fetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Evaluation {
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
    pub signer: Signer,
    /// The reported TCB, as the report's eight bytes.
    pub tcb: [u8; 8],
}

/// The signer of a report.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signer {
    /// The chip's own key; the identifier as KDS expects it (64 bytes, for Turin 8).
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

impl fmt::Display for Evaluation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Standard => f.write_str("standard"),
            Self::Early => f.write_str("early"),
            Self::Number(number) => number.fmt(f),
        }
    }
}

impl FromStr for Evaluation {
    type Err = CollateralError;

    fn from_str(text: &str) -> Result<Self, CollateralError> {
        match text {
            "standard" => Ok(Self::Standard),
            "early" => Ok(Self::Early),
            number => number.parse().map(Self::Number).map_err(|_| {
                let wanted = "standard, early or a TCB evaluation data number";
                unknown_platform(wanted, foreign_text(text))
            }),
        }
    }
}

impl Signer {
    /// Whether the key was loaded for a cloud provider.
    pub fn is_vlek(&self) -> bool {
        matches!(self, Self::Vlek(_))
    }
}

impl Ca {
    /// The name in Intel's addresses: `platform` or `processor`.
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
            other => Err(unknown_platform("platform or processor", other.to_owned())),
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

/// The product line of this name, or of a processor of this name, in any case.
///
/// # Errors
/// [`CollateralError::Platform`] if no product has this name.
pub fn product_of(name: &str) -> Result<Product, CollateralError> {
    match name.to_ascii_lowercase().as_str() {
        "milan" => Ok(Product::Milan),
        "genoa" | "bergamo" | "siena" => Ok(Product::Genoa),
        "turin" => Ok(Product::Turin),
        other => Err(unknown_platform("milan, genoa or turin", foreign_text(other))),
    }
}

/// The text, where it may stand in an address and in the name of a file.
pub(crate) fn identifier(text: &str) -> Result<&str, CollateralError> {
    let fits = |character: char| character.is_ascii_alphanumeric() || "._".contains(character);
    let good = !text.is_empty()
        && text.len() <= IDENTIFIER_LENGTH_MAX
        && !text.starts_with('.')
        && text.chars().all(fits);
    good.then_some(text).ok_or_else(|| {
        unknown_platform("letters, digits, dots and underscores", foreign_text(text))
    })
}

/// The error for a platform that is not known.
pub(crate) fn unknown_platform(wanted: &'static str, got: String) -> CollateralError {
    CollateralError::Platform { wanted, got }
}
