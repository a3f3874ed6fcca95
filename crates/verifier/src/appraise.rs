//! The one way to a yes.

use alloc::{string::String, sync::Arc};

use confide_evidence::{
    BindingKind, GpuPresented, Presented, ReportData,
    claims::Claims,
    qe_identity::QeIdentity,
    quote::{Body, Quote},
    tcb_info::{TcbInfo, TcbStatus},
};
use rustls_pki_types::UnixTime;

use crate::{
    attributes,
    checks::{Checks, Step},
    crypto::Crypto,
    detail::Detail,
    endorsements::Endorsements,
    gpu::{self, GpuAppraised},
    measurements,
    platform::{FullVerification, Platform},
    policy::Policy,
    reason::Reason,
    result::{
        Accepted, Appraised, CrlSeen, Endorsed, IntelClaims, PlatformClaims, Refused, Rejection,
        ScopeConditions,
    },
    roots::Root,
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
    /// How the channel that the evidence came over tied it to itself; `None` outside a channel.
    pub binding: Option<BindingKind>,
}

impl<'a> From<&Presented<'a>> for Evidence<'a> {
    /// The evidence that a channel received, with the report data that this connection demands.
    fn from(presented: &Presented<'a>) -> Self {
        Self {
            quote: presented.quote,
            claims: Some(presented.claims),
            report_data: Some(presented.expected_report_data),
            gpu: presented.gpu,
            binding: Some(presented.binding),
        }
    }
}

/// Decides whether a quote is believed, under one policy and at one time.
///
/// Reads nothing but its arguments. The first check that fails ends it.
///
/// All nine signatures are verified each time: this is the reference that the prepared path
/// ([`crate::Prepared`]) is held against.
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
        let verified = endorsements.verify_into(&mut found.checks, &policy.roots, now, crypto)?;
        found.root = Some(verified.root);
        let case = Appraisal { evidence, quote, grounds: verified.grounds(), policy, now, crypto };
        case.judge(&mut found, &mut FullVerification(&verified))
    });
    found.close(outcome)
}

/// What an appraisal has found so far: all that a rejection may report.
pub(crate) struct PartialResult {
    pub(crate) checks: Checks,
    pub(crate) root: Option<Root>,
    tcb_status: Option<TcbStatus>,
    advisories: Arc<[String]>,
}

impl PartialResult {
    pub(crate) fn new(checks: Checks) -> Self {
        Self { checks, root: None, tcb_status: None, advisories: Arc::default() }
    }

    pub(crate) fn close(
        self,
        outcome: Result<AcceptedParts, Reason>,
    ) -> Result<Appraised, Rejection> {
        let Self { checks, root, tcb_status, advisories } = self;
        match (outcome, root, tcb_status) {
            (Ok(judged), Some(root), Some(_)) => Ok(Accepted {
                grounds: judged.grounds,
                root,
                tcb_status,
                advisories,
                platform: judged.platform,
                claims: judged.claims,
                gpu: judged.gpu,
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

pub(crate) struct AcceptedParts {
    grounds: ScopeConditions,
    platform: PlatformClaims,
    claims: Option<Claims>,
    gpu: Option<GpuAppraised>,
}

/// The values of the verified endorsements, whether they were verified now or prepared before.
#[derive(Clone, Copy)]
pub(crate) struct EndorsedValues<'a> {
    pub(crate) tcb_info: &'a TcbInfo,
    pub(crate) qe_identity: &'a QeIdentity,
    pub(crate) root_crl: CrlSeen,
    pub(crate) pck_crl: CrlSeen,
}

/// The way from the root to the quote's signature. There are two: [`crate::appraise`] walks all of
/// it each time, [`crate::Prepared`] leaves out what it knows.
pub(crate) trait Signatures {
    /// The PCK chain: who the platform is.
    fn pck(&mut self, checks: &mut Checks, case: &Appraisal<'_>) -> Result<Platform, Reason>;

    /// The quoting enclave's report by the PCK, and the attestation key in it.
    fn enclave(
        &mut self,
        checks: &mut Checks,
        case: &Appraisal<'_>,
        platform: &Platform,
    ) -> Result<(), Reason>;

    /// The quote by the attestation key.
    fn quote(&mut self, checks: &mut Checks, case: &Appraisal<'_>) -> Result<(), Reason>;
}

/// The appraisal of one quote: its inputs, and the endorsements that were verified for it.
pub(crate) struct Appraisal<'a> {
    pub(crate) evidence: &'a Evidence<'a>,
    pub(crate) quote: Quote<'a>,
    pub(crate) grounds: EndorsedValues<'a>,
    pub(crate) policy: &'a Policy,
    pub(crate) now: UnixTime,
    pub(crate) crypto: &'a dyn Crypto,
}

impl Appraisal<'_> {
    pub(crate) fn judge(
        &self,
        found: &mut PartialResult,
        signatures: &mut impl Signatures,
    ) -> Result<AcceptedParts, Reason> {
        self.root_crl(&mut found.checks)?;
        let platform = signatures.pck(&mut found.checks, self)?;
        self.is_endorsed(&mut found.checks, &platform)?;
        self.policy.admit_chip(&mut found.checks, Step::Chip, &platform.pck.ppid)?;
        self.pck_crl(&mut found.checks)?;
        signatures.enclave(&mut found.checks, self, &platform)?;
        signatures.quote(&mut found.checks, self)?;
        let verdict = self.tcb(&mut found.checks, &platform)?;
        found.tcb_status = Some(verdict.status);
        found.advisories.clone_from(&verdict.advisories);
        self.policy_on_tcb(&mut found.checks, &verdict)?;
        attributes::check(&mut found.checks, &self.quote, self.policy)?;
        self.policy.admit_binding(&mut found.checks, Step::Binding, self.evidence)?;
        let names_program = self.workload(&mut found.checks)?;
        let claims = self.claims(&mut found.checks)?;
        let Self { evidence, policy, now, crypto, .. } = *self;
        let (checks, covered) = (&mut found.checks, claims.as_ref());
        let gpu = gpu::judge_attached(evidence, covered, policy, now, crypto, checks, Step::Gpu)?;
        let grounds = ScopeConditions {
            names_program,
            bound: found.checks.passed(Step::ReportData),
            configured: claims.is_none() || found.checks.passed(Step::ConfigDigest),
            closed: found.checks.passed(Step::Debug),
        };
        Ok(AcceptedParts { grounds, platform: self.platform_claims(&platform), claims, gpu })
    }

    pub(crate) fn evaluation_number(&self) -> u32 {
        let EndorsedValues { tcb_info, qe_identity, .. } = self.grounds;
        tcb_info.tcb_evaluation_data_number.min(qe_identity.tcb_evaluation_data_number)
    }

    fn platform_claims(&self, platform: &Platform) -> PlatformClaims {
        PlatformClaims {
            tee: self.quote.tee(),
            report_data: self.quote.report_data(),
            debug: attributes::is_debug(&self.quote),
            measurements: measurements::of(&self.quote),
            endorsed: Endorsed::Intel(IntelClaims {
                fmspc: platform.pck.fmspc,
                tcb_evaluation_data_number: self.evaluation_number(),
                root_crl: self.grounds.root_crl,
                pck_crl: self.grounds.pck_crl,
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
        policy.formats.admit(quote.tee())?;
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
