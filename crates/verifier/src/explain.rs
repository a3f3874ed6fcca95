//! A policy in words: what it checks, what it leaves unchecked, and what it weakens.

use alloc::{format, string::String, vec::Vec};

use confide_evidence::tcb_info::TcbStatus;

use crate::{
    admission::{AdmittedTees, BindingLevel, DangerousScope},
    expect::Expect,
    explanation::{Explanation, Sentence},
    gpu::policy::GpuPolicy,
    policy::{Policy, SgxWorkload, TdxWorkload, Workload},
    roots::Roots,
};

impl Policy {
    /// Every field in words, in the order of `docs/policy.md`.
    ///
    /// What no policy can change (signatures, dates, revocation) is not in the list.
    pub fn explain(&self) -> Vec<Sentence> {
        // Without `..`: a new field does not compile until it has its sentence.
        let Policy {
            roots,
            operator_roots,
            dangerous_scope,
            formats,
            tcb_status,
            tcb_grace_s,
            advisories,
            tcb_evaluation_data_number_min,
            root_crl,
            pck_crl,
            dangerous_accept_debug,
            ppids,
            binding,
            report_data,
            config_digest,
            weights,
            key_validity_s_max,
            evidence_age_s_max,
            cache_lifetime_s,
            gpu,
            dangerous_skip_revocation,
            snp,
            workload,
        } = self;
        let mut explanation = Explanation::default();
        explanation.add_roots(roots, operator_roots.as_ref());
        explanation.add_scope(*dangerous_scope);
        explanation.add_formats(formats);
        explanation.add_tcb(tcb_status, *tcb_grace_s, advisories);
        explanation.add_minimum(
            "tcb_evaluation_data_number_min",
            "the TCB evaluation data number",
            *tcb_evaluation_data_number_min,
        );
        explanation.add_revocation_list("root_crl", "the root's revocation list", *root_crl);
        explanation.add_revocation_list("pck_crl", "the PCK CA's revocation list", *pck_crl);
        explanation.add_debug(*dangerous_accept_debug);
        let (ppid, otherwise) = ("the Intel platform's PPID", "any Intel platform");
        explanation.add_optional("ppids", ppid, ppids.as_ref(), otherwise);
        explanation.add_binding(*binding);
        let otherwise = "the report data equals the value that the channel or the caller computes";
        let wanted = report_data.as_ref();
        explanation.add_optional("report_data", "the report data", wanted, otherwise);
        let otherwise = "any configuration of the program: clients refuse, because acceptance \
                         would cover the platform only";
        let (digest, wanted) = ("the configuration's digest", config_digest.as_ref());
        explanation.add_optional("config_digest", digest, wanted, otherwise);
        let subject = "the digest of the weights of each model that may answer";
        let otherwise = "any weights, measured or not";
        explanation.add_optional("weights", subject, weights.as_ref(), otherwise);
        explanation.add_ages(*key_validity_s_max, *evidence_age_s_max);
        let lifetime = describe_seconds(*cache_lifetime_s);
        let text = format!("a verdict on a platform's keys is used for at most {lifetime}");
        explanation.add_checked("cache_lifetime_s", text);
        explanation.add_gpu(gpu);
        if *dangerous_skip_revocation {
            let text = "a chip key may be revoked if no revocation list was given (SEV-SNP)";
            explanation.add_dangerous("dangerous_skip_revocation", text);
        }
        snp.explain(&mut explanation);
        explanation.add_workload(workload.as_ref());
        explanation.0
    }
}

impl Explanation {
    fn add_formats(&mut self, formats: &AdmittedTees) {
        match formats.is_all() {
            true => self.add_unchecked("formats", "any kind of evidence"),
            false => self.add_checked("formats", format!("the evidence is of {formats}")),
        }
    }

    fn add_roots(&mut self, roots: &Roots, own: Option<&Roots>) {
        self.add_checked("roots", format!("the chain ends in {roots}"));
        if let Some(own) = own {
            self.add_unchecked("operator_roots", format!("{own} counts like a vendor's root"));
        }
    }

    fn add_scope(&mut self, lifted: Option<DangerousScope>) {
        if lifted.is_some() {
            let text = "clients talk to any program, or to the named one in any configuration";
            self.add_dangerous("dangerous_scope", text);
        }
    }

    fn add_tcb(&mut self, status: &Expect<TcbStatus>, grace_s: u64, advisories: &Expect<String>) {
        self.add_expect("tcb_status", "the TCB status", status);
        if grace_s > 0 {
            let grace = describe_seconds(grace_s);
            let text = format!("an out-of-date TCB level passes until {grace} after its date");
            self.add_unchecked("tcb_grace_s", text);
        }
        self.add_advisories(advisories);
    }

    fn add_debug(&mut self, accepted: bool) {
        const FIELD: &str = "dangerous_accept_debug";
        match accepted {
            false => self.add_checked(FIELD, "debug is off"),
            true => self.add_dangerous(FIELD, "debug may be on: the host can read the memory"),
        }
    }

    fn add_binding(&mut self, level: Option<BindingLevel>) {
        const FIELD: &str = "binding";
        match level {
            Some(BindingLevel::Session) => {
                self.add_checked(FIELD, "the evidence is bound to the TLS session");
            }
            Some(BindingLevel::Key) => {
                self.add_checked(FIELD, "the evidence is bound to the TLS key or session");
            }
            None => {
                let text = "evidence may be bound to the TLS key, to the session, or to no channel";
                self.add_unchecked(FIELD, text);
            }
        }
    }

    fn add_ages(&mut self, key_validity_s_max: u64, evidence_age_s_max: Option<u64>) {
        let validity = describe_seconds(key_validity_s_max);
        self.add_checked("key_validity_s_max", format!("a bound key lives at most {validity}"));
        const AGE: &str = "evidence_age_s_max";
        match evidence_age_s_max {
            Some(most) => {
                self.add_checked(
                    AGE,
                    format!("the claims are at most {} old", describe_seconds(most)),
                );
            }
            None => self.add_unchecked(AGE, "claims may be as old as their key"),
        }
    }

    fn add_advisories(&mut self, wanted: &Expect<String>) {
        const FIELD: &str = "advisories";
        match wanted {
            Expect::DangerousAny => self.add_dangerous(FIELD, "any advisory may apply"),
            Expect::AnyOf(values) if values.is_empty() => {
                self.add_checked(FIELD, "no advisory applies");
            }
            _ => self.add_checked(FIELD, format!("no advisory applies except {wanted}")),
        }
    }

    fn add_gpu(&mut self, wanted: &GpuPolicy) {
        let GpuPolicy {
            required,
            driver,
            vbios,
            rim_sha256,
            dangerous_accept_rim_not_evaluated,
            dangerous_accept_debug,
            dangerous_accept_revocation_not_evaluated,
            dangerous_accept_protected_pcie,
        } = wanted;
        match required {
            true => self.add_checked("gpu.required", "a GPU attests too"),
            false => self.add_unchecked("gpu.required", "a GPU may be present or absent"),
        }
        for (field, subject, version) in [
            ("gpu.driver", "the GPU's driver version", driver),
            ("gpu.vbios", "the GPU's VBIOS version", vbios),
        ] {
            let otherwise = format!("{subject} may be any");
            self.add_optional(field, subject, version.as_ref(), otherwise);
        }
        let otherwise = "any reference manifest that NVIDIA or another trusted root signed";
        let (manifest, wanted) = ("each reference manifest", rim_sha256.as_ref());
        self.add_optional("gpu.rim_sha256", manifest, wanted, otherwise);
        let lifted = [
            (
                dangerous_accept_rim_not_evaluated,
                "gpu.dangerous_accept_rim_not_evaluated",
                ["a GPU's measurements may be unchecked", "a GPU's measurements are checked"],
            ),
            (
                dangerous_accept_debug,
                "gpu.dangerous_accept_debug",
                ["a GPU's debug state may be unknown", "a GPU's debug state is known"],
            ),
            (
                dangerous_accept_revocation_not_evaluated,
                "gpu.dangerous_accept_revocation_not_evaluated",
                [
                    "the revocation state of a GPU's certificates may be unknown",
                    "the revocation state of a GPU's certificates is known",
                ],
            ),
            (
                dangerous_accept_protected_pcie,
                "gpu.dangerous_accept_protected_pcie",
                [
                    "traffic between GPUs may be in the clear",
                    "traffic between GPUs is not in the clear",
                ],
            ),
        ];
        for (is_lifted, field, [accepted, demanded]) in lifted {
            match is_lifted {
                true => self.add_dangerous(field, accepted),
                false => self.add_checked(field, demanded),
            }
        }
    }

    fn add_workload(&mut self, workload: Option<&Workload>) {
        let Some(Workload { tdx, sgx, snp }) = workload else {
            let text = "any program: clients refuse, because acceptance covers the platform only";
            self.add_unchecked("workload", text);
            return;
        };
        match tdx {
            Some(tdx) => self.add_trust_domain(tdx),
            None => self.add_checked("workload.tdx", "evidence of a trust domain is refused"),
        }
        match sgx {
            Some(sgx) => self.add_enclave(sgx),
            None => self.add_checked("workload.sgx", "evidence of an enclave is refused"),
        }
        match snp {
            Some(snp) => snp.explain(self),
            None => self.add_checked("workload.snp", "evidence of an SEV-SNP guest is refused"),
        }
    }

    fn add_trust_domain(&mut self, wanted: &TdxWorkload) {
        let TdxWorkload {
            mrtd,
            rtmr0,
            rtmr1,
            rtmr2,
            rtmr3,
            mrconfigid,
            mrowner,
            mrownerconfig,
            mr_service_td,
            mrseam,
        } = wanted;
        self.add_expect("workload.tdx.mrtd", "mrtd", mrtd);
        self.add_expect("workload.tdx.rtmr0", "rtmr0", rtmr0);
        self.add_expect("workload.tdx.rtmr1", "rtmr1", rtmr1);
        self.add_expect("workload.tdx.rtmr2", "rtmr2", rtmr2);
        self.add_expect("workload.tdx.rtmr3", "rtmr3", rtmr3);
        self.add_expect("workload.tdx.mrconfigid", "mrconfigid", mrconfigid);
        self.add_expect("workload.tdx.mrowner", "mrowner", mrowner);
        self.add_expect("workload.tdx.mrownerconfig", "mrownerconfig", mrownerconfig);
        self.add_expect("workload.tdx.mr_service_td", "mr_service_td", mr_service_td);
        let otherwise = "any TDX module that TCB info accepts";
        self.add_optional("workload.tdx.mrseam", "mrseam", mrseam.as_ref(), otherwise);
    }

    fn add_enclave(&mut self, wanted: &SgxWorkload) {
        let SgxWorkload { mrenclave, mrsigner, isv_prod_id, isv_svn_min, config_id } = wanted;
        self.add_expect("workload.sgx.mrenclave", "mrenclave", mrenclave);
        self.add_expect("workload.sgx.mrsigner", "mrsigner", mrsigner);
        self.add_expect("workload.sgx.isv_prod_id", "the product number", isv_prod_id);
        self.add_minimum("workload.sgx.isv_svn_min", "the enclave's version", *isv_svn_min);
        self.add_expect("workload.sgx.config_id", "config_id", config_id);
    }
}

/// Writes a duration in the largest unit that divides it.
fn describe_seconds(seconds: u64) -> String {
    for (unit, name) in [(86_400, "day"), (3_600, "hour"), (60, "minute")] {
        if seconds >= unit && seconds.is_multiple_of(unit) {
            let count = seconds / unit;
            let plural = if count == 1 { "" } else { "s" };
            return format!("{count} {name}{plural}");
        }
    }
    format!("{seconds} s")
}
