//! AMD SEV-SNP: whether an attestation report is believed, and why.
//!
//! Three signatures stand between the root and the report, and a fourth on the revocation list.
//! There is no verdict of AMD's on security versions: the policy sets the least
//! ([`SnpPlatform::tcb_min`]).

mod chain;
mod endorsements;
mod judge;
pub(crate) mod policy;
mod steps;

use confide_evidence::{ParseError, quote::Tee, snp::Report};
use rustls_pki_types::UnixTime;

use self::{chain::ChipKey, judge::Appraisal, steps::SnpStep};
pub use self::{
    endorsements::Endorsements,
    policy::{PlatformBits, SnpPlatform, SnpWorkload, TcbMinimum},
};
use crate::{
    checks::Checks,
    crypto::Crypto,
    detail::Detail,
    evidence::Evidence,
    policy::Policy,
    reason::Reason,
    result::{Appraised, PartialResult, Rejection},
    roots::{Anchor, Root, Roots},
    validity::ValidityWindow,
};

impl Endorsements {
    /// Verifies root, intermediate, chip key and revocation list: all that does not depend on a
    /// report. Without a revocation list, only a policy that skips revocation accepts anything.
    ///
    /// # Errors
    /// [`Rejection`] with the first check of the endorsements that failed.
    pub fn prepare(
        &self,
        roots: &Roots,
        now: UnixTime,
        crypto: &dyn Crypto,
    ) -> Result<PreparedEndorsements, Rejection> {
        let mut found = PartialResult::new(Checks::new::<SnpStep>());
        match chain::verify_chain(self, &mut found, roots, now, crypto) {
            Ok(key) => Ok(PreparedEndorsements { key, checks: found.checks }),
            Err(reason) => Err(found.reject(reason)),
        }
    }
}

/// Decides whether a report is believed, under one policy and at one time.
///
/// Reads nothing but its arguments. The first check that fails ends it. This is the reference that
/// [`PreparedEndorsements`] is held against.
///
/// # Errors
/// [`Rejection`] with the first check that failed ([`Rejection::reason`]) and the outcome of each
/// check up to it.
pub fn appraise(
    evidence: &Evidence<'_>,
    endorsements: &Endorsements,
    policy: &Policy,
    now: UnixTime,
    crypto: &dyn Crypto,
) -> Result<Appraised, Rejection> {
    let mut found = PartialResult::new(Checks::new::<SnpStep>());
    let outcome = read_report(&mut found.checks, evidence, policy).and_then(|report| {
        let key = chain::verify_chain(endorsements, &mut found, &policy.roots, now, crypto)?;
        Appraisal { evidence, report, key: &key, policy, now, crypto }.judge(&mut found.checks)
    });
    found.into_verdict(outcome)
}

/// Makes a rejection of endorsements that could not be read, before any check could run.
pub fn reject_unreadable(error: ParseError) -> Rejection {
    PartialResult::new(Checks::new::<SnpStep>()).reject(Reason::Malformed(error))
}

/// A chip key that was verified down from a trusted root: one signature is left for each report.
///
/// A value: it owns all it needs, knows no clock, and is shared by any number of threads.
#[derive(Debug)]
pub struct PreparedEndorsements {
    key: ChipKey,
    checks: Checks,
}

impl PreparedEndorsements {
    /// Decides as [`appraise`] does. All that is left out are the signatures of certificates and
    /// revocation list; whether the policy trusts the root, and every date, are looked at again.
    ///
    /// # Errors
    /// [`Rejection`] with the first check that failed ([`Rejection::reason`]) and the outcome of
    /// each check up to it.
    pub fn appraise(
        &self,
        evidence: &Evidence<'_>,
        policy: &Policy,
        now: UnixTime,
        crypto: &dyn Crypto,
    ) -> Result<Appraised, Rejection> {
        let mut found = PartialResult::new(self.checks.clone());
        let outcome = read_report(&mut found.checks, evidence, policy)
            .map_err(|reason| found.checks.fail(SnpStep::ReportFormat, reason))
            .and_then(|report| {
                self.check_still_valid(&mut found, policy, now)?;
                let key = &self.key;
                Appraisal { evidence, report, key, policy, now, crypto }.judge(&mut found.checks)
            });
        found.into_verdict(outcome)
    }

    /// The root that the chip key was verified under.
    pub fn root(&self) -> Root {
        self.key.root
    }

    /// Unix seconds from which and until which certificates and list hold, both included.
    pub fn validity(&self) -> (u64, u64) {
        (self.key.life.from, self.key.life.until)
    }

    fn check_still_valid(
        &self,
        found: &mut PartialResult,
        policy: &Policy,
        now: UnixTime,
    ) -> Result<(), Reason> {
        let trusted = policy.roots.require(Anchor::Amd, &self.key.root.sha256);
        trusted.map_err(|reason| found.checks.fail(SnpStep::Root, reason))?;
        found.root = Some(self.key.root);
        if self.key.life.holds(now) {
            return Ok(());
        }
        ValidityWindow::check_all(&self.key.windows, &mut found.checks, now)
    }
}

fn read_report<'a>(
    checks: &mut Checks,
    evidence: &Evidence<'a>,
    policy: &Policy,
) -> Result<Report<'a>, Reason> {
    checks.run(SnpStep::ReportFormat, || {
        let report = Report::parse(evidence.quote)?;
        policy.formats.check_admitted(Tee::Snp)?;
        let version = u64::from(report.version());
        let detail =
            Detail::numbers([version], |[version, ..], f| write!(f, "snp, version {version}"));
        Ok((report, detail))
    })
}
