//! The one way to a yes.

use alloc::{format, string::String, sync::Arc};

use confide_evidence::{
    GpuPresented, ReportData,
    claims::Claims,
    quote::{Body, Quote},
    tcb_info::TcbStatus,
};
use rustls_pki_types::UnixTime;

use crate::{
    Anchor, Appraised, Crypto, Detail, Endorsements, PlatformClaims, Policy, Reason, Rejection,
    Root, Scope, VerifiedEndorsements, attributes, chain,
    checks::{Checks, Step},
    measurements,
    platform::Platform,
    result::{Accepted, Refused},
};

/// What a peer presented.
#[derive(Clone, Copy, Debug, Default)]
pub struct Evidence<'a> {
    /// The quote, unparsed.
    pub quote: &'a [u8],
    /// The CBOR claims of the attested end, where there are any.
    pub claims: Option<&'a [u8]>,
    /// What the report data has to be. With claims and without this, it has to be their SHA-256
    /// and 32 zero bytes (key binding). With both, the caller vouches that this value was computed
    /// over those claims (session binding): nothing here could find out that it was not.
    pub report_data: Option<ReportData>,
    /// Evidence of a GPU that belongs to this CPU, with the nonce that it has to hold.
    pub gpu: Option<GpuPresented<'a>>,
}

/// Decides whether a quote is believed, under one policy and at one time.
///
/// Reads nothing but its arguments. The first check that fails ends it.
pub fn appraise(
    evidence: &Evidence<'_>,
    endorsements: &Endorsements,
    policy: &Policy,
    now: UnixTime,
    crypto: &dyn Crypto,
) -> Result<Appraised, Rejection> {
    let mut found = Found::new(Checks::new::<Step>());
    let outcome = read_quote(&mut found, evidence).and_then(|quote| {
        let verified = endorsements.verify_into(&mut found.checks, &policy.roots, now, crypto)?;
        found.root = Some(verified.root);
        Case { evidence, quote, endorsements: &verified, policy, now, crypto }.judge(&mut found)
    });
    found.close(outcome)
}

impl VerifiedEndorsements<'_> {
    /// Decides as [`appraise`] does, with endorsements that are verified already.
    pub fn appraise(
        &self,
        evidence: &Evidence<'_>,
        policy: &Policy,
        now: UnixTime,
        crypto: &dyn Crypto,
    ) -> Result<Appraised, Rejection> {
        let mut found = Found::new(self.checks.clone().unwrap_or_else(Checks::new::<Step>));
        let outcome = read_quote(&mut found, evidence).and_then(|quote| {
            found.checks.run(Step::Root, || {
                let Root { sha256, .. } = self.root;
                let Some(kind) = policy.roots.find(Anchor::Intel, &sha256) else {
                    let got = hex::encode(sha256);
                    return Err(Reason::UntrustedRoot { wanted: format!("{}", policy.roots), got });
                };
                chain::inside("verified endorsements", self.life.from, self.life.until, now)?;
                Ok(((), kind.detail(&sha256)))
            })?;
            found.root = Some(self.root);
            Case { evidence, quote, endorsements: self, policy, now, crypto }.judge(&mut found)
        });
        found.close(outcome)
    }
}

/// What is known so far; all that a rejection may tell.
struct Found {
    checks: Checks,
    root: Option<Root>,
    tcb_status: Option<TcbStatus>,
    advisories: Arc<[String]>,
}

impl Found {
    fn new(checks: Checks) -> Self {
        Self { checks, root: None, tcb_status: None, advisories: Arc::default() }
    }

    fn close(self, outcome: Result<Judged, Reason>) -> Result<Appraised, Rejection> {
        let Self { checks, root, tcb_status, advisories } = self;
        match (outcome, root, tcb_status) {
            (Ok(judged), Some(root), Some(_)) => Ok(Accepted {
                scope: judged.scope,
                root,
                tcb_status,
                advisories,
                platform: judged.platform,
                claims: judged.claims,
                checks: checks.into_vec(),
            }
            .into()),
            (outcome, root, tcb_status) => {
                // `judge` returns Ok only after both are known.
                let reason = outcome.err();
                let reason = reason.unwrap_or(Reason::NoTcbLevel { subject: "the platform" });
                let checks = checks.into_vec();
                Err(Refused { reason, root, tcb_status, advisories, checks }.into())
            }
        }
    }
}

struct Judged {
    scope: Scope,
    platform: PlatformClaims,
    claims: Option<Claims>,
}

/// One quote before its judge.
pub(crate) struct Case<'a> {
    pub(crate) evidence: &'a Evidence<'a>,
    pub(crate) quote: Quote<'a>,
    pub(crate) endorsements: &'a VerifiedEndorsements<'a>,
    pub(crate) policy: &'a Policy,
    pub(crate) now: UnixTime,
    pub(crate) crypto: &'a dyn Crypto,
}

impl Case<'_> {
    fn judge(&self, found: &mut Found) -> Result<Judged, Reason> {
        self.root_crl(&mut found.checks)?;
        let platform = self.pck(&mut found.checks)?;
        self.pck_crl(&mut found.checks)?;
        self.quoting_enclave_signed(&mut found.checks, &platform)?;
        let verdict = self.tcb(&mut found.checks, &platform)?;
        found.tcb_status = Some(verdict.status);
        found.advisories.clone_from(&verdict.advisories);
        self.policy_on_tcb(&mut found.checks, &verdict)?;
        attributes::check(&mut found.checks, &self.quote, self.policy)?;
        let names_program = self.workload(&mut found.checks)?;
        let claims = self.claims(&mut found.checks)?;
        let bound = found.checks.passed(Step::ReportData);
        let configured = claims.is_none() || found.checks.passed(Step::ConfigDigest);
        // Whoever can write the memory runs there what he likes, whatever was measured.
        let closed = found.checks.passed(Step::Debug);
        let scope = match names_program && bound && configured && closed {
            true => Scope::Workload,
            false => Scope::Platform,
        };
        Ok(Judged { scope, platform: self.platform_claims(&platform), claims })
    }

    pub(crate) fn evaluation_number(&self) -> u32 {
        let info = self.endorsements.tcb_info().tcb_evaluation_data_number;
        info.min(self.endorsements.qe_identity().tcb_evaluation_data_number)
    }

    fn platform_claims(&self, platform: &Platform) -> PlatformClaims {
        PlatformClaims {
            tee: self.quote.tee(),
            report_data: self.quote.report_data(),
            debug: attributes::is_debug(&self.quote),
            measurements: measurements::of(&self.quote),
            fmspc: platform.pck.fmspc,
            tcb_evaluation_data_number: self.evaluation_number(),
            root_crl: (&self.endorsements.root_crl).into(),
            pck_crl: (&self.endorsements.pck_crl).into(),
            valid_until: platform.life.until,
        }
    }
}

fn read_quote<'a>(found: &mut Found, evidence: &Evidence<'a>) -> Result<Quote<'a>, Reason> {
    found.checks.run(Step::QuoteFormat, || {
        let quote = Quote::parse(evidence.quote)?;
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
