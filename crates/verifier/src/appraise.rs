//! The reference appraisal of a quote: every signature is verified each time.

use confide_evidence::quote::{Body, Quote};
use rustls_pki_types::UnixTime;

use crate::{
    appraisal::{Appraisal, Platform, VerifySignatures},
    attributes,
    checks::{Checks, Step},
    crypto::Crypto,
    detail::Detail,
    endorsements::Endorsements,
    evidence::Evidence,
    gpu::attached::judge_attached,
    measurements,
    platform::FullVerification,
    policy::Policy,
    reason::Reason,
    result::{
        AcceptedParts, Appraised, EndorsementClaims, IntelClaims, PartialResult, PlatformClaims,
        Rejection,
    },
    scope::ScopeConditions,
};

/// Decides whether a quote is believed, under one policy and at one time.
///
/// Reads nothing but its arguments. The first check that fails ends it.
///
/// All nine signatures are verified each time: this is the reference that the prepared path
/// ([`crate::PreparedEndorsements`]) is held against.
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
    let mut found = PartialResult::new(Checks::new::<Step>());
    let outcome = read_quote(&mut found, evidence, policy).and_then(|quote| {
        let verified = endorsements.verify(&mut found.checks, &policy.roots, now, crypto)?;
        found.root = Some(verified.root);
        let appraisal =
            Appraisal { evidence, quote, endorsed: verified.values(), policy, now, crypto };
        appraisal.judge(&mut found, &mut FullVerification(&verified))
    });
    found.into_verdict(outcome)
}

impl Appraisal<'_> {
    pub(crate) fn judge(
        &self,
        found: &mut PartialResult,
        signatures: &mut impl VerifySignatures,
    ) -> Result<AcceptedParts, Reason> {
        self.check_root_crl(&mut found.checks)?;
        let platform = signatures.verify_pck(&mut found.checks, self)?;
        self.check_endorsed(&mut found.checks, &platform)?;
        let (ppids, ppid) = (self.policy.ppids.as_ref(), &platform.pck.ppid);
        found.checks.compare(Step::Chip, "PPID", ppids, ppid, "one that the policy names")?;
        self.check_pck_crl(&mut found.checks)?;
        signatures.verify_enclave(&mut found.checks, self, &platform)?;
        signatures.verify_quote(&mut found.checks, self)?;
        let verdict = self.judge_tcb(&mut found.checks, &platform)?;
        found.tcb_status = Some(verdict.status);
        found.advisories.clone_from(&verdict.advisories);
        self.check_tcb_policy(&mut found.checks, &verdict)?;
        attributes::check_attributes(&mut found.checks, &self.quote, self.policy)?;
        self.policy.admit_binding(&mut found.checks, Step::Binding, self.evidence)?;
        let names_program = self.check_workload(&mut found.checks)?;
        let claims = self.check_claims(&mut found.checks)?;
        let Self { evidence, policy, now, crypto, .. } = *self;
        let (checks, covered) = (&mut found.checks, claims.as_ref());
        let gpu = judge_attached(evidence, covered, policy, now, crypto, checks, Step::Gpu)?;
        let conditions = ScopeConditions {
            names_program,
            bound: found.checks.has_passed(Step::ReportData),
            configured: claims.is_none() || found.checks.has_passed(Step::ConfigDigest),
            closed: found.checks.has_passed(Step::Debug),
        };
        let platform = self.platform_claims(&platform);
        Ok(AcceptedParts { conditions, platform, claims, gpu })
    }

    fn platform_claims(&self, platform: &Platform) -> PlatformClaims {
        PlatformClaims {
            tee: self.quote.tee(),
            report_data: self.quote.report_data(),
            debug: attributes::is_debug(&self.quote),
            measurements: measurements::read_measurements(&self.quote),
            endorsed: EndorsementClaims::Intel(IntelClaims {
                fmspc: platform.pck.fmspc,
                tcb_evaluation_data_number: self.evaluation_number(),
                root_crl: self.endorsed.root_crl,
                pck_crl: self.endorsed.pck_crl,
            }),
            valid_from: platform.life.from,
            valid_until: platform.life.until,
        }
    }
}

pub(crate) fn read_quote<'a>(
    found: &mut PartialResult,
    evidence: &Evidence<'a>,
    policy: &Policy,
) -> Result<Quote<'a>, Reason> {
    found.checks.run(Step::QuoteFormat, || {
        let quote = Quote::parse(evidence.quote)?;
        policy.formats.check_admitted(quote.tee())?;
        let version = quote.header.version();
        let padding = quote.padding_length;
        let numbers = [version.into(), padding as u64];
        let detail = match quote.body {
            Body::Sgx(_) => Detail::numbers(numbers, |[version, padding, ..], f| {
                write!(f, "sgx, version {version}, {padding} bytes of padding")
            }),
            Body::Tdx(_) => Detail::numbers(numbers, |[version, padding, ..], f| {
                write!(f, "tdx, version {version}, {padding} bytes of padding")
            }),
        };
        Ok((quote, detail))
    })
}
