//! Checks a vendor's answer before it is kept.

use confide_collateral::Evaluation;
use confide_evidence::{ParseError, UnixSeconds};

use crate::{document::Document, edition, request::DocumentRequest};

/// The reason for which a vendor's answer is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IntakeError {
    #[error("{0}")]
    Parse(#[from] ParseError),
    #[error("document: wanted {wanted}, got {got}")]
    Mismatch { wanted: String, got: String },
    #[error("document is issued at {}, now is {}", UnixSeconds(*issued), UnixSeconds(*now))]
    Future { issued: u64, now: u64 },
}

/// Refuses what would poison the cache: another document than the one asked for, and one from the
/// future, which would make every honest edition after it a rollback.
pub(crate) fn check(
    wanted: &DocumentRequest,
    document: &Document,
    now: u64,
    skew_s: u64,
) -> Result<(), IntakeError> {
    let found = edition::dates(document.kind, &document.body)?;
    if document.kind != wanted.kind() || document.key != wanted.key() || found != document.dates {
        let got = format!("{} {}", document.kind.name(), document.key);
        let wanted = format!("{} {}", wanted.kind().name(), wanted.key());
        return Err(IntakeError::Mismatch { wanted, got });
    }
    if let DocumentRequest::Tcb { fmspc, .. } = wanted {
        let (_, got) = edition::tcb_info(&document.body)?;
        if got != *fmspc {
            let [wanted, got] = [*fmspc, got].map(hex::encode_upper);
            return Err(IntakeError::Mismatch { wanted, got });
        }
    }
    if let Some(Evaluation::Number(number)) = wanted.set()
        && found.number != u64::from(number)
    {
        let (wanted, got) = (number.to_string(), found.number.to_string());
        return Err(IntakeError::Mismatch { wanted, got });
    }
    if found.issued > now.saturating_add(skew_s) {
        return Err(IntakeError::Future { issued: found.issued, now });
    }
    Ok(())
}
