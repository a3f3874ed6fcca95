//! Evidence of a GPU: whether a genuine one signed this report over this nonce, and in which state.
//!
//! Alone it says nothing of where the GPU is. It counts together with a CPU's evidence, whose
//! claims hold the hash of exactly these bytes ([`crate::Evidence::gpu`]); even then a relay to a
//! genuine GPU in another machine is not excluded.

pub(crate) mod attached;
mod chain;
mod judge;
mod manifests;
pub(crate) mod policy;
pub(crate) mod result;
mod revocation;

use alloc::{borrow::Cow, format, vec::Vec};

use confide_evidence::{
    UnixSeconds,
    gpu::{DeviceCertificate, FeatureFlag, GpuEvidence, GpuReport, decode_chain, report_bytes},
};
use rustls_pki_types::UnixTime;

pub use manifests::verify_rim;
pub use policy::{GpuPolicy, GpuVersion};
pub use result::{GpuAppraised, GpuClaims};

use self::{
    chain::ChainRole,
    judge::{GpuStep, Judge},
    manifests::Manifests,
};
use crate::{
    checks::Checks,
    crypto::Crypto,
    policy::Policy,
    reason::Reason,
    result::{PartialResult, Rejection},
    roots::Root,
};

/// The evidence of one GPU, and the nonce that it has to hold.
#[derive(Clone, Debug)]
pub struct GpuAppraisal<'a> {
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

impl<'a> GpuAppraisal<'a> {
    /// Reads a container, as channels and files carry it.
    ///
    /// # Errors
    /// [`Reason::GpuEvidence`] if the bytes are not a container.
    pub fn from_container(bytes: &'a [u8], nonce: [u8; 32]) -> Result<Self, Reason> {
        let GpuEvidence { report, chain, rims, ocsp } =
            GpuEvidence::decode(bytes).map_err(Reason::GpuEvidence)?;
        Ok(Self { report: report.into(), chain, rims, ocsp, nonce })
    }

    /// Takes a bare report and its certificate chain.
    ///
    /// # Errors
    /// [`Reason::Malformed`] if a report in text is too long or not hexadecimal.
    pub fn from_report(report: &'a [u8], chain: &'a [u8], nonce: [u8; 32]) -> Result<Self, Reason> {
        let report = report_bytes(report)?;
        Ok(Self { report, chain, rims: Vec::new(), ocsp: Vec::new(), nonce })
    }

    /// A rejection of bytes that are no evidence of a GPU, before any other check could run.
    pub fn reject_unreadable(reason: Reason) -> Rejection {
        let mut found = PartialResult::new(Checks::new::<GpuStep>());
        let reason = found.checks.fail(GpuStep::Format, reason);
        found.reject(reason)
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
        let mut found = PartialResult::new(Checks::new::<GpuStep>());
        match self.judge(&mut found, policy, now, crypto) {
            Ok((root, claims)) => {
                Ok(GpuAppraised { root, claims, checks: found.checks.into_vec() })
            }
            Err(reason) => Err(found.reject(reason)),
        }
    }

    fn judge(
        &self,
        found: &mut PartialResult,
        policy: &Policy,
        now: UnixTime,
        crypto: &dyn Crypto,
    ) -> Result<(Root, GpuClaims), Reason> {
        let checks = &mut found.checks;
        let judge = Judge { policy, now, crypto, answers: &self.ocsp };
        let report = checks.run(GpuStep::Format, || {
            let report = GpuReport::parse(&self.report)?;
            let detail = format!("SPDM 1.1, {} measurements", report.measurements.len());
            Ok((report, detail.into()))
        })?;
        let (ders, root) = checks.run(GpuStep::Root, || {
            let ders = decode_chain(self.chain)?;
            let root = chain::find_root(ChainRole::Device, &ders, &policy.roots)?;
            Ok(((ders, root), root.kind.detail(&root.sha256)))
        })?;
        found.root = Some(root);
        let chain = checks.run(GpuStep::Chain, || {
            let chain = chain::verify_chain(ChainRole::Device, &ders, now, crypto)?;
            let until = UnixSeconds(chain.until);
            let detail = format!("{}, until {until}", chain.leaf().common_name);
            Ok((chain, detail.into()))
        })?;
        // NVIDIA's responder knows every certificate but the attestation key's.
        let revocation_known =
            judge.check_revocation(checks, GpuStep::Revocation, &[&chain], |at| at > 0)?;
        check_firmware(checks, &report, chain.leaf())?;
        let is_wanted = *report.nonce == self.nonce;
        checks.require(GpuStep::Nonce, is_wanted, "as wanted", || Reason::Value {
            field: "GPU nonce",
            wanted: hex::encode(self.nonce),
            got: hex::encode(report.nonce),
        })?;
        let key = chain.leaf().public_key;
        let is_signed = crypto.verify_p384(key, report.signed, report.signature);
        checks.require(GpuStep::Signature, is_signed, "by the first certificate", || {
            Reason::Signature { subject: "GPU report" }
        })?;
        check_mode(checks, &report, &policy.gpu)?;
        judge.check_versions(checks, &report)?;
        let manifests = Manifests::verify(&self.rims, &judge, &report, checks)?;
        let manifests_known = judge.check_manifest_revocation(checks, &manifests)?;
        let compared = manifests.compare(checks, &report)?;
        judge.record_debug_check(checks, compared);
        judge.check_required(checks, revocation_known && manifests_known, compared)?;
        let until = manifests.valid_until().min(chain.until);
        Ok((root, GpuClaims::from_report(&report, &chain, compared, until)))
    }
}

impl Judge<'_> {
    fn check_versions(&self, checks: &mut Checks, report: &GpuReport<'_>) -> Result<(), Reason> {
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
    fn record_debug_check(&self, checks: &mut Checks, compared: bool) {
        if compared {
            // A difference would have ended the appraisal before this point.
            checks.pass(GpuStep::Debug, "off: all measurements are those of the manifests");
        } else {
            checks.skip(GpuStep::Debug, "the report does not say, and no RIM was compared");
        }
    }

    /// Refuses under `required` a GPU of which something was not evaluated.
    fn check_required(
        &self,
        checks: &mut Checks,
        revocation: bool,
        rim: bool,
    ) -> Result<(), Reason> {
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

/// Checks that the firmware that the report names is the one that the key belongs to.
fn check_firmware(
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

fn check_mode(
    checks: &mut Checks,
    report: &GpuReport<'_>,
    policy: &GpuPolicy,
) -> Result<(), Reason> {
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
