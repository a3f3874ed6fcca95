//! One document of one service, as it is stored and served.

use confide_evidence::ParseError;
use confide_http::encode_percent;

use crate::{
    edition::{self, EditionDates},
    kind::DocumentKind,
    request::DocumentRequest,
};

/// One document, with the header fields that its service sends with the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The kind of the document.
    pub kind: DocumentKind,
    /// The name among the documents of this kind, in the form listed at [`DocumentKind`].
    pub key: String,
    /// The number of the edition and its time of validity.
    pub dates: EditionDates,
    /// Header fields, names in lower case, values as sent: the issuer's chain, and other fields of
    /// the document (`sgx-tcbm`, `sgx-fmspc`).
    pub headers: Vec<(String, String)>,
    /// The bytes: DER for lists and single certificates, PEM for chains, JSON for the rest.
    pub body: Vec<u8>,
    /// Unix seconds at which it was fetched, imported or made.
    pub fetched_at: u64,
}

impl Document {
    /// The document that answers `wanted`, from a body in the format of [`DocumentKind`] and its
    /// issuers in PEM, if any. The number and the dates are parsed from the body.
    ///
    /// # Errors
    /// [`ParseError`] if the body does not have the format of its kind.
    pub fn new(
        wanted: &DocumentRequest,
        chain: Option<&str>,
        body: Vec<u8>,
        fetched_at: u64,
    ) -> Result<Self, ParseError> {
        let kind = wanted.kind();
        let field = kind.chain_header().zip(chain);
        let headers = field.map(|(name, chain)| (name.into(), encode_percent(chain)));
        let dates = edition::parse_dates(kind, &body)?;
        let headers = headers.into_iter().collect();
        Ok(Self { kind, key: wanted.key(), dates, headers, body, fetched_at })
    }

    /// The body of a signed document as PCS sends it: the exact bytes of `json`, with their
    /// signature.
    pub fn signed_body(kind: DocumentKind, json: &str, signature_hex: &str) -> Vec<u8> {
        let name = match kind {
            DocumentKind::SgxTcb | DocumentKind::TdxTcb => "tcbInfo",
            DocumentKind::SgxEvaluationNumbers | DocumentKind::TdxEvaluationNumbers => {
                "tcbEvaluationDataNumbers"
            }
            _ => "enclaveIdentity",
        };
        format!("{{\"{name}\":{json},\"signature\":\"{signature_hex}\"}}").into_bytes()
    }
}
