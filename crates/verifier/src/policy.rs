//! What a relying party demands. Every field is documented in `docs/policy.md`.

use alloc::{
    string::{String, ToString},
    vec,
    vec::Vec,
};

use confide_evidence::{BindingKind, quote::Tee, tcb_info::TcbStatus, weights_claim::WeightsClaim};
use serde::{Deserialize, Deserializer, de};

use crate::{
    admission::{AdmittedTees, BindingLevel, DangerousScope},
    checks::{Checks, StepNames},
    crl::CrlMinimum,
    evidence::Evidence,
    expect::Expect,
    gpu::policy::GpuPolicy,
    reason::Reason,
    roots::Roots,
    snp::policy::{SnpPlatform, SnpWorkload},
};

/// The longest policy text that is read.
pub const POLICY_LENGTH_MAX: usize = 64 * 1024;
/// The longest life of a bound key that is accepted unless the policy says otherwise: one day, so that
/// a leaked key does not live for ever.
const KEY_VALIDITY_DEFAULT_S: u64 = 24 * 60 * 60;

/// How long a learnt verdict is used unless the policy says otherwise: one hour. Dates, revocation
/// and security versions are looked at each time; this only bounds how long a mistake in memory
/// could live.
const CACHE_LIFETIME_DEFAULT_S: u64 = 60 * 60;

/// Reference values and limits for one kind of peer.
///
/// The default trusts Intel's production root, accepts `UpToDate` without advisories, refuses
/// debug, and knows no workload: a yes under it speaks of the platform only.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Trust anchors.
    pub roots: Roots,
    /// Those of `roots` that are the operator's own, and as good to anyone who wrote the policy as a
    /// vendor's.
    pub operator_roots: Option<Roots>,
    /// Lets a client talk to an end of which only the platform was checked.
    pub dangerous_scope: Option<DangerousScope>,
    /// Kinds of evidence that are looked at; every other kind is refused.
    pub formats: AdmittedTees,
    /// TCB status of platform and quoting enclave together. `Revoked` is refused whatever this
    /// says.
    pub tcb_status: Expect<TcbStatus>,
    /// For how long after its date, in seconds, a TCB level that is out of date is still taken for
    /// an accepted one. Advisories count all the same.
    pub tcb_grace_s: u64,
    /// Advisories that may apply to the platform; each one that does must be accepted.
    pub advisories: Expect<String>,
    /// Least TCB evaluation data number of TCB info and QE identity.
    pub tcb_evaluation_data_number_min: u32,
    /// The oldest revocation list of the root that is accepted.
    pub root_crl: CrlMinimum,
    /// The oldest revocation list of the platform or processor CA that is accepted.
    pub pck_crl: CrlMinimum,
    /// Accepts TDs and enclaves whose memory the host can read.
    pub dangerous_accept_debug: bool,
    /// Intel platforms that the evidence may come from, by their provisioning identifier; absent:
    /// any.
    pub ppids: Option<Expect<[u8; 16]>>,
    /// The least that ties evidence to a connection; absent: either binding, or none outside a
    /// channel.
    pub binding: Option<BindingLevel>,
    /// Report data, where it is known in advance.
    pub report_data: Option<Expect<[u8; 64]>>,
    /// Digest of the attested end's configuration, from its claims.
    pub config_digest: Option<Expect<[u8; 32]>>,
    /// Digests of the weights of every model that may answer, from the claims.
    pub weights: Option<Expect<[u8; 32]>>,
    /// The longest span from `not-before` to `not-after` of the claims, in seconds.
    pub key_validity_s_max: u64,
    /// The longest time since `not-before` of the claims, in seconds.
    pub evidence_age_s_max: Option<u64>,
    /// The time, in seconds, for which the verdict on a PCK certificate or a quoting enclave may be used again.
    pub cache_lifetime_s: u64,
    /// Requirements on a GPU attached to the CPU.
    pub gpu: GpuPolicy,
    /// Leaves revocation unevaluated where evidence comes without a revocation list (SEV-SNP).
    pub dangerous_skip_revocation: bool,
    /// Requirements on a SEV-SNP platform.
    pub snp: SnpPlatform,
    /// Reference values of the attested program; absent: the platform only.
    pub workload: Option<Workload>,
}

impl Policy {
    /// Whether what an attested end says of the weights of its models is accepted: anything if the
    /// policy names no weights, and otherwise a claim in which every model was measured and has
    /// wanted weights. `None` stands for an end that measured nothing.
    pub fn accepts_weights(&self, claim: Option<&WeightsClaim>) -> bool {
        let wanted = match &self.weights {
            Some(wanted) if wanted.is_evaluated() => wanted,
            _ => return true,
        };
        claim.is_some_and(|claim| {
            let mut measured = claim.measured_weights().iter();
            claim.is_complete() && measured.all(|weights| wanted.accepts(&weights.digest))
        })
    }

    /// Reads a policy from TOML; unknown keys are errors.
    ///
    /// # Errors
    /// [`PolicyError::TooLong`] over [`POLICY_LENGTH_MAX`], [`PolicyError::Toml`] if the text is
    /// not TOML or has an unknown key or value, [`PolicyError::OperatorRoots`] as
    /// [`Policy::validate`].
    pub fn from_toml(text: &str) -> Result<Self, PolicyError> {
        if text.len() > POLICY_LENGTH_MAX {
            return Err(PolicyError::TooLong { limit: POLICY_LENGTH_MAX, got: text.len() });
        }
        let policy: Self = toml::from_str(text)
            .map_err(|error| PolicyError::Toml { reason: error.to_string() })?;
        policy.validate()
    }

    /// Returns the policy if its keys agree with each other; [`Policy::from_toml`] calls this.
    ///
    /// # Errors
    /// [`PolicyError::OperatorRoots`] if `operator_roots` has a root that `roots` does not.
    pub fn validate(self) -> Result<Self, PolicyError> {
        match &self.operator_roots {
            Some(own) if !own.are_among(&self.roots) => Err(PolicyError::OperatorRoots),
            _ => Ok(self),
        }
    }
}

impl Policy {
    /// Checks that the evidence is tied to its connection as closely as the policy demands.
    pub(crate) fn admit_binding(
        &self,
        checks: &mut Checks,
        step: impl StepNames,
        evidence: &Evidence<'_>,
    ) -> Result<(), Reason> {
        let got = evidence.binding;
        let said = match got {
            None => "none: it did not come over a channel",
            Some(BindingKind::TlsSpki) => "to the TLS key",
            Some(BindingKind::TlsExporter) => "to the TLS session",
        };
        match self.binding {
            None if got.is_none() => checks.skip(step, said),
            None => checks.pass(step, said),
            Some(level) => checks.require(step, level.is_met(got), said, || Reason::Value {
                field: "binding",
                wanted: level.as_str().to_string(),
                got: said.to_string(),
            })?,
        }
        Ok(())
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            roots: Roots::production(),
            operator_roots: None,
            dangerous_scope: None,
            formats: AdmittedTees::default(),
            tcb_status: Expect::Exactly(TcbStatus::UpToDate),
            tcb_grace_s: 0,
            advisories: Expect::AnyOf(vec![]),
            tcb_evaluation_data_number_min: 0,
            root_crl: CrlMinimum::default(),
            pck_crl: CrlMinimum::default(),
            dangerous_accept_debug: false,
            ppids: None,
            binding: None,
            report_data: None,
            config_digest: None,
            weights: None,
            key_validity_s_max: KEY_VALIDITY_DEFAULT_S,
            evidence_age_s_max: None,
            cache_lifetime_s: CACHE_LIFETIME_DEFAULT_S,
            gpu: GpuPolicy::default(),
            dangerous_skip_revocation: false,
            snp: SnpPlatform::default(),
            workload: None,
        }
    }
}

/// Reference values of the attested program, for the TEEs that it may run in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Workload {
    /// Trust domains; absent: no TDX quote is accepted.
    pub tdx: Option<TdxWorkload>,
    /// Enclaves; absent: no SGX quote is accepted.
    pub sgx: Option<SgxWorkload>,
    /// SEV-SNP guests; absent: no SNP report is accepted.
    pub snp: Option<SnpWorkload>,
}

impl Workload {
    /// Whether there are reference values for this TEE.
    pub fn covers(&self, tee: Tee) -> bool {
        match tee {
            Tee::Sgx => self.sgx.is_some(),
            Tee::Snp => self.snp.is_some(),
            Tee::Tdx => self.tdx.is_some(),
        }
    }
}

/// Measurements of a trust domain. MRTD and the RTMRs have to be written down, if only as
/// `"dangerous-any"`; the rest is zero unless written.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TdxWorkload {
    /// Initial contents.
    pub mrtd: Expect<[u8; 48]>,
    /// Firmware and its configuration, by convention.
    pub rtmr0: Expect<[u8; 48]>,
    /// Boot loader and kernel, by convention.
    pub rtmr1: Expect<[u8; 48]>,
    /// Kernel command line and initial file system, by convention.
    pub rtmr2: Expect<[u8; 48]>,
    /// Measurements that the program itself extends.
    pub rtmr3: Expect<[u8; 48]>,
    /// Configuration given by the host at launch.
    #[serde(default = "Expect::zero")]
    pub mrconfigid: Expect<[u8; 48]>,
    /// Owner given by the host at launch.
    #[serde(default = "Expect::zero")]
    pub mrowner: Expect<[u8; 48]>,
    /// Owner's configuration given by the host at launch.
    #[serde(default = "Expect::zero")]
    pub mrownerconfig: Expect<[u8; 48]>,
    /// Service trust domains that are bound to this one (TDX 1.5).
    #[serde(default = "Expect::zero")]
    pub mr_service_td: Expect<[u8; 48]>,
    /// The TDX module; absent: any that TCB info accepts.
    #[serde(default)]
    pub mrseam: Option<Expect<[u8; 48]>>,
}

/// Measurements of an enclave. All four have to be written down.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SgxWorkload {
    /// Code and initial data.
    pub mrenclave: Expect<[u8; 32]>,
    /// Signer.
    pub mrsigner: Expect<[u8; 32]>,
    /// Product number given by the signer.
    pub isv_prod_id: Expect<u16>,
    /// Least security version given by the signer.
    pub isv_svn_min: u16,
    /// Configuration identifier given at launch.
    #[serde(default = "Expect::zero")]
    pub config_id: Expect<[u8; 64]>,
}

/// Why a policy could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The text is longer than the limit.
    #[error("policy is too long: wanted at most {limit} bytes, got {got}")]
    TooLong {
        /// The limit in bytes.
        limit: usize,
        /// The length found.
        got: usize,
    },
    /// The text is not TOML, or has a key or value that no policy has.
    #[error("policy is not valid: {reason}")]
    Toml {
        /// The error of the TOML reader, with its position.
        reason: String,
    },
    /// `operator_roots` has a root that `roots` does not have.
    #[error("policy is not valid: operator_roots contains a root that `roots` does not list")]
    OperatorRoots,
}

impl<'de> Deserialize<'de> for Roots {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let names = Vec::<String>::deserialize(deserializer)?;
        Roots::from_names(&names).map_err(de::Error::custom)
    }
}
