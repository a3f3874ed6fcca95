//! One document of one service, as it is kept and served.

use confide_evidence::ParseError;
use confide_http::encode_percent;

use crate::{
    edition::{self, Dates},
    kind::Kind,
    request::DocumentRequest,
};

/// One document, with the header fields that its service sends besides the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The kind of the document.
    pub kind: Kind,
    /// The name among the documents of this kind; [`Kind`] says how each is spelled.
    pub key: String,
    /// The number of the edition and the time for which it holds.
    pub dates: Dates,
    /// Header fields in lower case with their values as they are sent: the issuer's chain, and what
    /// else belongs to the document (`sgx-tcbm`, `sgx-fmspc`).
    pub headers: Vec<(String, String)>,
    /// The bytes: DER for lists and single certificates, PEM for chains, JSON for the rest.
    pub body: Vec<u8>,
    /// Unix seconds at which it was fetched, imported or made.
    pub fetched_at: u64,
}

impl Document {
    /// The document that answers `wanted`: the body as [`Kind`] says, and its issuers in PEM where
    /// there are any. Number and dates are read from the body.
    ///
    /// # Errors
    /// [`ParseError`] if the body is not what its kind says.
    pub fn new(
        wanted: &DocumentRequest,
        chain: Option<&str>,
        body: Vec<u8>,
        fetched_at: u64,
    ) -> Result<Self, ParseError> {
        let kind = wanted.kind();
        let field = kind.chain_header().zip(chain);
        let headers = field.map(|(name, chain)| (name.into(), encode_percent(chain)));
        let dates = edition::dates(kind, &body)?;
        let headers = headers.into_iter().collect();
        Ok(Self { kind, key: wanted.key(), dates, headers, body, fetched_at })
    }

    /// The body of a signed document as PCS sends it: the very bytes of `json`, with their
    /// signature.
    pub fn signed_body(kind: Kind, json: &str, signature_hex: &str) -> Vec<u8> {
        let name = match kind {
            Kind::SgxTcb | Kind::TdxTcb => "tcbInfo",
            Kind::SgxEvaluationNumbers | Kind::TdxEvaluationNumbers => "tcbEvaluationDataNumbers",
            _ => "enclaveIdentity",
        };
        format!("{{\"{name}\":{json},\"signature\":\"{signature_hex}\"}}").into_bytes()
    }
}
