//! The expectations of a statement of `dcap`: roots, time, TCB status, the program.
//!
//! The proof shows that the verifier made the statement. A prover may use a root of its own, a
//! revoked platform or an old quote: all of that is in the statement, and is compared here.

use confide_evidence::{ReportData, UnixSeconds, quote::Tee, tcb_info::TcbStatus};
use confide_prover::{Check, Outcome};
use confide_statement::{Dcap, Measurements, SgxMeasurements, TdxMeasurements, Verdict};
use confide_verifier::{
    Anchor, Expect, Policy, ReferenceValue, RootKind, SgxWorkload, TdxWorkload,
};

use super::{arguments::Args, unjudged::UnjudgedProof};
use crate::{process::unix_now, verify::inputs::read_policy};

/// The verifier's expectations of the quote behind a proof.
pub(super) struct EvidenceExpectation {
    policy: Policy,
    report_data: Option<ReportData>,
    now: u64,
    is_given: bool,
}

/// Why a proved statement is refused.
#[derive(Debug)]
pub(super) struct RefusedStatement {
    pub(super) name: &'static str,
    pub(super) detail: String,
}

impl EvidenceExpectation {
    pub(super) fn from_args(args: &Args) -> Result<Self, UnjudgedProof> {
        let policy = read_policy(args.evidence_policy.as_deref(), args.root.as_deref())
            .map_err(UnjudgedProof::unreadable)?;
        let is_given = args.evidence_policy.is_some()
            || args.root.is_some()
            || args.report_data.is_some()
            || args.at.is_some();
        let now = args.at.unwrap_or_else(unix_now);
        Ok(Self { policy, report_data: args.report_data, now, is_given })
    }

    /// Refuses an expectation of a quote for a statement without one: an expectation that is not compared must not look
    /// like one that was met.
    pub(super) fn refuse_without_quote(
        &self,
        checks: &mut Vec<Check>,
    ) -> Result<(), RefusedStatement> {
        if !self.is_given {
            return Ok(());
        }
        let reason = "--at, --root, --report-data and --evidence-policy apply only to a proof about a \
                      quote";
        CheckList(checks).fail("evidence", reason.to_string())
    }

    /// Compares the whole statement with what is expected.
    pub(super) fn compare(
        &self,
        claim: &Dcap,
        checks: &mut Vec<Check>,
    ) -> Result<(), RefusedStatement> {
        let mut steps = CheckList(checks);
        let verdict = match claim.verdict {
            Verdict::Accepted => "accepted: every signature verifies under the root",
            Verdict::Conditional => {
                "conditional: every signature verifies under the root; the policy must allow the rest"
            }
        };
        steps.add_passed("verdict", verdict);
        self.compare_kind(claim, &mut steps)?;
        self.compare_root(claim, &mut steps)?;
        self.compare_validity(claim, &mut steps)?;
        self.compare_tcb(claim, &mut steps)?;
        self.compare_freshness(claim, &mut steps)?;
        if claim.debug && !self.policy.dangerous_accept_debug {
            let reason = "the host can read the memory of the attested program".to_string();
            return steps.fail("debug", reason);
        }
        steps.add_passed("debug", if claim.debug { "on, as the policy allows" } else { "off" });
        self.compare_report_data(claim, &mut steps)?;
        self.compare_measurements(claim, &mut steps)?;
        steps.refuse_unprovable_demands(&self.policy)
    }

    /// Compares the kind of the evidence with those that the policy admits.
    fn compare_kind(
        &self,
        claim: &Dcap,
        steps: &mut CheckList<'_>,
    ) -> Result<(), RefusedStatement> {
        let got = match claim.measurements {
            Measurements::Tdx(_) => Tee::Tdx.as_str(),
            Measurements::Sgx(_) => Tee::Sgx.as_str(),
        };
        let wanted = self.policy.formats.to_string();
        if !wanted.split(" or ").any(|kind| kind == got) {
            return steps.fail("formats", format!("wanted {wanted}, got {got}"));
        }
        steps.push("formats", !self.policy.formats.is_all(), got);
        Ok(())
    }

    fn compare_root(
        &self,
        claim: &Dcap,
        steps: &mut CheckList<'_>,
    ) -> Result<(), RefusedStatement> {
        let sha256 = hex::encode(claim.root_sha256);
        match self.policy.roots.find(Anchor::Intel, &claim.root_sha256) {
            Some(RootKind::Production) => steps.add_passed("root", &format!("Intel's, {sha256}")),
            Some(RootKind::Custom) => {
                steps.add_passed("root", &format!("not a vendor's, {sha256}"))
            }
            None => {
                let reason = format!("wanted a root that the policy trusts, got {sha256}");
                return steps.fail("root", reason);
            }
        }
        Ok(())
    }

    fn compare_validity(
        &self,
        claim: &Dcap,
        steps: &mut CheckList<'_>,
    ) -> Result<(), RefusedStatement> {
        let (from, until, now) = (claim.valid_from, claim.valid_until, self.now);
        let [shown_from, shown_until, shown_now] = [from, until, now].map(UnixSeconds);
        let detail = format!("{shown_now} in {shown_from} to {shown_until}");
        if !(from..=until).contains(&now) {
            return steps.fail("validity", format!("wanted a time within, got {detail}"));
        }
        steps.add_passed("validity", &detail);
        Ok(())
    }

    fn compare_tcb(&self, claim: &Dcap, steps: &mut CheckList<'_>) -> Result<(), RefusedStatement> {
        let wanted = &self.policy.tcb_status;
        let known = TcbStatus::from_text(&claim.tcb_status);
        let accepted =
            known.is_some_and(|status| status != TcbStatus::Revoked && wanted.accepts(&status));
        if !accepted {
            let reason = format!("wanted {wanted}, got {}", claim.tcb_status);
            return steps.fail("tcb_status", reason);
        }
        steps.push("tcb_status", wanted.is_evaluated(), &claim.tcb_status);
        let allowed = &self.policy.advisories;
        if let Some(other) = claim.advisories.iter().find(|advisory| !allowed.accepts(advisory)) {
            return steps.fail("advisories", format!("wanted {allowed}, got {other}"));
        }
        let advisories = claim.advisories.join(", ");
        let listed = if advisories.is_empty() { "none" } else { &advisories };
        steps.push("advisories", allowed.is_evaluated(), listed);
        Ok(())
    }

    /// Compares the TCB recovery and the revocation lists that the verifier used with the oldest admitted ones.
    fn compare_freshness(
        &self,
        claim: &Dcap,
        steps: &mut CheckList<'_>,
    ) -> Result<(), RefusedStatement> {
        let number = u64::from(claim.tcb_evaluation_data_number);
        for (name, least, got) in [
            ("evaluation_number", self.policy.tcb_evaluation_data_number_min.into(), number),
            ("root_crl", self.policy.root_crl.issued_min, claim.root_crl_issued),
            ("pck_crl", self.policy.pck_crl.issued_min, claim.pck_crl_issued),
        ] {
            if got < least {
                return steps.fail(name, format!("wanted at least {least}, got {got}"));
            }
            steps.push(name, least > 0, &got.to_string());
        }
        Ok(())
    }

    fn compare_report_data(
        &self,
        claim: &Dcap,
        steps: &mut CheckList<'_>,
    ) -> Result<(), RefusedStatement> {
        let got = hex::encode(claim.report_data);
        let by_policy = self.policy.report_data.as_ref();
        let given = self.report_data.map(|wanted| Expect::Exactly(wanted.0));
        for wanted in given.iter().chain(by_policy) {
            if !wanted.accepts(&claim.report_data) {
                return steps.fail("report_data", format!("wanted {wanted}, got {got}"));
            }
        }
        let compared = given.iter().chain(by_policy).any(Expect::is_evaluated);
        steps.push("report_data", compared, &got);
        Ok(())
    }

    fn compare_measurements(
        &self,
        claim: &Dcap,
        steps: &mut CheckList<'_>,
    ) -> Result<(), RefusedStatement> {
        const NAME: &str = "measurements";
        let Some(workload) = &self.policy.workload else {
            let open = "no evidence policy: which program it was is not checked";
            steps.push(NAME, false, open);
            return Ok(());
        };
        let named = match &claim.measurements {
            Measurements::Tdx(got) => {
                workload.tdx.as_ref().map(|wanted| compare_trust_domain(wanted, got))
            }
            Measurements::Sgx(got) => {
                workload.sgx.as_ref().map(|wanted| compare_enclave(wanted, got))
            }
        };
        match named {
            None => steps.fail(NAME, "the policy has no measurements for this TEE".to_string()),
            Some(Err(reason)) => steps.fail(NAME, reason),
            Some(Ok(compared)) => {
                steps.push(NAME, !compared.is_empty(), &compared.join(", "));
                Ok(())
            }
        }
    }
}

/// Compares the measurements of a trust domain; gives the fields that were compared, or the first that differs.
fn compare_trust_domain(
    wanted: &TdxWorkload,
    got: &TdxMeasurements,
) -> Result<Vec<&'static str>, String> {
    let mut compared = Vec::new();
    for (name, wanted, got) in [
        ("mrtd", &wanted.mrtd, &got.mrtd),
        ("rtmr0", &wanted.rtmr0, &got.rtmr0),
        ("rtmr1", &wanted.rtmr1, &got.rtmr1),
        ("rtmr2", &wanted.rtmr2, &got.rtmr2),
        ("rtmr3", &wanted.rtmr3, &got.rtmr3),
        ("mrconfigid", &wanted.mrconfigid, &got.mrconfigid),
        ("mrowner", &wanted.mrowner, &got.mrowner),
        ("mrownerconfig", &wanted.mrownerconfig, &got.mrownerconfig),
    ] {
        compare_field(name, wanted, got, &mut compared)?;
    }
    Ok(compared)
}

fn compare_enclave(
    wanted: &SgxWorkload,
    got: &SgxMeasurements,
) -> Result<Vec<&'static str>, String> {
    let mut compared = Vec::new();
    compare_field("mrenclave", &wanted.mrenclave, &got.mrenclave, &mut compared)?;
    compare_field("mrsigner", &wanted.mrsigner, &got.mrsigner, &mut compared)?;
    compare_field("isv_prod_id", &wanted.isv_prod_id, &got.isv_prod_id, &mut compared)?;
    compare_field("config_id", &wanted.config_id, &got.config_id, &mut compared)?;
    if got.isv_svn < wanted.isv_svn_min {
        let (least, got) = (wanted.isv_svn_min, got.isv_svn);
        return Err(format!("isv_svn: wanted at least {least}, got {got}"));
    }
    compared.push("isv_svn");
    Ok(compared)
}

fn compare_field<T: ReferenceValue + PartialEq>(
    name: &'static str,
    wanted: &Expect<T>,
    got: &T,
    compared: &mut Vec<&'static str>,
) -> Result<(), String> {
    if !wanted.accepts(got) {
        return Err(format!("{name}: wanted {wanted}, got {}", got.to_text()));
    }
    if wanted.is_evaluated() {
        compared.push(name);
    }
    Ok(())
}

struct CheckList<'a>(&'a mut Vec<Check>);

impl CheckList<'_> {
    fn add_passed(&mut self, name: &'static str, detail: &str) {
        self.push(name, true, detail);
    }

    /// Adds a check that passed, or that was not evaluated, which is not a pass.
    fn push(&mut self, name: &'static str, evaluated: bool, detail: &str) {
        let outcome = if evaluated { Outcome::Passed } else { Outcome::NotEvaluated };
        self.0.push(Check { name, outcome, detail: detail.to_string() });
    }

    fn fail(&mut self, name: &'static str, detail: String) -> Result<(), RefusedStatement> {
        let outcome = Outcome::Failed;
        self.0.push(Check { name, outcome, detail: detail.clone() });
        Err(RefusedStatement { name, detail })
    }

    /// Refuses demands of a policy that no statement can prove: a demand must not be ignored.
    fn refuse_unprovable_demands(&mut self, policy: &Policy) -> Result<(), RefusedStatement> {
        // Every key is named here: a new one does not compile until somebody has decided whether it is
        // compared, demanded in vain, or about something else.
        let Policy {
            // Compared above.
            roots: _,
            formats: _,
            tcb_status: _,
            advisories: _,
            tcb_evaluation_data_number_min: _,
            dangerous_accept_debug: _,
            report_data: _,
            // A permission, not a demand: no statement has the date of a TCB level, so it is not used.
            tcb_grace_s: _,
            // About the use of a root that was compared, and about peers.
            operator_roots: _,
            dangerous_scope: _,
            // About claims, memory, and SEV-SNP, none of which is in a statement.
            key_validity_s_max: _,
            cache_lifetime_s: _,
            dangerous_skip_revocation: _,
            snp: _,
            root_crl,
            pck_crl,
            ppids,
            binding,
            config_digest,
            weights,
            evidence_age_s_max,
            gpu,
            workload,
        } = policy;
        let domain = workload.as_ref().and_then(|workload| workload.tdx.as_ref());
        let demanded = [
            ("ppids", ppids.is_some()),
            ("binding", binding.is_some()),
            ("config_digest", config_digest.is_some()),
            ("weights", weights.is_some()),
            ("evidence_age_s_max", evidence_age_s_max.is_some()),
            ("root_crl.number_min", root_crl.number_min > 0),
            ("pck_crl.number_min", pck_crl.number_min > 0),
            ("gpu.required", gpu.required),
            ("mrseam", domain.is_some_and(|domain| domain.mrseam.is_some())),
            // The program itself refuses a trust domain with a service TD.
            ("mr_service_td", domain.is_some_and(|domain| !domain.mr_service_td.accepts(&[0; 48]))),
        ];
        match demanded.iter().find(|(_, is_demanded)| *is_demanded) {
            None => Ok(()),
            Some((key, _)) => {
                self.fail("policy", format!("the policy demands {key}, which no statement proves"))
            }
        }
    }
}

#[cfg(test)]
#[path = "dcap_tests.rs"]
mod tests;
