//! What the quote is about: report data, measurements, and the claims that the report data covers.

use alloc::string::{String, ToString};

use confide_evidence::{ReportData, claims::Claims};
use rustls_pki_types::UnixTime;

use crate::{
    Detail, Policy, Reason,
    appraise::Case,
    chain::inside,
    checks::{Checks, Step},
    expect::Expect,
    measurements,
};

impl Case<'_> {
    /// Report data and measurements; whether they name a program.
    pub(crate) fn workload(&self, checks: &mut Checks) -> Result<bool, Reason> {
        self.report_data(checks)?;
        let Some(workload) = &self.policy.workload else {
            checks.skip(Step::Measurements, "the policy names no workload");
            return Ok(false);
        };
        checks.run(Step::Measurements, || {
            let compared = measurements::compare(workload, &self.quote)?;
            Ok((compared.names_program, compared.detail))
        })
    }

    fn report_data(&self, checks: &mut Checks) -> Result<(), Reason> {
        let got = self.quote.report_data();
        let from_claims = self
            .evidence
            .claims
            .map(|claims| ReportData::from_digest(self.crypto.sha256(&[claims])));
        let expected = self.evidence.report_data.or(from_claims);
        let by_policy = self.policy.report_data.as_ref().filter(|wanted| wanted.is_evaluated());
        if expected.is_none() && by_policy.is_none() {
            checks.skip(Step::ReportData, "nothing to compare it with was given");
            return Ok(());
        }
        checks.run(Step::ReportData, || {
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

    pub(crate) fn claims(&self, checks: &mut Checks) -> Result<Option<Claims>, Reason> {
        let Some(bytes) = self.evidence.claims else {
            return self.no_claims(checks).map(|()| None);
        };
        let claims = checks.run(Step::Claims, || {
            let claims = Claims::decode(bytes).map_err(Reason::Claims)?;
            let detail = match self.evidence.report_data {
                None => "covered by the report data",
                Some(_) => "covered by the report data that the caller computed",
            };
            Ok((claims, detail.into()))
        })?;
        match &self.policy.config_digest {
            None => checks.skip(Step::ConfigDigest, "the policy names none"),
            Some(Expect::DangerousAny) => {
                checks.skip(Step::ConfigDigest, "the policy says dangerous-any");
            }
            Some(wanted) => checks.run(Step::ConfigDigest, || {
                if !wanted.accepts(&claims.config_digest) {
                    return Err(Reason::Value {
                        field: "configuration digest",
                        wanted: wanted.to_string(),
                        got: hex::encode(claims.config_digest),
                    });
                }
                Ok(((), "as wanted".into()))
            })?,
        }
        ages(checks, &claims, self.policy, self.now)?;
        Ok(Some(claims))
    }

    /// Without claims, a policy that speaks of them is not met.
    fn no_claims(&self, checks: &mut Checks) -> Result<(), Reason> {
        checks.skip(Step::Claims, "the evidence has none");
        let digest = self.policy.config_digest.as_ref();
        let demanded = [
            (Step::ConfigDigest, digest.is_some_and(Expect::is_evaluated), "config_digest"),
            (Step::EvidenceAge, self.policy.evidence_age_s_max.is_some(), "evidence_age_s_max"),
        ];
        for (step, is_demanded, field) in demanded {
            if is_demanded {
                return checks.run(step, || Err(Reason::NoClaims { field }));
            }
            checks.skip(step, "the evidence has no claims");
        }
        checks.skip(Step::KeyValidity, "the evidence has no claims");
        Ok(())
    }
}

/// How long the claims hold, whether they hold now, and how old they are.
fn ages(
    checks: &mut Checks,
    claims: &Claims,
    policy: &Policy,
    now: UnixTime,
) -> Result<(), Reason> {
    let Claims { not_before, not_after, .. } = *claims;
    checks.run(Step::KeyValidity, || {
        inside("bound key", not_before, not_after, now)?;
        let (wanted, got) = (policy.key_validity_s_max, not_after.saturating_sub(not_before));
        if got > wanted {
            return Err(Reason::TooOld { field: "key_validity_s_max", wanted, got });
        }
        let detail = Detail::numbers([got, not_after], |[got, not_after, ..], f| {
            write!(f, "{got} s, until {not_after}")
        });
        Ok(((), detail))
    })?;
    let Some(wanted) = policy.evidence_age_s_max else {
        checks.skip(Step::EvidenceAge, "the policy sets no limit");
        return Ok(());
    };
    checks.run(Step::EvidenceAge, || {
        let got = now.as_secs().saturating_sub(not_before);
        if got > wanted {
            return Err(Reason::TooOld { field: "evidence_age_s_max", wanted, got });
        }
        Ok(((), Detail::numbers([got], |[got, ..], f| write!(f, "{got} s"))))
    })
}
