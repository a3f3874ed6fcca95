//! Evidence of a GPU: whether a genuine one signed this report over this nonce, and in which state.
//!
//! Alone it says nothing of where the GPU is. It counts together with a CPU's evidence, whose
//! claims hold the hash of exactly these bytes ([`crate::Evidence::gpu`]); even then a relay to a
//! genuine GPU in another machine is not excluded.

mod attached;
mod chain;
mod manifests;
mod policy;
mod result;
mod revocation;

use alloc::{borrow::Cow, format, vec::Vec};

use confide_evidence::{
    UnixSeconds,
    gpu::{DeviceCertificate, FeatureFlag, GpuEvidence, GpuReport, decode_chain, report_bytes},
};
use rustls_pki_types::UnixTime;

pub(crate) use attached::judge_attached;
pub use manifests::verify_rim;
pub use policy::{GpuPolicy, GpuVersion};
pub use result::{GpuAppraised, GpuClaims};

use self::{chain::ChainRole, manifests::Manifests};
use crate::{
    checks::{Checks, steps},
    crypto::Crypto,
    policy::Policy,
    reason::Reason,
    result::{Refused, Rejection},
    roots::Root,
};

steps! {
    /// The checks of a GPU's evidence.
    GpuStep:
    Format = "gpu_report_format",
    Root = "gpu_root",
    Chain = "gpu_chain",
    Revocation = "gpu_revocation",
    Firmware = "gpu_firmware_id",
    Nonce = "gpu_nonce",
    Signature = "gpu_signature",
    Mode = "gpu_confidential_computing",
    Driver = "gpu_driver",
    Vbios = "gpu_vbios",
    DriverManifest = "gpu_driver_rim",
    VbiosManifest = "gpu_vbios_rim",
    ManifestRevocation = "gpu_rim_revocation",
    Measurements = "gpu_measurements",
    Debug = "gpu_debug",
    Required = "gpu_required",
}

/// What one GPU presented, and the nonce that it has to hold.
#[derive(Clone, Debug)]
pub struct GpuCase<'a> {
    /// The report, raw or as hexadecimal text.
    pub report: Cow<'a, [u8]>,
    /// The certificate chain in PEM, attestation key first.
    pub chain: &'a [u8],
    /// Reference manifests, from the attester or from elsewhere.
    pub rims: Vec<&'a [u8]>,
    /// Revocation answers, from the attester or from elsewhere.
    pub ocsp: Vec<&'a [u8]>,
    /// The nonce that the GPU must have signed.
    pub nonce: [u8; 32],
}

impl<'a> GpuCase<'a> {
    /// A container, as channels and files carry it.
    ///
    /// # Errors
    /// [`Reason::GpuEvidence`] where the bytes are not a container.
    pub fn from_container(bytes: &'a [u8], nonce: [u8; 32]) -> Result<Self, Reason> {
        let GpuEvidence { report, chain, rims, ocsp } =
            GpuEvidence::decode(bytes).map_err(Reason::GpuEvidence)?;
        Ok(Self { report: report.into(), chain, rims, ocsp, nonce })
    }

    /// A bare report with its chain beside it.
    ///
    /// # Errors
    /// [`Reason::Malformed`] where a report in text is too long or not hexadecimal.
    pub fn from_report(report: &'a [u8], chain: &'a [u8], nonce: [u8; 32]) -> Result<Self, Reason> {
        let report = report_bytes(report)?;
        Ok(Self { report, chain, rims: Vec::new(), ocsp: Vec::new(), nonce })
    }

    /// A rejection of bytes that are no evidence of a GPU, before any other check could run.
    pub fn unreadable(reason: Reason) -> Rejection {
        let mut checks = Checks::new::<GpuStep>();
        let reason = checks.fail(GpuStep::Format, reason);
        Rejection::after(reason, checks)
    }

    /// Decides whether the GPU's evidence is believed, under one policy and at one time.
    ///
    /// # Errors
    /// [`Rejection`] with the first check that failed ([`Rejection::reason`]) and the outcome of
    /// each check up to it.
    pub fn appraise(
        &self,
        policy: &Policy,
        now: UnixTime,
        crypto: &dyn Crypto,
    ) -> Result<GpuAppraised, Rejection> {
        let mut checks = Checks::new::<GpuStep>();
        let mut root = None;
        let outcome = self.judge(&mut checks, &mut root, policy, now, crypto);
        match (outcome, root) {
            (Ok(claims), Some(root)) => {
                Ok(GpuAppraised { root, claims, checks: checks.into_vec() })
            }
            (outcome, root) => {
                // `judge` returns Ok only after the root is known.
                let untrusted = || Reason::UntrustedRoot {
                    wanted: format!("{}", policy.roots),
                    got: "".into(),
                };
                let reason = outcome.err().unwrap_or_else(untrusted);
                let checks = checks.into_vec();
                let advisories = Default::default();
                Err(Refused { reason, root, tcb_status: None, advisories, checks }.into())
            }
        }
    }

    fn judge(
        &self,
        checks: &mut Checks,
        root: &mut Option<Root>,
        policy: &Policy,
        now: UnixTime,
        crypto: &dyn Crypto,
    ) -> Result<GpuClaims, Reason> {
        let judge = Judge { policy, now, crypto, answers: &self.ocsp };
        let report = checks.run(GpuStep::Format, || {
            let report = GpuReport::parse(&self.report)?;
            let detail = format!("SPDM 1.1, {} measurements", report.measurements.len());
            Ok((report, detail.into()))
        })?;
        let ders = checks.run(GpuStep::Root, || {
            let ders = decode_chain(self.chain)?;
            let found = chain::root(ChainRole::Device, &ders, &policy.roots)?;
            *root = Some(found);
            Ok((ders, found.kind.detail(&found.sha256)))
        })?;
        let chain = checks.run(GpuStep::Chain, || {
            let chain = chain::verify(ChainRole::Device, &ders, now, crypto)?;
            let until = UnixSeconds(chain.until);
            let detail = format!("{}, until {until}", chain.leaf().common_name);
            Ok((chain, detail.into()))
        })?;
        // NVIDIA's responder knows every certificate but the attestation key's.
        let revocation_known =
            judge.revocation(checks, GpuStep::Revocation, &[&chain], |at| at > 0)?;
        firmware(checks, &report, chain.leaf())?;
        checks.run(GpuStep::Nonce, || match *report.nonce == self.nonce {
            true => Ok(((), "as wanted".into())),
            false => Err(Reason::Value {
                field: "GPU nonce",
                wanted: hex::encode(self.nonce),
                got: hex::encode(report.nonce),
            }),
        })?;
        checks.run(GpuStep::Signature, || {
            let key = chain.leaf().public_key;
            match crypto.verify_p384(key, report.signed, report.signature) {
                true => Ok(((), "by the first certificate".into())),
                false => Err(Reason::Signature { subject: "GPU report" }),
            }
        })?;
        mode(checks, &report, &policy.gpu)?;
        judge.versions(checks, &report)?;
        let manifests = Manifests::verify(&self.rims, &judge, &report, checks)?;
        let manifests_known = judge.manifest_revocation(checks, &manifests)?;
        let compared = manifests.compare(checks, &report)?;
        judge.debug(checks, compared);
        judge.required(checks, revocation_known && manifests_known, compared)?;
        Ok(GpuClaims::of(&report, &chain, compared, manifests.until().min(chain.until)))
    }
}

/// What every step of one appraisal shares.
struct Judge<'a> {
    policy: &'a Policy,
    now: UnixTime,
    crypto: &'a dyn Crypto,
    answers: &'a [&'a [u8]],
}

impl Judge<'_> {
    fn versions(&self, checks: &mut Checks, report: &GpuReport<'_>) -> Result<(), Reason> {
        let vbios = report.opaque.vbios_version.as_deref();
        let driver = report.opaque.driver_version;
        let fields = [
            (GpuStep::Driver, "GPU driver version", &self.policy.gpu.driver, driver),
            (GpuStep::Vbios, "GPU VBIOS version", &self.policy.gpu.vbios, vbios),
        ];
        for (step, field, wanted, got) in fields {
            let Some(wanted) = wanted.as_ref().filter(|wanted| wanted.is_evaluated()) else {
                checks.skip(step, "the policy names none");
                continue;
            };
            checks.run(step, || {
                let version = GpuVersion(got.unwrap_or("none").into());
                if !wanted.accepts(&version) {
                    let got = version.0;
                    return Err(Reason::Value { field, wanted: format!("{wanted}"), got });
                }
                Ok(((), version.0.into()))
            })?;
        }
        Ok(())
    }

    /// No field of the report says whether debugging is on. With it on a GPU measures otherwise
    /// than its manifests say, so measurements that agree are the signed word on it.
    fn debug(&self, checks: &mut Checks, compared: bool) {
        match compared {
            true => {
                let off = "off: all measurements are those of the manifests";
                // Nothing can fail here: a difference has ended appraisal before.
                let _ = checks.run(GpuStep::Debug, || Ok(((), off.into())));
            }
            false => {
                checks.skip(GpuStep::Debug, "the report does not say, and no RIM was compared")
            }
        }
    }

    /// With `required`, what was not evaluated is no yes.
    fn required(&self, checks: &mut Checks, revocation: bool, rim: bool) -> Result<(), Reason> {
        let gpu = &self.policy.gpu;
        if !gpu.required {
            checks.skip(GpuStep::Required, "the policy requires no GPU");
            return Ok(());
        }
        checks.run(GpuStep::Required, || {
            let demanded = [
                (
                    rim,
                    gpu.dangerous_accept_rim_not_evaluated,
                    "comparison with reference manifests",
                ),
                (rim, gpu.dangerous_accept_debug, "debug of the GPU"),
                (
                    revocation,
                    gpu.dangerous_accept_revocation_not_evaluated,
                    "revocation of the GPU",
                ),
            ];
            let missing = demanded.into_iter().find(|(known, accepted, _)| !known && !accepted);
            match missing {
                Some((.., what)) => Err(Reason::GpuNotEvaluated { what }),
                None => Ok(((), "all that the policy demands was evaluated".into())),
            }
        })
    }
}

/// The firmware that the report names is the one that the key belongs to.
fn firmware(
    checks: &mut Checks,
    report: &GpuReport<'_>,
    leaf: &DeviceCertificate<'_>,
) -> Result<(), Reason> {
    let Some(said) = report.opaque.fwid else {
        checks.skip(GpuStep::Firmware, "the report names no firmware");
        return Ok(());
    };
    checks.run(GpuStep::Firmware, || match leaf.fwid {
        Some(certified) if certified == said => Ok(((), hex::encode(said).into())),
        certified => Err(Reason::Value {
            field: "GPU firmware identifier",
            wanted: certified.map_or("one in the certificate".into(), hex::encode),
            got: hex::encode(said),
        }),
    })
}

fn mode(checks: &mut Checks, report: &GpuReport<'_>, policy: &GpuPolicy) -> Result<(), Reason> {
    let opaque = &report.opaque;
    let in_clear = opaque.feature_flag == Some(FeatureFlag::ProtectedPcie)
        || opaque.protected_pcie == Some(true);
    if in_clear && policy.dangerous_accept_protected_pcie {
        checks.skip(GpuStep::Mode, "protected PCIe, and the policy accepts that");
        return Ok(());
    }
    if !in_clear && opaque.feature_flag.is_none() {
        checks.skip(GpuStep::Mode, "the report does not say");
        return Ok(());
    }
    checks.run(GpuStep::Mode, || match opaque.feature_flag {
        Some(flag) if !in_clear => Ok(((), format!("on, {}", flag.as_str()).into())),
        _ => Err(Reason::Value {
            field: "GPU mode",
            wanted: "confidential computing".into(),
            got: "protected PCIe".into(),
        }),
    })
}
