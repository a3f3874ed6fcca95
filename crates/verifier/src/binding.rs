//! Checks of report data, measurements, and the claims that the report data covers.

use alloc::string::{String, ToString};

use confide_evidence::{ReportData, UnixSeconds, claims::Claims, weights_claim::WeightsClaim};
use rustls_pki_types::UnixTime;

use crate::{
    appraisal::Appraisal,
    checks::{Checks, Step, StepNames},
    crypto::Crypto,
    detail::Detail,
    evidence::Evidence,
    expect::Expect,
    measurements,
    policy::Policy,
    reason::Reason,
    validity::Validity,
};

/// The checks of report data and claims, which every kind of evidence with report data has.
pub(crate) trait BindingSteps: StepNames {
    const REPORT_DATA: Self;
    const CLAIMS: Self;
    const CONFIG_DIGEST: Self;
    const WEIGHTS: Self;
    const KEY_VALIDITY: Self;
    const EVIDENCE_AGE: Self;
}

impl BindingSteps for Step {
    const REPORT_DATA: Self = Step::ReportData;
    const CLAIMS: Self = Step::Claims;
    const CONFIG_DIGEST: Self = Step::ConfigDigest;
    const WEIGHTS: Self = Step::Weights;
    const KEY_VALIDITY: Self = Step::KeyValidity;
    const EVIDENCE_AGE: Self = Step::EvidenceAge;
}

impl Appraisal<'_> {
    /// Checks report data and measurements; `true` where they tell one program from every other.
    pub(crate) fn check_workload(&self, checks: &mut Checks) -> Result<bool, Reason> {
        self.binding().check_report_data::<Step>(checks)?;
        let Some(workload) = &self.policy.workload else {
            checks.skip(Step::Measurements, "the policy names no workload");
            return Ok(false);
        };
        checks.run(Step::Measurements, || {
            let compared = measurements::compare(workload, &self.quote)?;
            Ok((compared.names_program, compared.detail))
        })
    }

    pub(crate) fn check_claims(&self, checks: &mut Checks) -> Result<Option<Claims>, Reason> {
        self.binding().check_claims::<Step>(checks)
    }

    fn binding(&self) -> Binding<'_> {
        let Self { evidence, policy, now, crypto, .. } = *self;
        Binding { evidence, report_data: self.quote.report_data(), policy, now, crypto }
    }
}

/// The report data of some evidence, and the inputs that it is checked with.
#[derive(Clone, Copy)]
pub(crate) struct Binding<'a> {
    pub(crate) evidence: &'a Evidence<'a>,
    pub(crate) report_data: ReportData,
    pub(crate) policy: &'a Policy,
    pub(crate) now: UnixTime,
    pub(crate) crypto: &'a dyn Crypto,
}

impl Binding<'_> {
    pub(crate) fn check_report_data<S: BindingSteps>(
        &self,
        checks: &mut Checks,
    ) -> Result<(), Reason> {
        let got = self.report_data;
        let from_claims = self
            .evidence
            .claims
            .map(|claims| ReportData::from_digest(self.crypto.sha256(&[claims])));
        let expected = self.evidence.report_data.or(from_claims);
        let by_policy = self.policy.report_data.as_ref().filter(|wanted| wanted.is_evaluated());
        if expected.is_none() && by_policy.is_none() {
            checks.skip(S::REPORT_DATA, "no value was given to compare it with");
            return Ok(());
        }
        checks.run(S::REPORT_DATA, || {
            let refused = |wanted: String| {
                Err(Reason::Value { field: "report data", wanted, got: got.to_string() })
            };
            match (expected, by_policy) {
                (Some(wanted), _) if wanted != got => refused(wanted.to_string()),
                (_, Some(wanted)) if !wanted.accepts(&got.0) => refused(wanted.to_string()),
                _ => Ok(((), "as wanted".into())),
            }
        })
    }

    pub(crate) fn check_claims<S: BindingSteps>(
        &self,
        checks: &mut Checks,
    ) -> Result<Option<Claims>, Reason> {
        let Some(bytes) = self.evidence.claims else {
            return self.check_absent_claims::<S>(checks).map(|()| None);
        };
        let claims = checks.run(S::CLAIMS, || {
            let claims = Claims::decode(bytes).map_err(Reason::Claims)?;
            let detail = match self.evidence.report_data {
                None => "covered by the report data",
                Some(_) => "covered by the report data that the caller computed",
            };
            Ok((claims, detail.into()))
        })?;
        checks.compare(
            S::CONFIG_DIGEST,
            "configuration digest",
            self.policy.config_digest.as_ref(),
            &claims.config_digest,
            "as wanted",
        )?;
        check_weights::<S>(checks, claims.weights.as_ref(), self.policy)?;
        check_ages::<S>(checks, &claims, self.policy, self.now)?;
        Ok(Some(claims))
    }

    /// Notes that there are no claims; a policy with a key about them then refuses the evidence.
    fn check_absent_claims<S: BindingSteps>(&self, checks: &mut Checks) -> Result<(), Reason> {
        checks.skip(S::CLAIMS, "the evidence has none");
        let is_evaluated =
            |wanted: &Option<Expect<[u8; 32]>>| wanted.as_ref().is_some_and(Expect::is_evaluated);
        let demanded = [
            (S::CONFIG_DIGEST, is_evaluated(&self.policy.config_digest), "config_digest"),
            (S::WEIGHTS, is_evaluated(&self.policy.weights), "weights"),
            (S::EVIDENCE_AGE, self.policy.evidence_age_s_max.is_some(), "evidence_age_s_max"),
        ];
        for (step, is_demanded, field) in demanded {
            if is_demanded {
                return checks.run(step, || Err(Reason::NoClaims { field }));
            }
            checks.skip(step, "the evidence has no claims");
        }
        checks.skip(S::KEY_VALIDITY, "the evidence has no claims");
        Ok(())
    }
}

/// Checks that the weights of every model that may answer were measured and are wanted ones.
fn check_weights<S: BindingSteps>(
    checks: &mut Checks,
    claim: Option<&WeightsClaim>,
    policy: &Policy,
) -> Result<(), Reason> {
    let wanted = match &policy.weights {
        Some(wanted) if wanted.is_evaluated() => wanted,
        Some(_) => {
            checks.skip(S::WEIGHTS, "the policy says dangerous-any");
            return Ok(());
        }
        None => {
            checks.skip(S::WEIGHTS, "the policy names none");
            return Ok(());
        }
    };
    let holds = policy.accepts_weights(claim);
    checks.require(S::WEIGHTS, holds, "measured, as wanted", || Reason::Value {
        field: "weights",
        wanted: wanted.to_string(),
        got: WeightsClaim::describe(claim),
    })
}

/// Checks how long the claims hold, that they hold now, and how old they are.
fn check_ages<S: BindingSteps>(
    checks: &mut Checks,
    claims: &Claims,
    policy: &Policy,
    now: UnixTime,
) -> Result<(), Reason> {
    let Claims { not_before, not_after, .. } = *claims;
    checks.run(S::KEY_VALIDITY, || {
        Validity::new(not_before, not_after).check("bound key", now)?;
        let (wanted, got) = (policy.key_validity_s_max, not_after.saturating_sub(not_before));
        if got > wanted {
            return Err(Reason::TooOld { field: "key_validity_s_max", wanted, got });
        }
        let detail = Detail::numbers([got, not_after], |[got, not_after, ..], f| {
            write!(f, "{got} s, until {}", UnixSeconds(*not_after))
        });
        Ok(((), detail))
    })?;
    let Some(wanted) = policy.evidence_age_s_max else {
        checks.skip(S::EVIDENCE_AGE, "the policy sets no limit");
        return Ok(());
    };
    checks.run(S::EVIDENCE_AGE, || {
        let got = now.as_secs().saturating_sub(not_before);
        if got > wanted {
            return Err(Reason::TooOld { field: "evidence_age_s_max", wanted, got });
        }
        Ok(((), Detail::numbers([got], |[got, ..], f| write!(f, "{got} s"))))
    })
}
