//! Editions of documents: their numbers and dates, read from the document itself.

use confide_evidence::{ParseError, crl::CrlDates, qe_identity::QeIdentity, tcb_info::TcbInfo};
use serde_json::Value;

use crate::kind::Kind;

/// The number of an edition and the time for which it holds; all zero where the document does not
/// tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dates {
    /// CRL number, or TCB evaluation data number: never less in a later edition.
    pub number: u64,
    /// The Unix second of the issue: never less in a later edition.
    pub issued: u64,
    /// The Unix second at which the next edition is due; 0 if the document does not tell.
    pub until: u64,
}

impl Dates {
    /// Whether this edition of a document comes before `other`: serving it after that would be a
    /// rollback.
    ///
    /// A revocation list may fall back in neither number nor date (RFC 5280 section 5.2.3; Intel's
    /// number stays at 1). A TCB recovery may have been signed on an earlier day than the last
    /// edition of the one before it: the number decides, and the date within it.
    pub fn is_before(&self, other: &Dates, kind: Kind) -> bool {
        if kind.is_revocation_list() {
            return self.number < other.number || self.issued < other.issued;
        }
        (self.number, self.issued) < (other.number, other.issued)
    }

    /// Whether the next edition is overdue at `now`, in Unix seconds.
    pub fn is_over(&self, now: u64) -> bool {
        self.until != 0 && now >= self.until
    }
}

/// Reads number and dates of a body as it is kept (lists in DER).
///
/// # Errors
/// [`ParseError`] if the body is not what its kind says.
pub fn dates(kind: Kind, body: &[u8]) -> Result<Dates, ParseError> {
    match kind {
        Kind::SgxTcb | Kind::TdxTcb => tcb_info(body).map(|(dates, _)| dates),
        Kind::SgxQeIdentity | Kind::TdxQeIdentity => qe_identity(body),
        Kind::PckCrl | Kind::RootCrl | Kind::VcekCrl | Kind::VlekCrl => {
            let list = match kind {
                Kind::VcekCrl | Kind::VlekCrl => CrlDates::parse_amd("revocation list", body)?,
                _ => CrlDates::parse("revocation list", body)?,
            };
            let CrlDates { number, this_update: issued, next_update: until, .. } = list;
            Ok(Dates { number, issued, until })
        }
        // Certificates are judged by the relying party; the rest tells nothing that is needed here.
        _ => Ok(Dates::default()),
    }
}

/// Reads the dates and the platform family of PCS's TCB info.
pub(crate) fn tcb_info(body: &[u8]) -> Result<(Dates, [u8; 6]), ParseError> {
    let info = TcbInfo::parse(&member(body, "TCB info", "tcbInfo")?)?;
    let number = info.tcb_evaluation_data_number.into();
    let dates = Dates { number, issued: info.issue_date, until: info.next_update };
    Ok((dates, info.fmspc))
}

fn qe_identity(body: &[u8]) -> Result<Dates, ParseError> {
    let identity = QeIdentity::parse(&member(body, "QE identity", "enclaveIdentity")?)?;
    let number = identity.tcb_evaluation_data_number.into();
    Ok(Dates { number, issued: identity.issue_date, until: identity.next_update })
}

/// The signed part of PCS's answer. Its bytes may differ from the signed ones, its fields do not.
fn member(body: &[u8], subject: &'static str, name: &str) -> Result<String, ParseError> {
    let text = |wanted| ParseError::Text { subject, wanted };
    let answer: Value = serde_json::from_slice(body).map_err(|_| text("a JSON object"))?;
    let signed = answer.get(name).ok_or(ParseError::Missing { subject })?;
    Ok(signed.to_string())
}
