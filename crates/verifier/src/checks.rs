//! The list of checks: what was looked at, what came out, what was not looked at.
//!
//! Each kind of evidence has its own table of names ([`steps!`] makes one). Filling the list
//! neither writes text nor allocates but for the list itself: a [`Detail`] is data until it is
//! shown.

use alloc::{string::ToString, vec::Vec};

use serde_json::{Value, json};

use crate::{
    detail::Detail,
    expect::{Expect, ReferenceValue},
    reason::Reason,
};

/// The outcome of a check. `NotEvaluated` is not a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The check ran, and the value was as wanted.
    Passed,
    /// The check ran, and the value was not as wanted.
    Failed,
    /// The check did not run.
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

/// A check with its outcome: one line of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// A fixed name in snake case.
    pub name: &'static str,
    /// The outcome of the check.
    pub outcome: Outcome,
    /// The values that were compared, or the reason why they were not.
    pub detail: Detail,
}

/// The checks of one kind of evidence, in the order in which they run.
pub(crate) trait StepNames: Copy {
    /// A name in snake case for each step; once published, a name does not change.
    const NAMES: &'static [&'static str];

    /// The place in `NAMES`.
    fn index(self) -> usize;
}

/// Makes an enum of steps with its table of names: `Kind: Step = "its_name", …`.
macro_rules! steps {
    ($(#[$meta:meta])* $kind:ident: $($step:ident = $name:literal),+ $(,)?) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $kind { $($step),+ }

        impl $crate::checks::StepNames for $kind {
            const NAMES: &'static [&'static str] = &[$($name),+];

            fn index(self) -> usize {
                self as usize
            }
        }
    };
}
#[allow(unused_imports, reason = "for the other kinds of evidence")]
pub(crate) use steps;

steps! {
    /// The checks of a DCAP quote.
    Step:
    QuoteFormat = "quote_format",
    Root = "root",
    RootCrl = "root_crl",
    TcbSigner = "tcb_signer",
    TcbInfo = "tcb_info",
    QeIdentity = "qe_identity",
    PckCrl = "pck_crl",
    PckChain = "pck_chain",
    Platform = "platform",
    Chip = "chip",
    QeReport = "qe_report",
    QeEnclave = "qe_enclave",
    QuoteSignature = "quote_signature",
    TdxModule = "tdx_module",
    TcbLevel = "tcb_level",
    TcbStatus = "tcb_status",
    Advisories = "advisories",
    EvaluationNumber = "evaluation_number",
    Debug = "debug",
    Attributes = "attributes",
    Binding = "binding",
    ReportData = "report_data",
    Measurements = "measurements",
    Claims = "claims",
    ConfigDigest = "config_digest",
    Weights = "weights",
    KeyValidity = "key_validity",
    EvidenceAge = "evidence_age",
    Gpu = "gpu",
}

/// The list of checks while it is being filled.
#[derive(Clone, Debug)]
pub(crate) struct Checks(Vec<Check>);

impl Checks {
    /// Lists every check of a kind of evidence, none evaluated: `Checks::new::<Step>()`.
    pub(crate) fn new<S: StepNames>() -> Self {
        Self(S::NAMES.iter().copied().map(unreached_check).collect())
    }

    /// Runs a check and notes what came out; the detail is that of a pass.
    pub(crate) fn run<T>(
        &mut self,
        step: impl StepNames,
        check: impl FnOnce() -> Result<(T, Detail), Reason>,
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

    /// Records a check that only compares: `holds` is its outcome, `detail` the text of a pass, `reason` that of a
    /// failure.
    pub(crate) fn require(
        &mut self,
        step: impl StepNames,
        holds: bool,
        detail: impl Into<Detail>,
        reason: impl FnOnce() -> Reason,
    ) -> Result<(), Reason> {
        self.run(step, || if holds { Ok(((), detail.into())) } else { Err(reason()) })
    }

    /// Compares a value with the policy's reference values, where it has some; `detail` is the text of a pass.
    pub(crate) fn compare<T: ReferenceValue + PartialEq>(
        &mut self,
        step: impl StepNames,
        field: &'static str,
        wanted: Option<&Expect<T>>,
        got: &T,
        detail: &'static str,
    ) -> Result<(), Reason> {
        match wanted {
            None => self.skip(step, "the policy names none"),
            Some(Expect::DangerousAny) => self.skip(step, "the policy says dangerous-any"),
            Some(wanted) => self.require(step, wanted.accepts(got), detail, || Reason::Value {
                field,
                wanted: wanted.to_string(),
                got: got.to_text(),
            })?,
        }
        Ok(())
    }

    /// Records as passed a check that cannot fail at this point.
    pub(crate) fn pass(&mut self, step: impl StepNames, detail: impl Into<Detail>) {
        self.set(step, Outcome::Passed, detail.into());
    }

    /// Notes why a check does not apply.
    pub(crate) fn skip(&mut self, step: impl StepNames, detail: impl Into<Detail>) {
        self.set(step, Outcome::NotEvaluated, detail.into());
    }

    /// Notes a failure, and forgets the outcome of every check after it.
    pub(crate) fn fail(&mut self, step: impl StepNames, reason: Reason) -> Reason {
        self.set(step, Outcome::Failed, reason.to_string().into());
        for check in &mut self.0[step.index() + 1..] {
            *check = unreached_check(check.name);
        }
        reason
    }

    /// Whether a check has passed.
    pub(crate) fn has_passed(&self, step: impl StepNames) -> bool {
        self.0[step.index()].outcome == Outcome::Passed
    }

    pub(crate) fn as_slice(&self) -> &[Check] {
        &self.0
    }

    pub(crate) fn into_vec(self) -> Vec<Check> {
        self.0
    }

    fn set(&mut self, step: impl StepNames, outcome: Outcome, detail: Detail) {
        let check = &mut self.0[step.index()];
        check.outcome = outcome;
        check.detail = detail;
    }
}

/// The checks as `confide verify --json` prints them.
pub(crate) fn checks_to_json(checks: &[Check]) -> Value {
    let line = |check: &Check| {
        let Check { name, outcome, detail } = check;
        json!({ "name": name, "outcome": outcome.as_str(), "detail": detail.to_string() })
    };
    checks.iter().map(line).collect()
}

fn unreached_check(name: &'static str) -> Check {
    Check { name, outcome: Outcome::NotEvaluated, detail: Detail::text("not reached") }
}
