//! The results of appraisal: an [`Appraised`], or a [`Rejection`].

use alloc::{boxed::Box, format, string::String, sync::Arc, vec::Vec};

use confide_evidence::{
    ReportData,
    claims::Claims,
    quote::Tee,
    snp::{Product, Tcb},
    tcb_info::TcbStatus,
    weights_claim::{MeasuredWeights, NOT_MEASURED, WeightsClaim},
};
use serde_json::{Map, Value, json};

use crate::{
    checks::{Check, Checks, Step, checks_to_json},
    crl::CrlVersion,
    gpu::result::GpuAppraised,
    reason::Reason,
    roots::Root,
    scope::{Scope, ScopeConditions},
};

/// Accepted evidence. Only an appraisal makes one; all that it says was read from signed bytes.
#[derive(Clone, Debug)]
pub struct Appraised(Box<AppraisedParts>);

#[derive(Clone, Debug)]
struct AppraisedParts {
    root: Root,
    accepted: AcceptedParts,
    found: PartialResult,
}

/// The parts of accepted evidence beyond the findings of every appraisal.
#[derive(Clone, Debug)]
pub(crate) struct AcceptedParts {
    pub(crate) conditions: ScopeConditions,
    pub(crate) platform: PlatformClaims,
    pub(crate) claims: Option<Claims>,
    pub(crate) gpu: Option<GpuAppraised>,
}

/// The findings of an appraisal so far: all that a rejection may report.
#[derive(Clone, Debug)]
pub(crate) struct PartialResult {
    pub(crate) checks: Checks,
    pub(crate) root: Option<Root>,
    /// `None` for evidence whose vendor gives no status.
    pub(crate) tcb_status: Option<TcbStatus>,
    pub(crate) advisories: Arc<[String]>,
}

impl PartialResult {
    pub(crate) fn new(checks: Checks) -> Self {
        Self { checks, root: None, tcb_status: None, advisories: Arc::default() }
    }

    /// Turns the findings and the outcome of the last check into the verdict.
    pub(crate) fn into_verdict(
        self,
        outcome: Result<AcceptedParts, Reason>,
    ) -> Result<Appraised, Rejection> {
        let accepted = match outcome {
            Ok(accepted) => accepted,
            Err(reason) => return Err(self.reject(reason)),
        };
        let Some(root) = self.root else {
            // Unreachable: the root is known before anything is accepted.
            let (wanted, got) = ("a verified root".into(), "none".into());
            return Err(self.reject(Reason::UntrustedRoot { wanted, got }));
        };
        Ok(Appraised(Box::new(AppraisedParts { root, accepted, found: self })))
    }

    pub(crate) fn reject(self, reason: Reason) -> Rejection {
        Rejection(Box::new(RejectionParts { reason, found: self }))
    }
}

impl Appraised {
    /// The scope of the acceptance: the platform alone, or the program that runs on it.
    pub fn scope(&self) -> Scope {
        self.0.accepted.conditions.scope()
    }

    /// The policy keys whose absence limits the scope to the platform; empty if the scope is the workload.
    pub fn missing_keys(&self) -> Vec<&'static str> {
        self.0.accepted.conditions.missing_keys().collect()
    }

    /// The root under which the evidence was accepted.
    pub fn root(&self) -> Root {
        self.0.root
    }

    /// Platform, TDX module and quoting enclave together; `None` for evidence whose vendor gives
    /// no status (SEV-SNP).
    pub fn tcb_status(&self) -> Option<TcbStatus> {
        self.0.found.tcb_status
    }

    /// Advisories that apply to the platform.
    pub fn advisories(&self) -> &[String] {
        &self.0.found.advisories
    }

    /// The claims of the quote and the endorsements.
    pub fn platform(&self) -> &PlatformClaims {
        &self.0.accepted.platform
    }

    /// The attested end's own claims, which the report data covers; `None` if none came.
    pub fn claims(&self) -> Option<&Claims> {
        self.0.accepted.claims.as_ref()
    }

    /// The GPU that came with it; `None` if none came.
    pub fn gpu(&self) -> Option<&GpuAppraised> {
        self.0.accepted.gpu.as_ref()
    }

    /// Whether the host can read the TEE's memory (only under `dangerous_accept_debug`).
    pub fn is_debug(&self) -> bool {
        self.0.accepted.platform.debug
    }

    /// Every check with its outcome, in the order in which they ran.
    pub fn checks(&self) -> &[Check] {
        self.0.found.checks.as_slice()
    }

    /// The verdict as `confide verify --json` prints it.
    pub fn to_json(&self) -> Value {
        json!({
            "outcome": "accepted",
            "scope": self.scope().as_str(),
            "root": self.root().to_json(),
            "tcb_status": self.tcb_status().map(TcbStatus::as_str),
            "advisories": self.advisories(),
            "claims": self.platform().to_json(self.claims()),
            "gpu": self.gpu().map(GpuAppraised::part_json),
            "checks": checks_to_json(self.checks()),
            "reason": null,
        })
    }
}

/// The claims of the quote and the endorsements about machine and program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlatformClaims {
    /// SGX, TDX or SEV-SNP.
    pub tee: Tee,
    /// The 64 bytes that the attested program chose.
    pub report_data: ReportData,
    /// Whether the host can read the memory.
    pub debug: bool,
    /// Hashes of the attested program.
    pub measurements: Measurements,
    /// The claims that only this vendor's endorsements make.
    pub endorsed: EndorsementClaims,
    /// Unix seconds at which the last certificate, list or document becomes valid; at every instant from
    /// here to `valid_until` the signatures, lists and documents say the same.
    pub valid_from: u64,
    /// Unix seconds at which the first certificate, list or document expires.
    pub valid_until: u64,
}

/// The claims of one vendor's endorsements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndorsementClaims {
    /// Intel's, of SGX and TDX platforms.
    Intel(IntelClaims),
    /// AMD's, of SEV-SNP platforms.
    Amd(Box<AmdClaims>),
}

/// The claims of Intel's endorsements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntelClaims {
    /// Platform family.
    pub fmspc: [u8; 6],
    /// The lower of TCB info's and QE identity's number.
    pub tcb_evaluation_data_number: u32,
    /// The root's revocation list: hold it as the next policy's minimum.
    pub root_crl: CrlVersion,
    /// The platform or processor CA's revocation list: likewise.
    pub pck_crl: CrlVersion,
}

/// The claims of AMD's endorsements and of the report's platform fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AmdClaims {
    /// The line of processors.
    pub product: Product,
    /// Whether the chip's own key signed (VCEK), rather than one that a provider loaded (VLEK).
    pub chip_key: bool,
    /// The chip, by the certificate of its key, or where that says none by the report; `None`
    /// where neither does. From Turin on the last 56 bytes are zero.
    pub chip_id: Option<[u8; 64]>,
    /// The provider that loaded the key (VLEK).
    pub csp_id: Option<String>,
    /// Security versions that the key is for.
    pub reported_tcb: Tcb,
    /// Security versions that cannot be gone below.
    pub committed_tcb: Tcb,
    /// Platform information, bit by bit as the report has it.
    pub platform_info: u64,
    /// Privilege level that the report was asked from.
    pub vmpl: u32,
    /// The root's revocation list, where it was evaluated: hold it as the next policy's minimum.
    pub crl: Option<CrlVersion>,
}

/// Hashes of the attested program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Measurements {
    /// A trust domain.
    Tdx(Box<TdMeasurements>),
    /// An enclave.
    Sgx(EnclaveMeasurements),
    /// A SEV-SNP guest.
    Snp(Box<GuestMeasurements>),
}

/// Hashes and identifiers of a SEV-SNP guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestMeasurements {
    /// Initial contents.
    pub measurement: [u8; 48],
    /// Data that the host gave at launch.
    pub host_data: [u8; 32],
    /// Family identifier, from the ID block.
    pub family_id: [u8; 16],
    /// Image identifier, from the ID block.
    pub image_id: [u8; 16],
    /// Hash of the key that signed the ID block.
    pub id_key_digest: [u8; 48],
    /// Hash of the key that certified that key.
    pub author_key_digest: [u8; 48],
    /// Security version, from the ID block.
    pub guest_svn: u32,
    /// Guest policy, bit by bit.
    pub guest_policy: u64,
}

/// Hashes of a trust domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TdMeasurements {
    /// Initial contents.
    pub mrtd: [u8; 48],
    /// Run-time registers.
    pub rtmrs: [[u8; 48]; 4],
    /// TDX module.
    pub mrseam: [u8; 48],
    /// Configuration given at launch.
    pub mrconfigid: [u8; 48],
    /// Owner given at launch.
    pub mrowner: [u8; 48],
    /// Owner's configuration given at launch.
    pub mrownerconfig: [u8; 48],
}

/// Hashes and numbers of an enclave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnclaveMeasurements {
    /// Code and initial data.
    pub mrenclave: [u8; 32],
    /// Signer.
    pub mrsigner: [u8; 32],
    /// Product number, from the signer.
    pub isv_prod_id: u16,
    /// Security version, from the signer.
    pub isv_svn: u16,
    /// Configuration identifier given at launch.
    pub config_id: [u8; 64],
}

impl PlatformClaims {
    /// The claims of Intel's endorsements; `None` for evidence of another vendor.
    pub fn intel(&self) -> Option<&IntelClaims> {
        match &self.endorsed {
            EndorsementClaims::Intel(intel) => Some(intel),
            EndorsementClaims::Amd(_) => None,
        }
    }

    /// The claims of AMD's endorsements; `None` for evidence of another vendor.
    pub fn amd(&self) -> Option<&AmdClaims> {
        match &self.endorsed {
            EndorsementClaims::Amd(amd) => Some(amd),
            EndorsementClaims::Intel(_) => None,
        }
    }

    fn to_json(&self, claims: Option<&Claims>) -> Value {
        let mut fields = Map::new();
        let mut put = |name: &str, value: Value| fields.insert(name.into(), value);
        put("tee", self.tee.as_str().into());
        put("debug", self.debug.into());
        put("report_data", hex::encode(self.report_data).into());
        match &self.measurements {
            Measurements::Tdx(td) => {
                put("mrtd", hex::encode(td.mrtd).into());
                for (name, rtmr) in ["rtmr0", "rtmr1", "rtmr2", "rtmr3"].into_iter().zip(td.rtmrs) {
                    put(name, hex::encode(rtmr).into());
                }
                put("mrseam", hex::encode(td.mrseam).into());
                put("mrconfigid", hex::encode(td.mrconfigid).into());
                put("mrowner", hex::encode(td.mrowner).into());
                put("mrownerconfig", hex::encode(td.mrownerconfig).into());
            }
            Measurements::Sgx(enclave) => {
                put("mrenclave", hex::encode(enclave.mrenclave).into());
                put("mrsigner", hex::encode(enclave.mrsigner).into());
                put("isv_prod_id", enclave.isv_prod_id.into());
                put("isv_svn", enclave.isv_svn.into());
            }
            Measurements::Snp(guest) => {
                put("measurement", hex::encode(guest.measurement).into());
                put("host_data", hex::encode(guest.host_data).into());
                put("family_id", hex::encode(guest.family_id).into());
                put("image_id", hex::encode(guest.image_id).into());
                put("id_key_digest", hex::encode(guest.id_key_digest).into());
                put("author_key_digest", hex::encode(guest.author_key_digest).into());
                put("guest_svn", guest.guest_svn.into());
                put("guest_policy", format!("{:#x}", guest.guest_policy).into());
            }
        }
        match &self.endorsed {
            EndorsementClaims::Intel(intel) => {
                put("fmspc", hex::encode(intel.fmspc).into());
                put("tcb_evaluation_data_number", intel.tcb_evaluation_data_number.into());
                put("root_crl", intel.root_crl.to_json());
                put("pck_crl", intel.pck_crl.to_json());
            }
            EndorsementClaims::Amd(amd) => amd.put_json_fields(&mut put),
        }
        put("valid_until", self.valid_until.into());
        if let Some(claims) = claims {
            put("config_digest", hex::encode(claims.config_digest).into());
            put("guarantee", claims.guarantee.as_str().into());
            put("not_before", claims.not_before.into());
            put("not_after", claims.not_after.into());
            put("pubkey_hash", hex::encode(claims.pubkey_hash).into());
            put("weights", weights_to_json(claims.weights.as_ref()));
        }
        Value::Object(fields)
    }
}

/// What the claims say of weights: `not measured`, or a list of digests with their sources, in which
/// `not measured` stands for the weights of further models.
pub fn weights_to_json(claim: Option<&WeightsClaim>) -> Value {
    let Some(claim) = claim else { return NOT_MEASURED.into() };
    let one = |weights: &MeasuredWeights| {
        let (sha256, source) = (hex::encode(weights.digest), weights.source.as_str());
        json!({ "sha256": sha256, "source": source })
    };
    let others = (!claim.is_complete()).then(|| NOT_MEASURED.into());
    claim.measured_weights().iter().map(one).chain(others).collect()
}

impl AmdClaims {
    fn put_json_fields(&self, put: &mut impl FnMut(&str, Value) -> Option<Value>) {
        put("product", self.product.as_str().into());
        put("signing_key", if self.chip_key { "vcek" } else { "vlek" }.into());
        put("chip_id", self.chip_id.map(hex::encode).into());
        put("csp_id", self.csp_id.as_deref().into());
        put("reported_tcb", tcb_json(&self.reported_tcb));
        put("committed_tcb", tcb_json(&self.committed_tcb));
        put("platform_info", format!("{:#x}", self.platform_info).into());
        put("vmpl", self.vmpl.into());
        put("crl", self.crl.map(CrlVersion::to_json).into());
    }
}

fn tcb_json(tcb: &Tcb) -> Value {
    let Tcb { fmc, bootloader, tee, snp, microcode } = tcb;
    json!({
        "fmc": fmc, "bootloader": bootloader, "tee": tee, "snp": snp, "microcode": microcode,
    })
}

/// Rejected evidence: the reason, and what was known when it was found.
#[derive(Clone, Debug, thiserror::Error)]
#[error("evidence rejected: {}", .0.reason)]
pub struct Rejection(Box<RejectionParts>);

#[derive(Clone, Debug)]
struct RejectionParts {
    reason: Reason,
    found: PartialResult,
}

impl Rejection {
    /// Makes a rejection before any check could run, for instance of unreadable endorsements.
    pub fn before_checks(reason: Reason) -> Self {
        PartialResult::new(Checks::new::<Step>()).reject(reason)
    }

    /// The first check that failed.
    pub fn reason(&self) -> &Reason {
        &self.0.reason
    }

    /// Every check; those that had not run when one failed were not evaluated.
    pub fn checks(&self) -> &[Check] {
        self.0.found.checks.as_slice()
    }

    /// The TCB status, where appraisal came that far.
    pub fn tcb_status(&self) -> Option<TcbStatus> {
        self.0.found.tcb_status
    }

    /// The verdict as `confide verify --json` prints it; it has no claims.
    pub fn to_json(&self) -> Value {
        let RejectionParts { reason, found } = &*self.0;
        json!({
            "outcome": if reason.is_unreadable() { "error" } else { "rejected" },
            "scope": Scope::Platform.as_str(),
            "root": found.root.map(Root::to_json),
            "tcb_status": found.tcb_status.map(TcbStatus::as_str),
            "advisories": *found.advisories,
            "claims": {},
            "checks": checks_to_json(self.checks()),
            "reason": alloc::format!("{}", reason),
        })
    }
}
