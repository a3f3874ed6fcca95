//! Checks a vendor's answer before it is stored.

use confide_collateral::TcbEvaluation;
use confide_evidence::{ParseError, UnixSeconds};

use crate::{document::Document, edition, request::DocumentRequest};

/// The reason for which a vendor's answer is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IntakeError {
    #[error("{0}")]
    Parse(#[from] ParseError),
    #[error("the vendor sent another document: wanted {wanted}, got {got}")]
    Mismatch { wanted: String, got: String },
    #[error("document was issued at {}, the time is {}", UnixSeconds(*issued), UnixSeconds(*now))]
    IssuedInFuture { issued: u64, now: u64 },
}

/// Refuses documents that would poison the cache: another one than was requested, and one from the
/// future, after which every genuine edition would be refused as a rollback.
pub(crate) fn check_fetched_document(
    wanted: &DocumentRequest,
    document: &Document,
    now: u64,
    skew_s: u64,
) -> Result<(), IntakeError> {
    let found = edition::parse_dates(document.kind, &document.body)?;
    if document.kind != wanted.kind() || document.key != wanted.key() || found != document.dates {
        let got = format!("{} {}", document.kind.name(), document.key);
        let wanted = format!("{} {}", wanted.kind().name(), wanted.key());
        return Err(IntakeError::Mismatch { wanted, got });
    }
    if let DocumentRequest::Tcb { fmspc, .. } = wanted {
        let (_, got) = edition::parse_tcb_info(&document.body)?;
        if got != *fmspc {
            let [wanted, got] = [*fmspc, got].map(hex::encode_upper);
            return Err(IntakeError::Mismatch { wanted, got });
        }
    }
    if let Some(TcbEvaluation::Number(number)) = wanted.evaluation()
        && found.number != u64::from(number)
    {
        let (wanted, got) = (number.to_string(), found.number.to_string());
        return Err(IntakeError::Mismatch { wanted, got });
    }
    if found.issued > now.saturating_add(skew_s) {
        return Err(IntakeError::IssuedInFuture { issued: found.issued, now });
    }
    Ok(())
}
