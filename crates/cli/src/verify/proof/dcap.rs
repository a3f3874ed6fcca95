//! What a statement of `dcap` is held against: roots, time, TCB status, the program.
//!
//! The proof shows that the verifier said what the statement says. A prover may bring a root of its
//! own, a revoked platform, a quote of last year: all of that is in the statement, and compared here.

use confide_evidence::{ReportData, UnixSeconds, quote::Tee, tcb_info::TcbStatus};
use confide_prover::{Check, Outcome};
use confide_statement::{Dcap, Measurements, SgxMeasurements, TdxMeasurements, Verdict};
use confide_verifier::{
    Anchor, Expect, Policy, ReferenceValue, RootKind, Roots, SgxWorkload, TdxWorkload,
};

use super::{
    super::{read_policy, read_root},
    Args, Unjudged,
};
use crate::process::unix_now;

/// What the checker knows beside the proof.
pub(super) struct Beyond {
    policy: Policy,
    report_data: Option<ReportData>,
    now: u64,
    given: bool,
}

/// Why a proved statement is not believed.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) name: &'static str,
    pub(super) detail: String,
}

impl Beyond {
    pub(super) fn read(args: &Args) -> Result<Self, Unjudged> {
        let mut policy = match &args.evidence_policy {
            None => Policy::default(),
            Some(path) => read_policy(path)?,
        };
        if let Some(path) = &args.root {
            policy.roots = Roots::from_der(&read_root(path)?);
        }
        let given = args.evidence_policy.is_some()
            || args.root.is_some()
            || args.report_data.is_some()
            || args.at.is_some();
        let now = args.at.unwrap_or_else(unix_now);
        Ok(Self { policy, report_data: args.report_data, now, given })
    }

    /// An expectation of a quote that is not compared must not look like one that held.
    pub(super) fn of_no_quote(&self, checks: &mut Vec<Check>) -> Result<(), Refused> {
        match self.given {
            false => Ok(()),
            true => {
                let reason = "--at, --root, --report-data and --evidence-policy are about a quote, \
                              and this proof is about none";
                Steps(checks).fail("evidence", reason.to_string())
            }
        }
    }

    /// Compares everything that the statement says with what is expected.
    pub(super) fn compare(&self, claim: &Dcap, checks: &mut Vec<Check>) -> Result<(), Refused> {
        let mut steps = Steps(checks);
        let verdict = match claim.verdict {
            Verdict::Accepted => "accepted: every signature holds under the root",
            Verdict::Conditional => {
                "conditional: every signature holds under the root, the policy has to allow the rest"
            }
        };
        steps.pass("verdict", verdict);
        self.kind(claim, &mut steps)?;
        self.root(claim, &mut steps)?;
        self.validity(claim, &mut steps)?;
        self.tcb(claim, &mut steps)?;
        self.freshness(claim, &mut steps)?;
        if claim.debug && !self.policy.dangerous_accept_debug {
            let reason = "the host can read the memory of the attested program".to_string();
            return steps.fail("debug", reason);
        }
        steps.pass("debug", if claim.debug { "on, as the policy allows" } else { "off" });
        self.report_data(claim, &mut steps)?;
        self.measurements(claim, &mut steps)?;
        steps.unproved(&self.policy)
    }

    /// The kinds of evidence that the policy looks at.
    fn kind(&self, claim: &Dcap, steps: &mut Steps<'_>) -> Result<(), Refused> {
        let got = match claim.measurements {
            Measurements::Tdx(_) => Tee::Tdx.as_str(),
            Measurements::Sgx(_) => Tee::Sgx.as_str(),
        };
        let wanted = self.policy.formats.to_string();
        if !wanted.split(" or ").any(|kind| kind == got) {
            return steps.fail("formats", format!("wanted {wanted}, got {got}"));
        }
        steps.compared("formats", !self.policy.formats.is_all(), got);
        Ok(())
    }

    fn root(&self, claim: &Dcap, steps: &mut Steps<'_>) -> Result<(), Refused> {
        let sha256 = hex::encode(claim.root_sha256);
        match self.policy.roots.find(Anchor::Intel, &claim.root_sha256) {
            Some(RootKind::Production) => steps.pass("root", &format!("Intel's, {sha256}")),
            Some(RootKind::Custom) => steps.pass("root", &format!("no vendor's, {sha256}")),
            None => {
                let reason = format!("wanted a root that the policy trusts, got {sha256}");
                return steps.fail("root", reason);
            }
        }
        Ok(())
    }

    fn validity(&self, claim: &Dcap, steps: &mut Steps<'_>) -> Result<(), Refused> {
        let (from, until, now) = (claim.valid_from, claim.valid_until, self.now);
        let [shown_from, shown_until, shown_now] = [from, until, now].map(UnixSeconds);
        let detail = format!("{shown_now} in {shown_from} to {shown_until}");
        match (from..=until).contains(&now) {
            true => steps.pass("validity", &detail),
            false => return steps.fail("validity", format!("wanted a time within, got {detail}")),
        }
        Ok(())
    }

    fn tcb(&self, claim: &Dcap, steps: &mut Steps<'_>) -> Result<(), Refused> {
        let wanted = &self.policy.tcb_status;
        let known = TcbStatus::from_text(&claim.tcb_status);
        let accepted = match known {
            Some(TcbStatus::Revoked) | None => false,
            Some(status) => wanted.accepts(&status),
        };
        if !accepted {
            let reason = format!("wanted {wanted}, got {}", claim.tcb_status);
            return steps.fail("tcb_status", reason);
        }
        steps.compared("tcb_status", wanted.is_evaluated(), &claim.tcb_status);
        let allowed = &self.policy.advisories;
        if let Some(other) = claim.advisories.iter().find(|advisory| !allowed.accepts(advisory)) {
            return steps.fail("advisories", format!("wanted {allowed}, got {other}"));
        }
        let said = match claim.advisories.is_empty() {
            true => "none".to_string(),
            false => claim.advisories.join(", "),
        };
        steps.compared("advisories", allowed.is_evaluated(), &said);
        Ok(())
    }

    /// How late a recovery and how late the revocation lists are that the verifier used.
    fn freshness(&self, claim: &Dcap, steps: &mut Steps<'_>) -> Result<(), Refused> {
        let number = u64::from(claim.tcb_evaluation_data_number);
        for (name, least, got) in [
            ("evaluation_number", self.policy.tcb_evaluation_data_number_min.into(), number),
            ("root_crl", self.policy.root_crl.issued_min, claim.root_crl_issued),
            ("pck_crl", self.policy.pck_crl.issued_min, claim.pck_crl_issued),
        ] {
            if got < least {
                return steps.fail(name, format!("wanted at least {least}, got {got}"));
            }
            steps.compared(name, least > 0, &got.to_string());
        }
        Ok(())
    }

    fn report_data(&self, claim: &Dcap, steps: &mut Steps<'_>) -> Result<(), Refused> {
        let got = hex::encode(claim.report_data);
        let by_policy = self.policy.report_data.as_ref();
        let given = self.report_data.map(|wanted| Expect::Exactly(wanted.0));
        for wanted in given.iter().chain(by_policy) {
            if !wanted.accepts(&claim.report_data) {
                return steps.fail("report_data", format!("wanted {wanted}, got {got}"));
            }
        }
        let compared = given.iter().chain(by_policy).any(Expect::is_evaluated);
        steps.compared("report_data", compared, &got);
        Ok(())
    }

    fn measurements(&self, claim: &Dcap, steps: &mut Steps<'_>) -> Result<(), Refused> {
        const NAME: &str = "measurements";
        let Some(workload) = &self.policy.workload else {
            let open = "no evidence policy: which program it was is not checked";
            steps.compared(NAME, false, open);
            return Ok(());
        };
        let named = match &claim.measurements {
            Measurements::Tdx(got) => workload.tdx.as_ref().map(|wanted| domain(wanted, got)),
            Measurements::Sgx(got) => workload.sgx.as_ref().map(|wanted| enclave(wanted, got)),
        };
        match named {
            None => steps.fail(NAME, "the policy has none for this TEE".to_string()),
            Some(Err(reason)) => steps.fail(NAME, reason),
            Some(Ok(compared)) => {
                steps.compared(NAME, !compared.is_empty(), &compared.join(", "));
                Ok(())
            }
        }
    }
}

/// The fields that were compared, or the first that differs.
fn domain(wanted: &TdxWorkload, got: &TdxMeasurements) -> Result<Vec<&'static str>, String> {
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
        field(name, wanted, got, &mut compared)?;
    }
    Ok(compared)
}

fn enclave(wanted: &SgxWorkload, got: &SgxMeasurements) -> Result<Vec<&'static str>, String> {
    let mut compared = Vec::new();
    field("mrenclave", &wanted.mrenclave, &got.mrenclave, &mut compared)?;
    field("mrsigner", &wanted.mrsigner, &got.mrsigner, &mut compared)?;
    field("isv_prod_id", &wanted.isv_prod_id, &got.isv_prod_id, &mut compared)?;
    field("config_id", &wanted.config_id, &got.config_id, &mut compared)?;
    if got.isv_svn < wanted.isv_svn_min {
        let (least, got) = (wanted.isv_svn_min, got.isv_svn);
        return Err(format!("isv_svn: wanted at least {least}, got {got}"));
    }
    compared.push("isv_svn");
    Ok(compared)
}

fn field<T: ReferenceValue + PartialEq>(
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

struct Steps<'a>(&'a mut Vec<Check>);

impl Steps<'_> {
    fn pass(&mut self, name: &'static str, detail: &str) {
        self.compared(name, true, detail);
    }

    /// What was looked at passed; what was not is not a yes.
    fn compared(&mut self, name: &'static str, evaluated: bool, detail: &str) {
        let outcome = if evaluated { Outcome::Passed } else { Outcome::NotEvaluated };
        self.0.push(Check { name, outcome, detail: detail.to_string() });
    }

    fn fail(&mut self, name: &'static str, detail: String) -> Result<(), Refused> {
        let outcome = Outcome::Failed;
        self.0.push(Check { name, outcome, detail: detail.clone() });
        Err(Refused { name, detail })
    }

    /// What a policy asks that no statement tells: refused, since a demand must not go unheard.
    fn unproved(&mut self, policy: &Policy) -> Result<(), Refused> {
        // Every key is named here: a new one does not compile before somebody has said whether it is
        // compared, asked for in vain, or about something else.
        let Policy {
            // Compared above.
            roots: _,
            formats: _,
            tcb_status: _,
            advisories: _,
            tcb_evaluation_data_number_min: _,
            dangerous_accept_debug: _,
            report_data: _,
            // A leave, not a demand: no statement tells the date of a level, so that it is not used.
            tcb_grace_s: _,
            // About what is made of a root that was compared, and about peers that are talked to.
            operator_roots: _,
            dangerous_scope: _,
            // About claims, what is remembered, and SEV-SNP: a statement speaks of none.
            key_validity_s_max: _,
            cache_lifetime_s: _,
            dangerous_skip_revocation: _,
            snp: _,
            root_crl,
            pck_crl,
            ppids,
            binding,
            config_digest,
            evidence_age_s_max,
            gpu,
            workload,
        } = policy;
        let domain = workload.as_ref().and_then(|workload| workload.tdx.as_ref());
        let asked = [
            ("ppids", ppids.is_some()),
            ("binding", binding.is_some()),
            ("config_digest", config_digest.is_some()),
            ("evidence_age_s_max", evidence_age_s_max.is_some()),
            ("root_crl.number_min", root_crl.number_min > 0),
            ("pck_crl.number_min", pck_crl.number_min > 0),
            ("gpu.required", gpu.required),
            ("mrseam", domain.is_some_and(|domain| domain.mrseam.is_some())),
            // The program itself refuses a trust domain with a service TD.
            ("mr_service_td", domain.is_some_and(|domain| !domain.mr_service_td.accepts(&[0; 48]))),
        ];
        match asked.iter().find(|(_, asked)| *asked) {
            None => Ok(()),
            Some((key, _)) => {
                self.fail("policy", format!("{key} is asked for, and no statement tells it"))
            }
        }
    }
}

#[cfg(test)]
#[path = "dcap_tests.rs"]
mod tests;
