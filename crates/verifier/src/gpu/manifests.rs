//! Reference manifests: who signed them, what they are for, and whether the GPU measures the same.

use alloc::{format, string::String, vec::Vec};

use confide_evidence::gpu::{GpuReport, RIMS_MAX, ReferenceMeasurement, Rim, RimComponent};
use rustls_pki_types::UnixTime;

use super::{
    chain::{self, ChainRole, VerifiedChain},
    judge::{GpuStep, Judge},
};
use crate::{
    checks::Checks,
    crypto::Crypto,
    expect::Expect,
    reason::Reason,
    roots::{Root, Roots},
};

/// Manifests whose signatures were verified: at most one for each component.
pub(super) struct Manifests {
    list: Vec<(RimComponent, Rim)>,
    until: u64,
}

impl Manifests {
    pub(super) fn verify(
        files: &[&[u8]],
        judge: &Judge<'_>,
        report: &GpuReport<'_>,
        checks: &mut Checks,
    ) -> Result<Self, Reason> {
        let mut found = Self { list: Vec::new(), until: u64::MAX };
        for step in [GpuStep::DriverManifest, GpuStep::VbiosManifest] {
            checks.skip(step, "no reference manifest was given");
        }
        let pinned = judge.policy.gpu.rim_sha256.as_ref().filter(|wanted| wanted.is_evaluated());
        if let (Some(_), true) = (pinned, files.is_empty()) {
            let what = "reference manifest with a SHA-256 of the policy (`gpu.rim_sha256`)";
            return checks.run(GpuStep::DriverManifest, || Err(Reason::GpuNotEvaluated { what }));
        }
        for (at, file) in files.iter().enumerate() {
            // Only a manifest that can be read tells which of the two it is.
            let first = [GpuStep::DriverManifest, GpuStep::VbiosManifest][at.min(1)];
            let step = match Rim::parse(file).ok().and_then(|rim| find_component(&rim, report)) {
                Some(RimComponent::Driver) => GpuStep::DriverManifest,
                Some(RimComponent::Vbios) => GpuStep::VbiosManifest,
                None => first,
            };
            checks.run(step, || {
                let detail = found.add(file, pinned, judge, report)?;
                Ok(((), detail.into()))
            })?;
        }
        Ok(found)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Unix seconds at which the first of the manifests' certificates expires.
    pub(super) fn valid_until(&self) -> u64 {
        self.until
    }

    /// The certificate chains, verified once more; there are two at most.
    pub(super) fn chains(&self, judge: &Judge<'_>) -> Result<Vec<VerifiedChain<'_>>, Reason> {
        let chains = self.list.iter().map(|(_, rim)| {
            let ders = &rim.signature.certificates;
            chain::verify_chain(ChainRole::Manifest, ders, judge.now, judge.crypto)
        });
        chains.collect()
    }

    /// Compares every active value. `Ok(true)`: both manifests were there, and all agree.
    pub(super) fn compare(
        &self,
        checks: &mut Checks,
        report: &GpuReport<'_>,
    ) -> Result<bool, Reason> {
        let active = || {
            let all = self.list.iter().flat_map(|(component, rim)| {
                rim.measurements.iter().map(move |measurement| (*component, measurement))
            });
            all.filter(|(_, measurement)| measurement.active)
        };
        let count = active().count();
        let compared = active().try_for_each(|(component, wanted)| {
            let others = active().filter(|(_, other)| other.index == wanted.index).count();
            check_measurement(component, wanted, others == 1, report)
        });
        let components = self.list.len();
        if compared.is_ok() && components < RIMS_MAX {
            let detail = match self.list.first() {
                None => "no reference manifest was given".into(),
                Some((one, _)) => {
                    format!(
                        "{count} agree with the {} manifest; the other is missing",
                        one.as_str()
                    )
                }
            };
            checks.skip(GpuStep::Measurements, detail);
            return Ok(false);
        }
        checks.run(GpuStep::Measurements, || {
            compared?;
            Ok((true, format!("{count} of {} compared", report.measurements.len()).into()))
        })
    }

    fn add(
        &mut self,
        file: &[u8],
        pinned: Option<&Expect<[u8; 32]>>,
        judge: &Judge<'_>,
        report: &GpuReport<'_>,
    ) -> Result<String, Reason> {
        let sha256 = judge.crypto.sha256(&[file]);
        if let Some(wanted) = pinned.filter(|wanted| !wanted.accepts(&sha256)) {
            let (wanted, got) = (format!("{wanted}"), hex::encode(sha256));
            return Err(Reason::Value { field: "SHA-256 of a reference manifest", wanted, got });
        }
        let Judge { policy, now, crypto, .. } = *judge;
        let AuthenticRim { rim, root, until } = authenticate(file, &policy.roots, now, crypto)?;
        let Some(component) = find_component(&rim, report) else {
            let opaque = &report.opaque;
            let versions = [opaque.driver_version, opaque.vbios_version.as_deref()];
            let versions: Vec<&str> = versions.into_iter().flatten().collect();
            return Err(Reason::Value {
                field: "version of a reference manifest",
                wanted: versions.join(" or "),
                got: rim.version,
            });
        };
        let is_empty = !rim.measurements.iter().any(|measurement| measurement.active);
        if is_empty || self.list.iter().any(|(known, _)| *known == component) {
            return Err(Reason::Value {
                field: "reference manifests",
                wanted: "one for each component, with measurements to compare".into(),
                got: format!("another for the {}, or an empty one", component.as_str()),
            });
        }
        let detail = format!(
            "{} {}, signed under {} sha256:{}",
            rim.product,
            rim.version,
            root.kind.as_str(),
            hex::encode(root.sha256)
        );
        self.until = self.until.min(until);
        self.list.push((component, rim));
        Ok(detail)
    }
}

/// Verifies a reference manifest by itself: its signature, and that a trusted root vouches for it.
///
/// Whether it is for a given GPU, [`super::GpuAppraisal::appraise`] finds out.
///
/// # Errors
/// [`Reason::Malformed`] if the file is not a manifest, [`Reason::UntrustedRoot`] if no
/// trusted root vouches for it, and the reason for which its chain or its signature does not
/// verify.
pub fn verify_rim(
    file: &[u8],
    roots: &Roots,
    now: UnixTime,
    crypto: &dyn Crypto,
) -> Result<Rim, Reason> {
    authenticate(file, roots, now, crypto).map(|authentic| authentic.rim)
}

struct AuthenticRim {
    rim: Rim,
    root: Root,
    until: u64,
}

fn authenticate(
    file: &[u8],
    roots: &Roots,
    now: UnixTime,
    crypto: &dyn Crypto,
) -> Result<AuthenticRim, Reason> {
    let rim = Rim::parse(file)?;
    let signature = &rim.signature;
    let root = chain::find_root(ChainRole::Manifest, &signature.certificates, roots)?;
    let chain = chain::verify_chain(ChainRole::Manifest, &signature.certificates, now, crypto)?;
    let digest = crypto.sha384(&[signature.document.as_bytes()]);
    let (key, signed) = (chain.leaf().public_key, signature.signed_info.as_bytes());
    let is_signed =
        digest == signature.document_digest && crypto.verify_p384(key, signed, &signature.value);
    if !is_signed {
        return Err(Reason::Signature { subject: "reference manifest" });
    }
    let until = chain.until;
    Ok(AuthenticRim { rim, root, until })
}

/// The component that a manifest is for: the one whose version the report names too.
fn find_component(rim: &Rim, report: &GpuReport<'_>) -> Option<RimComponent> {
    let is = |version: Option<&str>| {
        version.is_some_and(|version| version.eq_ignore_ascii_case(&rim.version))
    };
    match (is(report.opaque.driver_version), is(report.opaque.vbios_version.as_deref())) {
        (true, false) => Some(RimComponent::Driver),
        (false, true) => Some(RimComponent::Vbios),
        _ => None,
    }
}

fn check_measurement(
    component: RimComponent,
    wanted: &ReferenceMeasurement,
    is_only: bool,
    report: &GpuReport<'_>,
) -> Result<(), Reason> {
    // A manifest counts from 0, a report from 1; an index of 255 was refused when it was read.
    let index = wanted.index.saturating_add(1);
    let got = report.measurement(index).map(|measurement| measurement.value);
    let is_known = |got: &[u8]| wanted.values.iter().any(|value| value == got);
    if is_only && got.is_some_and(is_known) {
        return Ok(());
    }
    let values: Vec<_> = wanted.values.iter().map(hex::encode).collect();
    Err(Reason::GpuMeasurement {
        component: component.as_str(),
        index,
        wanted: match is_only {
            true => values.join(" or "),
            false => "a manifest that covers it".into(),
        },
        got: got.map_or("none".into(), hex::encode),
    })
}
