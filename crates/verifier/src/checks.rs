//! The list of checks: what was looked at, what came out, what was not looked at.

use alloc::{borrow::Cow, string::ToString, vec::Vec};

use crate::Reason;

/// What came out of a check. The third is not a yes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Looked at and found as wanted.
    Passed,
    /// Looked at and found otherwise.
    Failed,
    /// Not looked at.
    NotEvaluated,
}

impl Outcome {
    /// `passed`, `failed` or `not_evaluated`.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Passed => "passed",
            Outcome::Failed => "failed",
            Outcome::NotEvaluated => "not_evaluated",
        }
    }
}

/// One line of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// A fixed name in snake case.
    pub name: &'static str,
    /// What came out.
    pub outcome: Outcome,
    /// What was compared, or why not.
    pub detail: Cow<'static, str>,
}

/// All checks, in the order in which they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    QuoteFormat,
    Root,
    RootCrl,
    TcbSigner,
    TcbInfo,
    QeIdentity,
    PckCrl,
    PckChain,
    Platform,
    QeReport,
    QeEnclave,
    QuoteSignature,
    TdxModule,
    TcbLevel,
    TcbStatus,
    Advisories,
    EvaluationNumber,
    Debug,
    Attributes,
    ReportData,
    Measurements,
    Claims,
    ConfigDigest,
    KeyValidity,
    EvidenceAge,
}

const NAMES: [&str; 25] = [
    "quote_format",
    "root",
    "root_crl",
    "tcb_signer",
    "tcb_info",
    "qe_identity",
    "pck_crl",
    "pck_chain",
    "platform",
    "qe_report",
    "qe_enclave",
    "quote_signature",
    "tdx_module",
    "tcb_level",
    "tcb_status",
    "advisories",
    "evaluation_number",
    "debug",
    "attributes",
    "report_data",
    "measurements",
    "claims",
    "config_digest",
    "key_validity",
    "evidence_age",
];

const _: () = assert!(Step::EvidenceAge as usize + 1 == NAMES.len(), "a name for each step");

/// The list while it is being filled.
#[derive(Clone, Debug)]
pub(crate) struct Checks(Vec<Check>);

impl Checks {
    /// Every check, none evaluated.
    pub(crate) fn new() -> Self {
        let unevaluated = |name| Check {
            name,
            outcome: Outcome::NotEvaluated,
            detail: Cow::Borrowed("not reached"),
        };
        Self(NAMES.into_iter().map(unevaluated).collect())
    }

    /// Runs a check and notes what came out; the text is the detail of a pass.
    pub(crate) fn run<T>(
        &mut self,
        step: Step,
        check: impl FnOnce() -> Result<(T, Cow<'static, str>), Reason>,
    ) -> Result<T, Reason> {
        match check() {
            Ok((value, detail)) => {
                self.set(step, Outcome::Passed, detail);
                Ok(value)
            }
            Err(reason) => {
                self.set(step, Outcome::Failed, reason.to_string().into());
                Err(reason)
            }
        }
    }

    /// Notes why a check does not apply.
    pub(crate) fn skip(&mut self, step: Step, detail: impl Into<Cow<'static, str>>) {
        self.set(step, Outcome::NotEvaluated, detail.into());
    }

    /// Whether a check has passed.
    pub(crate) fn passed(&self, step: Step) -> bool {
        self.0[step as usize].outcome == Outcome::Passed
    }

    pub(crate) fn into_vec(self) -> Vec<Check> {
        self.0
    }

    fn set(&mut self, step: Step, outcome: Outcome, detail: Cow<'static, str>) {
        let check = &mut self.0[step as usize];
        check.outcome = outcome;
        check.detail = detail;
    }
}
