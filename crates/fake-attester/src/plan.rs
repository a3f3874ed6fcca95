//! What exactly is issued and when: the honest plan, and plans with one fault each.

use crate::{tcb::Level, time::DAY};

/// How long collateral holds: PCS gives 30 days to everything it signs.
pub(crate) const COLLATERAL_DAYS: u64 = 30;

/// One thing wrong with evidence that is otherwise well made and well signed.
///
/// A verifier that only checks signatures accepts all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// All collateral ended 30 days before the issue time.
    ExpiredCollateral,
    /// Only the CRLs ended before the issue time.
    ExpiredCrl,
    /// The CRLs begin ten days after the issue time.
    FutureCrl,
    /// The CRLs hold and are signed, but they are older than those of the honest plan: their
    /// numbers went back. Only a verifier that remembers, or has a minimum, can see it.
    RolledBackCrl,
    /// The PCK certificate is on the Platform CA's CRL.
    RevokedPck,
    /// The Platform CA is on the root's CRL.
    RevokedPlatformCa,
    /// The platform is at a level with status `SWHardeningNeeded`.
    SwHardeningNeeded,
    /// The platform is at a level with status `OutOfDate`.
    OutOfDate,
    /// The platform is at a level with status `Revoked`.
    RevokedTcb,
    /// The TDX module is at a level with status `OutOfDate`, the platform `UpToDate`; for SGX
    /// the quoting enclave is out of date instead.
    OutOfDateModule,
    /// The collateral is for another platform family.
    ForeignFmspc,
    /// The quoting enclave was signed by someone whom the QE identity does not name.
    ForeignQuotingEnclave,
    /// The QE report does not vouch for the attestation key that signed the quote.
    UnboundAttestationKey,
    /// The trust domain lets the host cause exceptions (SEPT_VE_DISABLE is off); nothing for SGX.
    SeptVeEnabled,
}

/// Times, levels and lists that the issuers follow.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) collateral_from: u64,
    pub(crate) crl_from: u64,
    pub(crate) crl_number: u64,
    pub(crate) revoke_pck: bool,
    pub(crate) revoke_platform_ca: bool,
    pub(crate) level: Level,
    pub(crate) old_module: bool,
    pub(crate) foreign_fmspc: bool,
    pub(crate) foreign_qe: bool,
    pub(crate) unbound_key: bool,
    pub(crate) sept_ve_disable: bool,
}

impl Plan {
    pub(crate) fn new(issued_at: u64, fault: Option<Fault>) -> Self {
        let mut plan = Self {
            collateral_from: issued_at,
            crl_from: issued_at,
            // RFC 5280 section 5.2.3 wants numbers that only grow; seconds do.
            crl_number: issued_at,
            revoke_pck: false,
            revoke_platform_ca: false,
            level: Level::UpToDate,
            old_module: false,
            foreign_fmspc: false,
            foreign_qe: false,
            unbound_key: false,
            sept_ve_disable: true,
        };
        match fault {
            None => {}
            Some(Fault::ExpiredCollateral) => {
                plan.collateral_from -= 2 * COLLATERAL_DAYS * DAY;
                plan.crl_from = plan.collateral_from;
            }
            Some(Fault::ExpiredCrl) => plan.crl_from -= 2 * COLLATERAL_DAYS * DAY,
            Some(Fault::FutureCrl) => plan.crl_from += 10 * DAY,
            Some(Fault::RolledBackCrl) => {
                plan.crl_from -= 20 * DAY;
                plan.crl_number = plan.crl_from;
            }
            Some(Fault::RevokedPck) => plan.revoke_pck = true,
            Some(Fault::RevokedPlatformCa) => plan.revoke_platform_ca = true,
            Some(Fault::SwHardeningNeeded) => plan.level = Level::SwHardeningNeeded,
            Some(Fault::OutOfDate) => plan.level = Level::OutOfDate,
            Some(Fault::RevokedTcb) => plan.level = Level::Revoked,
            Some(Fault::OutOfDateModule) => plan.old_module = true,
            Some(Fault::ForeignFmspc) => plan.foreign_fmspc = true,
            Some(Fault::ForeignQuotingEnclave) => plan.foreign_qe = true,
            Some(Fault::UnboundAttestationKey) => plan.unbound_key = true,
            Some(Fault::SeptVeEnabled) => plan.sept_ve_disable = false,
        }
        plan
    }
}
