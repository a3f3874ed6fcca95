//! Editions of documents: their numbers and dates, parsed from the document itself.

use confide_evidence::{ParseError, crl::CrlDates, qe_identity::QeIdentity, tcb_info::TcbInfo};
use serde_json::Value;

use crate::kind::DocumentKind;

/// The number of an edition and its time of validity; all zero if the document has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EditionDates {
    /// The CRL number or TCB evaluation data number, which never falls in later editions.
    pub number: u64,
    /// The Unix second of the issue.
    pub issued: u64,
    /// The Unix second at which the next edition is due; 0 if the document has no such date.
    pub until: u64,
}

impl EditionDates {
    /// Whether this edition of a document is older than `other`: serving it after `other` would be
    /// a rollback.
    ///
    /// A revocation list is older if its number or its date is lower (RFC 5280 section 5.2.3;
    /// Intel's number stays at 1). A document for a new TCB recovery may have been signed on an
    /// earlier day than the last one: the number decides, and between equal numbers the date.
    pub fn is_before(&self, other: &EditionDates, kind: DocumentKind) -> bool {
        if kind.is_revocation_list() {
            return self.number < other.number || self.issued < other.issued;
        }
        (self.number, self.issued) < (other.number, other.issued)
    }

    /// Whether the next edition is overdue at `now`, in Unix seconds.
    pub fn is_overdue(&self, now: u64) -> bool {
        self.until != 0 && now >= self.until
    }
}

/// Parses the number and the dates from a body in its stored format (lists in DER).
///
/// # Errors
/// [`ParseError`] if the body does not have the format of its kind.
pub fn parse_dates(kind: DocumentKind, body: &[u8]) -> Result<EditionDates, ParseError> {
    match kind {
        DocumentKind::SgxTcb | DocumentKind::TdxTcb => parse_tcb_info(body).map(|(dates, _)| dates),
        DocumentKind::SgxQeIdentity | DocumentKind::TdxQeIdentity => parse_qe_identity(body),
        DocumentKind::PckCrl
        | DocumentKind::RootCrl
        | DocumentKind::VcekCrl
        | DocumentKind::VlekCrl => {
            let list = match kind {
                DocumentKind::VcekCrl | DocumentKind::VlekCrl => {
                    CrlDates::parse_amd("revocation list", body)?
                }
                _ => CrlDates::parse("revocation list", body)?,
            };
            let CrlDates { number, this_update: issued, next_update: until, .. } = list;
            Ok(EditionDates { number, issued, until })
        }
        // The relying party checks the dates of certificates; other documents have no dates.
        _ => Ok(EditionDates::default()),
    }
}

/// Parses the dates and the platform family from TCB info of PCS.
pub(crate) fn parse_tcb_info(body: &[u8]) -> Result<(EditionDates, [u8; 6]), ParseError> {
    let info = TcbInfo::parse(&signed_member(body, "TCB info", "tcbInfo")?)?;
    let number = info.tcb_evaluation_data_number.into();
    let dates = EditionDates { number, issued: info.issue_date, until: info.next_update };
    Ok((dates, info.fmspc))
}

fn parse_qe_identity(body: &[u8]) -> Result<EditionDates, ParseError> {
    let identity = QeIdentity::parse(&signed_member(body, "QE identity", "enclaveIdentity")?)?;
    let number = identity.tcb_evaluation_data_number.into();
    Ok(EditionDates { number, issued: identity.issue_date, until: identity.next_update })
}

/// The signed object of an answer of PCS, re-encoded: its bytes may differ from the signed ones.
fn signed_member(body: &[u8], subject: &'static str, name: &str) -> Result<String, ParseError> {
    let text = |wanted| ParseError::Text { subject, wanted };
    let answer: Value = serde_json::from_slice(body).map_err(|_| text("a JSON object"))?;
    let signed = answer.get(name).ok_or(ParseError::Missing { subject })?;
    Ok(signed.to_string())
}
