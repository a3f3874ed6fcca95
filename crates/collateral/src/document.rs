//! One signed document: its name, its time of validity, and its number.

use std::{fmt, str::FromStr};

use confide_evidence::{quote::Tee, snp::Product};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use sha2::{Digest, Sha256};

use crate::{
    error::CollateralError,
    identity::{AmdKey, AmdSigner, PckIssuer, TcbEvaluation, check_identifier, parse_product},
};

/// The name of a document.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DocumentKey {
    /// Revocations by Intel's root.
    IntelRootCrl,
    /// Revocations by one of Intel's CAs for PCK certificates.
    IntelPckCrl(PckIssuer),
    /// Security versions of a processor family.
    TcbInfo {
        /// SGX or TDX.
        tee: Tee,
        /// The processor family: Family-Model-Stepping-Platform-CustomSKU.
        fmspc: [u8; 6],
        /// The TCB recovery that is asked for.
        evaluation: TcbEvaluation,
    },
    /// The identity that Intel requires of its quoting enclave.
    QeIdentity {
        /// SGX or TDX.
        tee: Tee,
        /// The TCB recovery that is asked for.
        evaluation: TcbEvaluation,
    },
    /// A VCEK or VLEK certificate.
    AmdKey(AmdKey),
    /// The certificates that issue VCEKs or VLEKs: ASK or ASVK, then ARK.
    AmdChain {
        /// The product line.
        product: Product,
        /// ASVK instead of ASK.
        vlek: bool,
    },
    /// Revocations by AMD's root.
    AmdCrl {
        /// The product line.
        product: Product,
        /// The list for VLEKs instead of the one for VCEKs.
        vlek: bool,
    },
}

/// A document and the fields parsed from it; the store has it as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// The name of the document.
    #[serde(
        rename = "name",
        serialize_with = "serialize_key",
        deserialize_with = "deserialize_key"
    )]
    pub key: DocumentKey,
    /// The service that it came from.
    pub service: String,
    /// JSON, DER or PEM, exactly as signed; in hexadecimal in the store.
    #[serde(serialize_with = "serialize_hex", deserialize_with = "deserialize_hex")]
    pub content: Vec<u8>,
    /// The issuers as PEM, signer first; empty if the format has none.
    pub chain: String,
    /// The signature in hexadecimal: r, then s; empty if the content includes the signature.
    pub signature: String,
    /// The first Unix second at which the document is valid.
    pub issued: u64,
    /// The last Unix second at which the document is valid.
    pub until: u64,
    /// CRL number or TCB evaluation data number; 0 if there is none.
    pub number: u64,
    /// The Unix second at which the document was fetched.
    pub fetched_at: u64,
}

/// The number and the issue date of a document, which decide whether it is older than another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DocumentVersion {
    pub(crate) number: u64,
    pub(crate) issued: u64,
}

/// The time of validity and the number of a document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DocumentValidity {
    /// The first Unix second at which the document is valid.
    pub(crate) issued: u64,
    /// The last Unix second at which the document is valid.
    pub(crate) until: u64,
    /// CRL number or TCB evaluation data number; 0 if there is none.
    pub(crate) number: u64,
}

impl Document {
    /// A document without chain, signature, service and time of fetching; the caller sets them.
    pub(crate) fn new(key: &DocumentKey, content: Vec<u8>, dates: DocumentValidity) -> Self {
        let DocumentValidity { issued, until, number } = dates;
        let (service, chain, signature) = Default::default();
        let key = key.clone();
        Self { key, service, content, chain, signature, issued, until, number, fetched_at: 0 }
    }

    pub(crate) fn is_valid_at(&self, now: u64) -> bool {
        (self.issued..=self.until).contains(&now)
    }

    pub(crate) fn version(&self) -> DocumentVersion {
        DocumentVersion { number: self.number, issued: self.issued }
    }

    /// SHA-256 of the root certificate in the document's chain; `None` if it has no chain.
    pub(crate) fn root_digest(&self) -> Option<[u8; 32]> {
        let chain = match &self.key {
            DocumentKey::AmdChain { .. } => &self.content[..],
            _ => self.chain.as_bytes(),
        };
        let chain = confide_evidence::pem::decode_chain("issuer chain", chain).ok()?;
        Some(Sha256::digest(chain.last()?).into())
    }
}

fn serialize_key<S: Serializer>(key: &DocumentKey, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(key)
}

fn deserialize_key<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DocumentKey, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

fn serialize_hex<S: Serializer>(content: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&hex::encode(content))
}

fn deserialize_hex<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    hex::decode(String::deserialize(deserializer)?).map_err(D::Error::custom)
}

impl DocumentKey {
    /// Whether one edition of the document can be older than another one. AMD's certificates have
    /// one edition only.
    pub(crate) fn is_versioned(&self) -> bool {
        !matches!(self, Self::AmdKey(_) | Self::AmdChain { .. })
    }

    /// Whether the edition `got` is older than the edition `seen`.
    ///
    /// A CRL is older if its number or its date is lower (RFC 5280 section 5.2.3; Intel's number
    /// stays 1). A TCB document for a new recovery may have been signed on an earlier day than the
    /// last one: the number decides, and between equal numbers the date.
    pub(crate) fn is_older(&self, got: DocumentVersion, seen: DocumentVersion) -> bool {
        match self {
            Self::TcbInfo { .. } | Self::QeIdentity { .. } => {
                (got.number, got.issued) < (seen.number, seen.issued)
            }
            _ => got.number < seen.number || got.issued < seen.issued,
        }
    }
}

/// The name, which is also the name of a file: lower case, digits and dashes, and dots in
/// identifiers.
impl fmt::Display for DocumentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::IntelRootCrl => f.write_str("intel-root-crl"),
            Self::IntelPckCrl(ca) => write!(f, "intel-pck-crl-{}", ca.as_str()),
            Self::TcbInfo { tee, fmspc, evaluation } => {
                write!(f, "intel-tcb-info-{}-{}-{evaluation}", tee.as_str(), hex::encode(fmspc))
            }
            Self::QeIdentity { tee, evaluation } => {
                write!(f, "intel-qe-identity-{}-{evaluation}", tee.as_str())
            }
            Self::AmdKey(AmdKey { product, signer, tcb }) => {
                let (product, tcb) = (product_name(*product), hex::encode(tcb));
                match signer {
                    AmdSigner::Vcek(chip) => {
                        write!(f, "amd-vcek-{product}-{}-{tcb}", hex::encode(chip))
                    }
                    AmdSigner::Vlek(provider) => write!(f, "amd-vlek-{product}-{provider}-{tcb}"),
                }
            }
            Self::AmdChain { product, vlek } => {
                write!(f, "amd-chain-{}-{}", key_kind_name(*vlek), product_name(*product))
            }
            Self::AmdCrl { product, vlek } => {
                write!(f, "amd-crl-{}-{}", key_kind_name(*vlek), product_name(*product))
            }
        }
    }
}

impl FromStr for DocumentKey {
    type Err = CollateralError;

    fn from_str(text: &str) -> Result<Self, CollateralError> {
        let got =
            || CollateralError::DocumentName { got: confide_evidence::escape_untrusted(text) };
        let parts: Vec<&str> = text.split('-').collect();
        let key = match parts.as_slice() {
            ["intel", "root", "crl"] => Self::IntelRootCrl,
            ["intel", "pck", "crl", ca] => Self::IntelPckCrl(ca.parse()?),
            ["intel", "tcb", "info", tee, fmspc, evaluation] => Self::TcbInfo {
                tee: parse_tee(tee).ok_or_else(got)?,
                fmspc: decode_array(fmspc).ok_or_else(got)?,
                evaluation: evaluation.parse()?,
            },
            ["intel", "qe", "identity", tee, evaluation] => Self::QeIdentity {
                tee: parse_tee(tee).ok_or_else(got)?,
                evaluation: evaluation.parse()?,
            },
            ["amd", "vcek", product, chip, tcb] => Self::AmdKey(AmdKey {
                product: parse_product(product)?,
                signer: AmdSigner::Vcek(parse_chip_id(chip).ok_or_else(got)?),
                tcb: decode_array(tcb).ok_or_else(got)?,
            }),
            ["amd", "vlek", product, provider, tcb] => Self::AmdKey(AmdKey {
                product: parse_product(product)?,
                signer: AmdSigner::Vlek(check_identifier(provider)?.to_owned()),
                tcb: decode_array(tcb).ok_or_else(got)?,
            }),
            ["amd", "chain", kind, product] => Self::AmdChain {
                product: parse_product(product)?,
                vlek: parse_key_kind(kind).ok_or_else(got)?,
            },
            ["amd", "crl", kind, product] => Self::AmdCrl {
                product: parse_product(product)?,
                vlek: parse_key_kind(kind).ok_or_else(got)?,
            },
            _ => return Err(got()),
        };
        // Only one spelling is accepted for each document, because the name is also a file name.
        if key.to_string() == text { Ok(key) } else { Err(got()) }
    }
}

fn parse_tee(text: &str) -> Option<Tee> {
    [Tee::Sgx, Tee::Tdx].into_iter().find(|tee| tee.as_str() == text)
}

fn product_name(product: Product) -> String {
    product.as_str().to_ascii_lowercase()
}

pub(crate) fn key_kind_name(vlek: bool) -> &'static str {
    if vlek { "vlek" } else { "vcek" }
}

fn parse_key_kind(text: &str) -> Option<bool> {
    [false, true].into_iter().find(|vlek| key_kind_name(*vlek) == text)
}

fn parse_chip_id(text: &str) -> Option<Vec<u8>> {
    hex::decode(text).ok().filter(|chip| matches!(chip.len(), 8 | 64))
}

fn decode_array<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    hex::decode_to_slice(text, &mut bytes).ok()?;
    Some(bytes)
}
