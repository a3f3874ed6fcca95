//! When a document holds, read from the document itself.

use confide_evidence::{
    ParseError, UnixSeconds, crl::CrlDates, qe_identity::QeIdentity, tcb_info::TcbInfo,
};
use serde_json::Value;

use crate::{Dates, Document, Kind, Set, Wanted};

/// Reads number and dates of a body as it is kept (lists in DER).
///
/// # Errors
/// [`ParseError`] where the body is not what its kind says.
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
        // Certificates are judged by who relies on them; the rest says nothing that is needed here.
        _ => Ok(Dates::default()),
    }
}

/// Why a vendor's answer is not taken in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unfit {
    #[error("{0}")]
    Parse(#[from] ParseError),
    #[error("document: wanted {wanted}, got {got}")]
    Other { wanted: String, got: String },
    #[error("document is issued at {}, now is {}", UnixSeconds(*issued), UnixSeconds(*now))]
    Future { issued: u64, now: u64 },
}

/// Refuses what would poison the cache: another document than the one asked for, and one from the
/// future, which would make every honest edition after it a rollback.
pub(crate) fn check(
    wanted: &Wanted,
    document: &Document,
    now: u64,
    skew_s: u64,
) -> Result<(), Unfit> {
    let found = dates(document.kind, &document.body)?;
    if document.kind != wanted.kind() || document.key != wanted.key() || found != document.dates {
        let got = format!("{} {}", document.kind.name(), document.key);
        let wanted = format!("{} {}", wanted.kind().name(), wanted.key());
        return Err(Unfit::Other { wanted, got });
    }
    if let Wanted::Tcb { fmspc, .. } = wanted {
        let (_, got) = tcb_info(&document.body)?;
        if got != *fmspc {
            let [wanted, got] = [*fmspc, got].map(hex::encode_upper);
            return Err(Unfit::Other { wanted, got });
        }
    }
    if let Some(Set::Number(number)) = wanted.set()
        && found.number != u64::from(number)
    {
        let (wanted, got) = (number.to_string(), found.number.to_string());
        return Err(Unfit::Other { wanted, got });
    }
    if found.issued > now.saturating_add(skew_s) {
        return Err(Unfit::Future { issued: found.issued, now });
    }
    Ok(())
}

fn tcb_info(body: &[u8]) -> Result<(Dates, [u8; 6]), ParseError> {
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
