//! From security versions to Intel's verdict on them.
//!
//! Source: Intel SGX and TDX Provisioning Certification Service API, version 4, "TCB status
//! evaluation"; convergence as in Intel's quote verification library.

use alloc::{
    format,
    string::{String, ToString},
    sync::Arc,
    vec::Vec,
};

use confide_evidence::{
    pck::PckExtension,
    qe_identity::QeIdentity,
    quote::{EnclaveReport, TdReport},
    tcb_info::{IsvLevel, TcbInfo, TcbLevel, TcbStatus, TdxModule, TdxModuleIdentity},
};

use crate::reason::Reason;

/// A status with the advisories that go with it.
#[derive(Clone, Debug)]
pub(crate) struct TcbStanding {
    pub(crate) status: TcbStatus,
    pub(crate) advisories: Arc<[String]>,
    /// The oldest date (Unix seconds) of a level that is out of date, where one is.
    pub(crate) stale_since: Option<u64>,
    /// Whether any part of the platform needs another configuration, and whether any needs
    /// hardening in software: what `status` no longer says where it says "out of date".
    needs: [bool; 2],
}

impl TcbStanding {
    /// The verdict on the platform's own level.
    pub(crate) fn of_platform(level: &TcbLevel) -> Self {
        let advisories = level.advisory_ids.as_slice().into();
        let stale_since = is_stale(level.tcb_status).then_some(level.tcb_date);
        Self {
            status: level.tcb_status,
            advisories,
            stale_since,
            needs: needed_mitigations(level.tcb_status),
        }
    }

    /// Takes in a TDX module or quoting enclave: if it is anything but up to date or revoked, it
    /// counts as out of date; its advisories always apply.
    pub(crate) fn include_part(mut self, part: &IsvLevel) -> Self {
        use TcbStatus::*;
        self.status = match (part.tcb_status, self.status) {
            (Revoked, _) => Revoked,
            (UpToDate, platform) => platform,
            (_, UpToDate | SwHardeningNeeded) => OutOfDate,
            (_, ConfigurationNeeded | ConfigurationAndSwHardeningNeeded) => {
                OutOfDateConfigurationNeeded
            }
            (_, platform) => platform,
        };
        if part.tcb_status != UpToDate {
            self.stale_since = earlier_date(self.stale_since, Some(part.tcb_date));
        }
        self.add_needed_mitigations(needed_mitigations(part.tcb_status));
        self.add_advisories(&part.advisory_ids);
        self
    }

    /// Takes in what `current` says of the TDX module that runs now, where `self` speaks of the one
    /// that the trust domain was launched under: the worse of the two, except that an out-of-date
    /// launch under a module that is no longer out of date can be mended by launching again.
    pub(crate) fn include_running(mut self, current: &TcbStanding) -> Self {
        use TcbStatus::*;
        let stale = is_stale;
        let unconfigured = |status| needed_mitigations(status)[0];
        let configure = unconfigured(self.status) || unconfigured(current.status);
        self.status = match (self.status, current.status) {
            (Revoked, _) | (_, Revoked) => Revoked,
            (launch, now) if stale(launch) && !stale(now) && configure => {
                TdRelaunchAdvisedConfigurationNeeded
            }
            (launch, now) if stale(launch) && !stale(now) => TdRelaunchAdvised,
            (launch, now) if stale(now) && !stale(launch) && configure => {
                OutOfDateConfigurationNeeded
            }
            (launch, now) => {
                let rank = |status| TcbStatus::ALL.iter().position(|known| *known == status);
                if rank(now) > rank(launch) { now } else { launch }
            }
        };
        self.stale_since = earlier_date(self.stale_since, current.stale_since);
        self.add_needed_mitigations(current.needs);
        self.add_advisories(&current.advisories);
        self
    }

    /// The status that an out-of-date platform would have if it were new.
    pub(crate) fn status_without_age(&self) -> TcbStatus {
        match self.needs {
            [false, false] => TcbStatus::UpToDate,
            [false, true] => TcbStatus::SwHardeningNeeded,
            [true, false] => TcbStatus::ConfigurationNeeded,
            [true, true] => TcbStatus::ConfigurationAndSwHardeningNeeded,
        }
    }

    fn add_needed_mitigations(&mut self, more: [bool; 2]) {
        for (needed, more) in self.needs.iter_mut().zip(more) {
            *needed |= more;
        }
    }

    fn add_advisories(&mut self, advisories: &[String]) {
        let more = |advisory: &&String| !self.advisories.contains(advisory);
        let more: Vec<_> = advisories.iter().filter(more).collect();
        if !more.is_empty() {
            self.advisories = self.advisories.iter().chain(more).cloned().collect();
        }
    }
}

/// Whether a status asks for another configuration, and for hardening in software.
fn needed_mitigations(status: TcbStatus) -> [bool; 2] {
    use TcbStatus::*;
    match status {
        SwHardeningNeeded => [false, true],
        ConfigurationNeeded | OutOfDateConfigurationNeeded => [true, false],
        ConfigurationAndSwHardeningNeeded => [true, true],
        _ => [false, false],
    }
}

fn is_stale(status: TcbStatus) -> bool {
    matches!(status, TcbStatus::OutOfDate | TcbStatus::OutOfDateConfigurationNeeded)
}

fn earlier_date(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}

/// The first level, from the highest down, whose versions the platform reaches; `tdx` are those of
/// a TDX module.
pub(crate) fn platform_level<'a>(
    info: &'a TcbInfo,
    pck: &PckExtension,
    tdx: Option<&[u8; 16]>,
) -> Result<&'a TcbLevel, Reason> {
    let reaches = |level: &&TcbLevel| {
        is_at_least(&pck.components, &level.tcb.sgx)
            && pck.pce_svn >= level.tcb.pce_svn
            && match (tdx, &level.tcb.tdx) {
                (None, None) => true,
                // A module with a version of its own is judged by its identity, and components
                // 0 and 1 (its ISVSVN and version) are left out here.
                (Some(have), Some(wanted)) => {
                    let first = if have[1] == 0 { 0 } else { 2 };
                    is_at_least(&have[first..], &wanted[first..])
                }
                _ => false,
            }
    };
    let level = info.tcb_levels.iter().find(reaches);
    level.ok_or(Reason::NoTcbLevel { subject: "the platform" })
}

/// Checks signer and attributes of the TDX module; gives its level where it has an identity.
pub(crate) fn module_level<'a>(
    info: &'a TcbInfo,
    report: TdReport<'_>,
) -> Result<Option<&'a IsvLevel>, Reason> {
    let Some(identity) = module_identity(info, report.tee_tcb_svn())? else {
        let Some(module) = &info.tdx_module else {
            return Err(Reason::NoTcbLevel { subject: "the TDX module" });
        };
        let TdxModule { mrsigner, attributes, attributes_mask } = module;
        return check_module(report, mrsigner, attributes, attributes_mask).map(|()| None);
    };
    let TdxModuleIdentity { mrsigner, attributes, attributes_mask, .. } = identity;
    check_module(report, mrsigner, attributes, attributes_mask)?;
    module_identity_level(identity, report.tee_tcb_svn()).map(Some)
}

/// TDX 1.5: the level of the module that runs now. Signer and attributes in a report are those of
/// the module that the trust domain was launched under.
pub(crate) fn running_module_level<'a>(
    info: &'a TcbInfo,
    tee_tcb_svn_2: &[u8; 16],
) -> Result<Option<&'a IsvLevel>, Reason> {
    let identity = module_identity(info, tee_tcb_svn_2)?;
    identity.map(|identity| module_identity_level(identity, tee_tcb_svn_2)).transpose()
}

/// The identity of the module's major version, which version 0 does not have.
fn module_identity<'a>(
    info: &'a TcbInfo,
    [_, version, ..]: &[u8; 16],
) -> Result<Option<&'a TdxModuleIdentity>, Reason> {
    if *version == 0 {
        return Ok(None);
    }
    let mut identities = info.tdx_module_identities.iter();
    match identities.find(|module| module.version == *version) {
        Some(identity) => Ok(Some(identity)),
        None => Err(Reason::Value {
            field: "TDX module identity",
            wanted: "one of TCB info".into(),
            got: format!("TDX_{version:02X}"),
        }),
    }
}

fn module_identity_level<'a>(
    identity: &'a TdxModuleIdentity,
    [isv_svn, ..]: &[u8; 16],
) -> Result<&'a IsvLevel, Reason> {
    let svn = u16::from(*isv_svn);
    isv_level("the TDX module", &identity.tcb_levels, svn, &MODULE_STATUSES)
}

/// Checks the quoting enclave against its identity and gives its level.
pub(crate) fn qe_level<'a>(
    identity: &'a QeIdentity,
    report: EnclaveReport<'_>,
) -> Result<&'a IsvLevel, Reason> {
    check_masked(
        "QE MISCSELECT",
        report.misc_select(),
        &identity.miscselect,
        &identity.miscselect_mask,
    )?;
    check_masked(
        "QE ATTRIBUTES",
        report.attributes(),
        &identity.attributes,
        &identity.attributes_mask,
    )?;
    if report.is_debug() {
        return Err(mismatch_error("QE ATTRIBUTES", &identity.attributes, report.attributes()));
    }
    if report.mr_signer() != &identity.mrsigner {
        return Err(mismatch_error("QE MRSIGNER", &identity.mrsigner, report.mr_signer()));
    }
    if report.isv_prod_id() != identity.isv_prod_id {
        let (wanted, got) = (identity.isv_prod_id.to_string(), report.isv_prod_id().to_string());
        return Err(Reason::Value { field: "QE ISVPRODID", wanted, got });
    }
    isv_level("the quoting enclave", &identity.tcb_levels, report.isv_svn(), &QE_STATUSES)
}

/// Statuses that Intel defines for a module's levels.
const MODULE_STATUSES: [TcbStatus; 3] =
    [TcbStatus::UpToDate, TcbStatus::OutOfDate, TcbStatus::Revoked];
/// Statuses that Intel defines for a quoting enclave's levels.
const QE_STATUSES: [TcbStatus; 5] = [
    TcbStatus::UpToDate,
    TcbStatus::OutOfDate,
    TcbStatus::Revoked,
    TcbStatus::ConfigurationNeeded,
    TcbStatus::OutOfDateConfigurationNeeded,
];

fn isv_level<'a>(
    subject: &'static str,
    levels: &'a [IsvLevel],
    isv_svn: u16,
    known: &[TcbStatus],
) -> Result<&'a IsvLevel, Reason> {
    let level = levels.iter().find(|level| isv_svn >= level.isv_svn());
    let level = level.ok_or(Reason::NoTcbLevel { subject })?;
    if !known.contains(&level.tcb_status) {
        return Err(Reason::Value {
            field: "status of a TDX module or quoting enclave",
            wanted: format!("{known:?}"),
            got: format!("{}", level.tcb_status),
        });
    }
    Ok(level)
}

fn check_module(
    report: TdReport<'_>,
    mrsigner: &[u8; 48],
    attributes: &[u8; 8],
    mask: &[u8; 8],
) -> Result<(), Reason> {
    if report.mr_signer_seam() != mrsigner {
        return Err(mismatch_error("MRSIGNERSEAM", mrsigner, report.mr_signer_seam()));
    }
    check_masked("SEAM attributes", report.seam_attributes(), attributes, mask)?;
    let outside = report.seam_attributes().iter().zip(mask).any(|(have, mask)| have & !mask != 0);
    if outside {
        return Err(mismatch_error("SEAM attributes", attributes, report.seam_attributes()));
    }
    Ok(())
}

fn is_at_least(have: &[u8], wanted: &[u8]) -> bool {
    have.iter().zip(wanted).all(|(have, wanted)| have >= wanted)
}

/// Compares as Intel's library does: a wanted bit that the mask clears is never met.
fn check_masked<const N: usize>(
    field: &'static str,
    have: &[u8; N],
    wanted: &[u8; N],
    mask: &[u8; N],
) -> Result<(), Reason> {
    let same = (0..N).all(|at| have[at] & mask[at] == wanted[at]);
    if same { Ok(()) } else { Err(mismatch_error(field, wanted, have)) }
}

pub(crate) fn mismatch_error(field: &'static str, wanted: &[u8], got: &[u8]) -> Reason {
    Reason::Value { field, wanted: hex::encode(wanted), got: hex::encode(got) }
}
