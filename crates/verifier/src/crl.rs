//! The version of a revocation list, and the oldest one that a policy accepts.

use confide_evidence::UnixSeconds;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    checks::{Checks, StepNames},
    detail::Detail,
    reason::{ISSUE_DATE, Reason},
};

/// Number and issue date (Unix seconds) of a revocation list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrlVersion {
    /// CRLNumber (RFC 5280 section 5.2.3).
    pub number: u64,
    /// thisUpdate, Unix seconds.
    pub issued: u64,
}

impl CrlVersion {
    pub(crate) fn to_json(self) -> Value {
        json!({ "number": self.number, "issued": self.issued })
    }
}

/// The oldest revocation list that is accepted: set it to the newest version seen, so that a rolled-back list is
/// refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CrlMinimum {
    /// Least CRLNumber.
    pub number_min: u64,
    /// Least thisUpdate, Unix seconds. Intel moves only this one.
    pub issued_min: u64,
}

/// Compares a list, whose signature is verified elsewhere, with its minimum.
pub(crate) fn check_revocation_list(
    checks: &mut Checks,
    step: impl StepNames,
    subject: &'static str,
    seen: CrlVersion,
    minimum: CrlMinimum,
) -> Result<(), Reason> {
    checks.run(step, || {
        let CrlVersion { number, issued } = seen;
        for (field, wanted, got) in
            [("number", minimum.number_min, number), (ISSUE_DATE, minimum.issued_min, issued)]
        {
            if got < wanted {
                return Err(Reason::RolledBack { subject, field, wanted, got });
            }
        }
        let detail = Detail::numbers([number, issued], |[number, issued, ..], f| {
            write!(f, "number {number}, issued {}", UnixSeconds(*issued))
        });
        Ok(((), detail))
    })
}
