//! A policy in words: what it checks, what it leaves unchecked, and what it weakens.

use alloc::{borrow::Cow, format, string::String, vec::Vec};

use confide_evidence::{UnixSeconds, tcb_info::TcbStatus};

use crate::{
    admission::{BindingLevel, DangerousScope},
    expect::{Expect, ReferenceValue},
    gpu::GpuPolicy,
    policy::{CrlMinimum, Policy, SgxWorkload, TdxWorkload, Workload},
    roots::Roots,
};

/// What becomes of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stance {
    /// Evidence that fails it is refused.
    Checked,
    /// Any value passes, because the policy does not speak of it.
    Unchecked,
    /// The policy says in so many words that any value passes, or lifts a rule.
    Dangerous,
}

/// One field of a policy, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentence {
    /// The key in the policy's text.
    pub field: Cow<'static, str>,
    /// What becomes of it.
    pub stance: Stance,
    /// What that means.
    pub text: String,
}

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
            key_validity_s_max,
            evidence_age_s_max,
            cache_lifetime_s,
            gpu,
            dangerous_skip_revocation,
            snp,
            workload,
        } = self;
        let mut words = Words::default();
        words.roots(roots, operator_roots.as_ref());
        words.scope(*dangerous_scope);
        match formats.is_all() {
            true => words.unchecked("formats", "any kind of evidence".into()),
            false => words.checked("formats", format!("the evidence is of {formats}")),
        }
        words.tcb(tcb_status, *tcb_grace_s, advisories);
        words.least(
            "tcb_evaluation_data_number_min",
            "the TCB evaluation data number",
            u64::from(*tcb_evaluation_data_number_min),
        );
        words.revocation_list("root_crl", "the root's revocation list", *root_crl);
        words.revocation_list("pck_crl", "the PCK CA's revocation list", *pck_crl);
        words.debug(*dangerous_accept_debug);
        match ppids {
            Some(wanted) => words.expect("ppids", "the Intel platform's PPID", wanted),
            None => words.unchecked("ppids", "any Intel platform".into()),
        }
        words.binding(*binding);
        match report_data {
            Some(wanted) => words.expect("report_data", "the report data", wanted),
            None => {
                let text = "the report data is whatever the channel or the caller computes";
                words.unchecked("report_data", text.into());
            }
        }
        words.config_digest(config_digest.as_ref());
        words.ages(*key_validity_s_max, *evidence_age_s_max);
        words.checked(
            "cache_lifetime_s",
            format!("a verdict on a platform's keys is used {} at most", span(*cache_lifetime_s)),
        );
        words.gpu(gpu);
        if *dangerous_skip_revocation {
            let text = "a chip key may be revoked where no revocation list came (SEV-SNP)";
            words.dangerous("dangerous_skip_revocation", text.into());
        }
        snp.explain(&mut words);
        words.workload(workload.as_ref());
        words.0
    }
}

#[derive(Default)]
pub(crate) struct Words(Vec<Sentence>);

impl Words {
    pub(crate) fn checked(&mut self, field: impl Into<Cow<'static, str>>, text: String) {
        self.0.push(Sentence { field: field.into(), stance: Stance::Checked, text });
    }

    pub(crate) fn unchecked(&mut self, field: impl Into<Cow<'static, str>>, text: String) {
        self.0.push(Sentence { field: field.into(), stance: Stance::Unchecked, text });
    }

    pub(crate) fn dangerous(&mut self, field: impl Into<Cow<'static, str>>, text: String) {
        self.0.push(Sentence { field: field.into(), stance: Stance::Dangerous, text });
    }

    pub(crate) fn expect<T: ReferenceValue>(
        &mut self,
        field: impl Into<Cow<'static, str>>,
        subject: &str,
        wanted: &Expect<T>,
    ) {
        match wanted {
            Expect::DangerousAny => self.dangerous(field, format!("{subject} may be anything")),
            Expect::AnyOf(values) if values.is_empty() => {
                self.checked(field, format!("{subject}: no value is accepted"));
            }
            Expect::Exactly(value) if is_zero(&value.to_text()) => {
                self.checked(field, format!("{subject} is zero"));
            }
            _ => self.checked(field, format!("{subject} is {wanted}")),
        }
    }

    fn roots(&mut self, roots: &Roots, own: Option<&Roots>) {
        self.checked("roots", format!("the chain ends in {roots}"));
        if let Some(own) = own {
            self.unchecked("operator_roots", format!("{own} counts like a vendor's root"));
        }
    }

    fn scope(&mut self, lifted: Option<DangerousScope>) {
        if lifted.is_some() {
            let text = "clients talk to any program, or to the named one in any configuration";
            self.dangerous("dangerous_scope", text.into());
        }
    }

    fn config_digest(&mut self, wanted: Option<&Expect<[u8; 32]>>) {
        const FIELD: &str = "config_digest";
        match wanted {
            Some(wanted) => self.expect(FIELD, "the configuration's digest", wanted),
            None => {
                let text = "any configuration of the program: clients refuse, because a yes speaks \
                            of the platform only";
                self.unchecked(FIELD, text.into());
            }
        }
    }

    fn tcb(&mut self, status: &Expect<TcbStatus>, grace_s: u64, advisories: &Expect<String>) {
        self.expect("tcb_status", "the TCB status", status);
        if grace_s > 0 {
            let grace = span(grace_s);
            let text = format!("an out-of-date TCB level passes until {grace} after its date");
            self.unchecked("tcb_grace_s", text);
        }
        self.advisories(advisories);
    }

    fn debug(&mut self, accepted: bool) {
        const FIELD: &str = "dangerous_accept_debug";
        match accepted {
            false => self.checked(FIELD, "debug is off".into()),
            true => self.dangerous(FIELD, "debug may be on: the host can read the memory".into()),
        }
    }

    fn binding(&mut self, level: Option<BindingLevel>) {
        const FIELD: &str = "binding";
        match level {
            Some(BindingLevel::Session) => {
                self.checked(FIELD, "the evidence is bound to this very TLS session".into());
            }
            Some(BindingLevel::Key) => {
                self.checked(FIELD, "the evidence is bound to the TLS key or session".into());
            }
            None => {
                let text = "evidence may be bound to the TLS key, to the session, or to no channel";
                self.unchecked(FIELD, text.into());
            }
        }
    }

    fn ages(&mut self, key_validity_s_max: u64, evidence_age_s_max: Option<u64>) {
        let validity = span(key_validity_s_max);
        self.checked("key_validity_s_max", format!("a bound key lives {validity} at most"));
        const AGE: &str = "evidence_age_s_max";
        match evidence_age_s_max {
            Some(most) => {
                self.checked(AGE, format!("the claims were made {} ago at most", span(most)));
            }
            None => self.unchecked(AGE, "claims may be as old as their key".into()),
        }
    }

    fn advisories(&mut self, wanted: &Expect<String>) {
        const FIELD: &str = "advisories";
        match wanted {
            Expect::DangerousAny => self.dangerous(FIELD, "any advisory may apply".into()),
            Expect::AnyOf(values) if values.is_empty() => {
                self.checked(FIELD, "no advisory applies".into());
            }
            _ => self.checked(FIELD, format!("no advisory applies but {wanted}")),
        }
    }

    pub(crate) fn least(&mut self, field: &'static str, subject: &str, least: u64) {
        match least {
            0 => self.unchecked(field, format!("{subject} may be any")),
            _ => self.checked(field, format!("{subject} is at least {least}")),
        }
    }

    pub(crate) fn revocation_list(
        &mut self,
        field: &'static str,
        subject: &str,
        minimum: CrlMinimum,
    ) {
        let CrlMinimum { number_min, issued_min } = minimum;
        match (number_min, issued_min) {
            (0, 0) => self.unchecked(field, format!("{subject} may be any that holds now")),
            _ => self.checked(
                field,
                format!(
                    "{subject} has number {number_min} or higher, issued {} or later",
                    UnixSeconds(issued_min)
                ),
            ),
        }
    }

    fn gpu(&mut self, wanted: &GpuPolicy) {
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
            true => self.checked("gpu.required", "a GPU attests as well".into()),
            false => self.unchecked("gpu.required", "a GPU may be there or not".into()),
        }
        for (name, subject, version) in [
            ("driver", "the GPU's driver version", driver),
            ("vbios", "the GPU's VBIOS version", vbios),
        ] {
            match version {
                Some(version) => self.expect(format!("gpu.{name}"), subject, version),
                None => self.unchecked(format!("gpu.{name}"), format!("{subject} may be any")),
            }
        }
        match rim_sha256 {
            Some(wanted) => self.expect("gpu.rim_sha256", "each reference manifest", wanted),
            None => {
                let text = "any reference manifest that NVIDIA or another trusted root signed";
                self.unchecked("gpu.rim_sha256", text.into());
            }
        }
        let lifted = [
            (
                dangerous_accept_rim_not_evaluated,
                "gpu.dangerous_accept_rim_not_evaluated",
                "the GPU's measurements may be uncompared",
            ),
            (
                dangerous_accept_debug,
                "gpu.dangerous_accept_debug",
                "nobody may know whether the GPU is in debug mode",
            ),
            (
                dangerous_accept_revocation_not_evaluated,
                "gpu.dangerous_accept_revocation_not_evaluated",
                "nobody may know whether the GPU's certificates are revoked",
            ),
            (
                dangerous_accept_protected_pcie,
                "gpu.dangerous_accept_protected_pcie",
                "traffic between GPUs may be in clear",
            ),
        ];
        for (is_lifted, field, text) in lifted {
            match is_lifted {
                true => self.dangerous(field, text.into()),
                false => self.checked(field, format!("not lifted: that {text}")),
            }
        }
    }

    fn workload(&mut self, workload: Option<&Workload>) {
        let Some(Workload { tdx, sgx, snp }) = workload else {
            let text = "any program: clients refuse, because a yes speaks of the platform only";
            self.unchecked("workload", text.into());
            return;
        };
        match tdx {
            Some(tdx) => self.trust_domain(tdx),
            None => self.checked("workload.tdx", "evidence of a trust domain is refused".into()),
        }
        match sgx {
            Some(sgx) => self.enclave(sgx),
            None => self.checked("workload.sgx", "evidence of an enclave is refused".into()),
        }
        match snp {
            Some(snp) => snp.explain(self),
            None => self.checked("workload.snp", "evidence of a SEV-SNP guest is refused".into()),
        }
    }

    fn trust_domain(&mut self, wanted: &TdxWorkload) {
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
        for (name, field) in [
            ("mrtd", mrtd),
            ("rtmr0", rtmr0),
            ("rtmr1", rtmr1),
            ("rtmr2", rtmr2),
            ("rtmr3", rtmr3),
            ("mrconfigid", mrconfigid),
            ("mrowner", mrowner),
            ("mrownerconfig", mrownerconfig),
            ("mr_service_td", mr_service_td),
        ] {
            self.expect(format!("workload.tdx.{name}"), name, field);
        }
        match mrseam {
            Some(mrseam) => self.expect("workload.tdx.mrseam", "mrseam", mrseam),
            None => {
                let text = "any TDX module that TCB info accepts";
                self.unchecked("workload.tdx.mrseam", text.into());
            }
        }
    }

    fn enclave(&mut self, wanted: &SgxWorkload) {
        let SgxWorkload { mrenclave, mrsigner, isv_prod_id, isv_svn_min, config_id } = wanted;
        self.expect("workload.sgx.mrenclave", "mrenclave", mrenclave);
        self.expect("workload.sgx.mrsigner", "mrsigner", mrsigner);
        self.expect("workload.sgx.isv_prod_id", "the product number", isv_prod_id);
        self.least("workload.sgx.isv_svn_min", "the enclave's version", u64::from(*isv_svn_min));
        self.expect("workload.sgx.config_id", "config_id", config_id);
    }
}

/// A hash of zeros, which nobody wants to count.
fn is_zero(text: &str) -> bool {
    text.len() > 16 && text.bytes().all(|byte| byte == b'0')
}

/// Seconds as a person says them.
fn span(seconds: u64) -> String {
    for (unit, name) in [(86_400, "day"), (3_600, "hour"), (60, "minute")] {
        if seconds >= unit && seconds.is_multiple_of(unit) {
            let count = seconds / unit;
            let plural = if count == 1 { "" } else { "s" };
            return format!("{count} {name}{plural}");
        }
    }
    format!("{seconds} s")
}
