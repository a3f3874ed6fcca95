//! The endorsements that go with an SEV-SNP report, as one JSON object: stapled, exported, stored.

use alloc::{string::String, vec::Vec};

use serde::{Deserialize, Serialize};

use crate::{json, parse_error::ParseError};

/// The longest object that is read. A chip key's certificate is 1.4 KB, its chain 4.6 KB, and AMD's
/// revocation lists are below 1 KB, but may grow.
const SNP_ENDORSEMENTS_LENGTH_MAX: usize = 256 * 1024;
/// The longest certificate of a chip key, DER.
pub const ENDORSEMENT_KEY_LENGTH_MAX: usize = 8 * 1024;
/// The longest revocation list, DER.
pub const SNP_CRL_LENGTH_MAX: usize = 96 * 1024;

/// Certificate of a chip key, its chain, and the root's revocation list; decoded from hexadecimal
/// but not yet parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnpEndorsements {
    /// DER: VCEK or VLEK.
    pub endorsement_key: Vec<u8>,
    /// PEM: ASK (of a VCEK) or ASVK (of a VLEK), then ARK.
    pub chain: String,
    /// DER: revocations by the ARK, where there is a list.
    pub crl: Option<Vec<u8>>,
}

impl SnpEndorsements {
    /// Whether a JSON object has the shape of these endorsements rather than of a quote's collateral.
    pub fn is_snp_endorsements(document: &[u8]) -> bool {
        document.windows(KEY.len()).any(|window| window == KEY)
    }

    /// Reads the JSON object.
    ///
    /// # Errors
    /// [`ParseError::TooLong`] over a limit, [`ParseError::Missing`] for a key or chain that is
    /// absent or empty or an empty `crl`, [`ParseError::Json`] or [`ParseError::Text`] if the document or a field
    /// is malformed.
    pub fn parse(document: &[u8]) -> Result<Self, ParseError> {
        const SUBJECT: &str = "SNP endorsements";
        if document.len() > SNP_ENDORSEMENTS_LENGTH_MAX {
            let (limit, got) = (SNP_ENDORSEMENTS_LENGTH_MAX, document.len());
            return Err(ParseError::TooLong { subject: SUBJECT, limit, got });
        }
        let wire: Wire = json::parse_document(SUBJECT, document)?;
        let present = |subject, value: Option<String>| {
            value.filter(|value| !value.is_empty()).ok_or(ParseError::Missing { subject })
        };
        let key = present("endorsement_key", wire.endorsement_key)?;
        let chain = present("chain", wire.chain)?;
        Self::new(
            decode_hex("endorsement_key", &key)?,
            chain,
            wire.crl.map(|crl| decode_hex("crl", &crl)).transpose()?,
        )
    }

    /// Puts parts together that came as files.
    ///
    /// # Errors
    /// [`ParseError::Missing`] if the key or the list is empty, [`ParseError::TooLong`] if it
    /// is longer than [`ENDORSEMENT_KEY_LENGTH_MAX`] or [`SNP_CRL_LENGTH_MAX`].
    pub fn new(
        endorsement_key: Vec<u8>,
        chain: String,
        crl: Option<Vec<u8>>,
    ) -> Result<Self, ParseError> {
        check_length("endorsement_key", &endorsement_key, ENDORSEMENT_KEY_LENGTH_MAX)?;
        if let Some(crl) = &crl {
            check_length("crl", crl, SNP_CRL_LENGTH_MAX)?;
        }
        Ok(Self { endorsement_key, chain, crl })
    }

    /// Writes the JSON object.
    pub fn to_json(&self) -> Vec<u8> {
        let Self { endorsement_key, chain, crl } = self;
        let wire = Wire {
            endorsement_key: Some(hex::encode(endorsement_key)),
            chain: Some(chain.clone()),
            crl: crl.as_ref().map(hex::encode),
        };
        // Text fields only: there is nothing in it that could not be written.
        serde_json::to_vec(&wire).unwrap_or_default()
    }
}

const KEY: &[u8] = b"\"endorsement_key\"";

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    endorsement_key: Option<String>,
    chain: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    crl: Option<String>,
}

fn decode_hex(subject: &'static str, digits: &str) -> Result<Vec<u8>, ParseError> {
    hex::decode(digits).map_err(|_| ParseError::Text { subject, wanted: "hexadecimal" })
}

fn check_length(subject: &'static str, bytes: &[u8], limit: usize) -> Result<(), ParseError> {
    match bytes.len() {
        0 => Err(ParseError::Missing { subject }),
        got if got > limit => Err(ParseError::TooLong { subject, limit, got }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use alloc::{format, vec};

    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let mut endorsements =
            SnpEndorsements::new(vec![1, 2], "chain".into(), Some(vec![3])).unwrap();
        let text = endorsements.to_json();
        assert!(SnpEndorsements::is_snp_endorsements(&text));
        assert_eq!(SnpEndorsements::parse(&text), Ok(endorsements.clone()));
        endorsements.crl = None;
        let text = endorsements.to_json();
        assert!(!text.windows(3).any(|window| window == b"crl"));
        assert_eq!(SnpEndorsements::parse(&text), Ok(endorsements));
    }

    #[test]
    fn absent_empty_unknown_and_oversized_fields_are_refused() {
        let parse = |text: &str| SnpEndorsements::parse(text.as_bytes()).unwrap_err();
        let missing = |subject| ParseError::Missing { subject };
        assert_eq!(parse(r#"{"chain":"c"}"#), missing("endorsement_key"));
        assert_eq!(parse(r#"{"endorsement_key":"","chain":"c"}"#), missing("endorsement_key"));
        assert_eq!(parse(r#"{"endorsement_key":"00"}"#), missing("chain"));
        assert_eq!(parse(r#"{"endorsement_key":"00","chain":"c","crl":""}"#), missing("crl"));
        assert!(matches!(
            parse(r#"{"endorsement_key":"0","chain":"c"}"#),
            ParseError::Text { subject: "endorsement_key", .. }
        ));
        assert!(matches!(
            parse(r#"{"endorsement_key":"00","chain":"c","tcb_info":""}"#),
            ParseError::Json { .. }
        ));
        let long = "00".repeat(ENDORSEMENT_KEY_LENGTH_MAX + 1);
        let long = format!(r#"{{"endorsement_key":"{long}","chain":"c"}}"#);
        assert!(matches!(parse(&long), ParseError::TooLong { subject: "endorsement_key", .. }));
        assert!(matches!(parse("[]"), ParseError::Text { .. }));
    }
}
