//! AMD SEV-SNP: whether an attestation report is believed, and why.
//!
//! Three signatures stand between the root and the report, and a fourth on the revocation list.
//! There is no verdict of AMD's on security versions: the policy sets the least
//! ([`SnpPlatform::tcb_min`]).

mod chain;
mod judge;
mod policy;

use alloc::{format, sync::Arc, vec::Vec};

use confide_evidence::{
    ParseError, pem, quote::Tee, snp::Report, snp_endorsements::SnpEndorsements,
};
use rustls_pki_types::UnixTime;

pub use self::policy::{PlatformBits, SnpPlatform, SnpWorkload, TcbMinimum};
use self::{chain::ChipKey, judge::Appraisal};
use crate::{
    appraise::Evidence,
    binding::BindingSteps,
    chain::inside,
    checks::{Checks, steps},
    crypto::Crypto,
    policy::Policy,
    reason::Reason,
    result::{Accepted, Appraised, Refused, Rejection},
    roots::{Anchor, Root, Roots},
};

steps! {
    /// The checks of an SEV-SNP report.
    SnpStep:
    ReportFormat = "report_format",
    Root = "root",
    Chain = "chain",
    Revocation = "revocation",
    Product = "product",
    SigningKey = "signing_key",
    ChipId = "chip_id",
    TcbVersion = "tcb_version",
    ReportSignature = "report_signature",
    TcbMinimum = "tcb_minimum",
    Debug = "debug",
    GuestPolicy = "guest_policy",
    Vmpl = "vmpl",
    Binding = "binding",
    ReportData = "report_data",
    Measurements = "measurements",
    Claims = "claims",
    ConfigDigest = "config_digest",
    KeyValidity = "key_validity",
    EvidenceAge = "evidence_age",
    Gpu = "gpu",
}

impl BindingSteps for SnpStep {
    const REPORT_DATA: Self = SnpStep::ReportData;
    const CLAIMS: Self = SnpStep::Claims;
    const CONFIG_DIGEST: Self = SnpStep::ConfigDigest;
    const KEY_VALIDITY: Self = SnpStep::KeyValidity;
    const EVIDENCE_AGE: Self = SnpStep::EvidenceAge;
}

/// Endorsements as they came: read as a whole, believed in nothing.
#[derive(Clone, Debug)]
pub struct Endorsements {
    parts: SnpEndorsements,
    chain: Vec<Vec<u8>>,
}

impl Endorsements {
    /// Reads the JSON object of [`SnpEndorsements`].
    ///
    /// # Errors
    /// [`ParseError`] of the object or of the first part that cannot be read.
    pub fn parse(document: &[u8]) -> Result<Self, ParseError> {
        Self::from_parts(SnpEndorsements::parse(document)?)
    }

    /// Takes endorsements that came as files.
    ///
    /// # Errors
    /// [`ParseError`] where the chain is not PEM certificates.
    pub fn from_parts(parts: SnpEndorsements) -> Result<Self, ParseError> {
        let chain = pem::decode_chain("AMD certificate chain", parts.chain.as_bytes())?;
        Ok(Self { parts, chain })
    }

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
    ) -> Result<Prepared, Rejection> {
        let mut checks = Checks::new::<SnpStep>();
        let mut root = None;
        match chain::verify(self, &mut checks, &mut root, roots, now, crypto) {
            Ok(key) => Ok(Prepared { key, checks }),
            Err(reason) => Err(refusal(reason, root, checks)),
        }
    }
}

/// Decides whether a report is believed, under one policy and at one time.
///
/// Reads nothing but its arguments. The first check that fails ends it. This is the reference that
/// [`Prepared`] is held against.
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
    let mut checks = Checks::new::<SnpStep>();
    let mut root = None;
    let outcome = read(&mut checks, evidence, policy).and_then(|report| {
        let roots = &policy.roots;
        let key = chain::verify(endorsements, &mut checks, &mut root, roots, now, crypto)?;
        Appraisal { evidence, report, key: &key, policy, now, crypto }.judge(&mut checks)
    });
    close(outcome, root, checks)
}

/// A rejection of endorsements that could not be read, before any check could run.
pub fn unreadable(error: ParseError) -> Rejection {
    refusal(Reason::Malformed(error), None, Checks::new::<SnpStep>())
}

/// A chip key that was verified down from a trusted root: one signature is left for each report.
///
/// A value: it owns all it needs, knows no clock, and is shared by any number of threads.
#[derive(Debug)]
pub struct Prepared {
    key: ChipKey,
    checks: Checks,
}

impl Prepared {
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
        let mut checks = self.checks.clone();
        let mut root = None;
        let outcome = read(&mut checks, evidence, policy)
            .map_err(|reason| checks.fail(SnpStep::ReportFormat, reason))
            .and_then(|report| {
                self.still_holds(&mut checks, &mut root, policy, now)?;
                let key = &self.key;
                Appraisal { evidence, report, key, policy, now, crypto }.judge(&mut checks)
            });
        close(outcome, root, checks)
    }

    /// The root that the chip key was verified under.
    pub fn root(&self) -> Root {
        self.key.root
    }

    /// Unix seconds from which and until which certificates and list hold, both included.
    pub fn valid(&self) -> (u64, u64) {
        (self.key.life.from, self.key.life.until)
    }

    fn still_holds(
        &self,
        checks: &mut Checks,
        root: &mut Option<Root>,
        policy: &Policy,
        now: UnixTime,
    ) -> Result<(), Reason> {
        let sha256 = self.key.root.sha256;
        if policy.roots.find(Anchor::Amd, &sha256).is_none() {
            let (wanted, got) = (format!("{}", policy.roots), hex::encode(sha256));
            return Err(checks.fail(SnpStep::Root, Reason::UntrustedRoot { wanted, got }));
        }
        *root = Some(self.key.root);
        if self.key.life.holds(now) {
            return Ok(());
        }
        for (step, subject, life) in &self.key.windows {
            if let Err(reason) = inside(subject, life.from, life.until, now) {
                return Err(checks.fail(*step, reason));
            }
        }
        Ok(())
    }
}

fn read<'a>(
    checks: &mut Checks,
    evidence: &Evidence<'a>,
    policy: &Policy,
) -> Result<Report<'a>, Reason> {
    checks.run(SnpStep::ReportFormat, || {
        let report = Report::parse(evidence.quote)?;
        policy.formats.admit(Tee::Snp)?;
        let version = u64::from(report.version());
        let detail = crate::detail::Detail::numbers([version], |[version, ..], f| {
            write!(f, "snp, version {version}")
        });
        Ok((report, detail))
    })
}

fn close(
    outcome: Result<judge::AcceptedParts, Reason>,
    root: Option<Root>,
    checks: Checks,
) -> Result<Appraised, Rejection> {
    match (outcome, root) {
        (Ok(judged), Some(root)) => Ok(Accepted {
            grounds: judged.grounds,
            root,
            tcb_status: None,
            advisories: Arc::default(),
            platform: judged.platform,
            claims: judged.claims,
            gpu: judged.gpu,
            checks: checks.into_vec(),
        }
        .into()),
        (outcome, root) => {
            // The root is known before anything is judged.
            let reason = outcome.err().unwrap_or(Reason::NoRevocationList);
            Err(refusal(reason, root, checks))
        }
    }
}

fn refusal(reason: Reason, root: Option<Root>, checks: Checks) -> Rejection {
    let (advisories, checks) = (Arc::default(), checks.into_vec());
    Refused { reason, root, tcb_status: None, advisories, checks }.into()
}
