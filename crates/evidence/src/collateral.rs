//! DCAP collateral: the endorsements that go with a quote, as one JSON object.
//!
//! The object is `QuoteCollateralV3` as dcap-qvl writes it: documents and PEM chains as text,
//! verbatim because their signatures cover the bytes; signatures and revocation lists in hex.

use alloc::{borrow::Cow, string::String, vec, vec::Vec};

use serde::Deserialize;

use crate::{hexadecimal, json, parse_error::ParseError};

/// The longest collateral that is read: real ones are 14 to 22 KB, of which the revocation list of a
/// processor family may grow.
pub const COLLATERAL_LENGTH_MAX: usize = 512 * 1024;

/// The endorsements of one platform, decoded from hex but not yet parsed.
#[derive(Clone, Debug)]
pub struct Collateral {
    /// PEM: the CA that issued `pck_crl`, then the root.
    pub pck_crl_issuer_chain: String,
    /// DER: revocations by the root.
    pub root_ca_crl: Vec<u8>,
    /// DER: revocations by the platform or processor CA.
    pub pck_crl: Vec<u8>,
    /// PEM: the signer of `tcb_info`, then the root.
    pub tcb_info_issuer_chain: String,
    /// JSON of TCB info, exactly as signed.
    pub tcb_info: String,
    /// Signature over `tcb_info`: r, then s.
    pub tcb_info_signature: [u8; 64],
    /// PEM: the signer of `qe_identity`, then the root.
    pub qe_identity_issuer_chain: String,
    /// JSON of the enclave identity, exactly as signed.
    pub qe_identity: String,
    /// Signature over `qe_identity`: r, then s.
    pub qe_identity_signature: [u8; 64],
    /// PEM: the PCK chain, where the collateral repeats it.
    pub pck_certificate_chain: Option<String>,
}

impl Collateral {
    /// Reads the JSON object; an absent or empty endorsement is [`ParseError::Missing`].
    ///
    /// # Errors
    /// [`ParseError::TooLong`] over [`COLLATERAL_LENGTH_MAX`], [`ParseError::Missing`] for an
    /// endorsement that is absent or empty, [`ParseError::Json`] or [`ParseError::Text`] if the
    /// document or a field is malformed.
    pub fn parse(document: &[u8]) -> Result<Self, ParseError> {
        if document.len() > COLLATERAL_LENGTH_MAX {
            let (limit, got) = (COLLATERAL_LENGTH_MAX, document.len());
            return Err(ParseError::TooLong { subject: "collateral", limit, got });
        }
        let wire: Wire<'_> = json::parse_document("collateral", document)?;
        Ok(Self {
            pck_crl_issuer_chain: text("pck_crl_issuer_chain", wire.pck_crl_issuer_chain)?,
            root_ca_crl: hex_bytes("root_ca_crl", wire.root_ca_crl)?,
            pck_crl: hex_bytes("pck_crl", wire.pck_crl)?,
            tcb_info_issuer_chain: text("tcb_info_issuer_chain", wire.tcb_info_issuer_chain)?,
            tcb_info: text("tcb_info", wire.tcb_info)?,
            tcb_info_signature: signature("tcb_info_signature", wire.tcb_info_signature)?,
            qe_identity_issuer_chain: text(
                "qe_identity_issuer_chain",
                wire.qe_identity_issuer_chain,
            )?,
            qe_identity: text("qe_identity", wire.qe_identity)?,
            qe_identity_signature: signature("qe_identity_signature", wire.qe_identity_signature)?,
            pck_certificate_chain: text("pck_certificate_chain", wire.pck_certificate_chain).ok(),
        })
    }
}

/// The JSON object. Every field is optional, so that an absent one is told apart from a malformed object.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire<'a> {
    #[serde(borrow)]
    pck_crl_issuer_chain: Option<Text<'a>>,
    root_ca_crl: Option<Text<'a>>,
    pck_crl: Option<Text<'a>>,
    tcb_info_issuer_chain: Option<Text<'a>>,
    tcb_info: Option<Text<'a>>,
    tcb_info_signature: Option<Text<'a>>,
    qe_identity_issuer_chain: Option<Text<'a>>,
    qe_identity: Option<Text<'a>>,
    qe_identity_signature: Option<Text<'a>>,
    pck_certificate_chain: Option<Text<'a>>,
}

/// Text that is copied only where it is escaped: what is in hexadecimal is read where it lies.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

fn require_text<'a>(
    subject: &'static str,
    value: Option<Text<'a>>,
) -> Result<Cow<'a, str>, ParseError> {
    let value = value.filter(|Text(value)| !value.is_empty());
    value.map(|Text(value)| value).ok_or(ParseError::Missing { subject })
}

fn text(subject: &'static str, value: Option<Text<'_>>) -> Result<String, ParseError> {
    require_text(subject, value).map(Cow::into_owned)
}

fn hex_bytes(subject: &'static str, value: Option<Text<'_>>) -> Result<Vec<u8>, ParseError> {
    let value = require_text(subject, value)?;
    let mut bytes = vec![0; value.len() / 2];
    match hexadecimal::decode(value.as_bytes(), &mut bytes) {
        true => Ok(bytes),
        false => Err(ParseError::Text { subject, wanted: "hexadecimal" }),
    }
}

fn signature(subject: &'static str, value: Option<Text<'_>>) -> Result<[u8; 64], ParseError> {
    let value = hex_bytes(subject, value)?;
    let got = value.len();
    value.try_into().map_err(|_| ParseError::Length { subject, wanted: 64, got })
}
