//! Plans of what is issued and when: the honest plan, and plans with one fault each.

use crate::{
    edition::{COLLATERAL_DAYS, EndorsementEdition},
    level::SimulatedTcbLevel,
    time::DAY,
};

/// One fault in evidence that is otherwise well made and well signed.
///
/// A verifier that only checks signatures accepts all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// All collateral expired 30 days before the issue time.
    ExpiredCollateral,
    /// Only the CRLs expired before the issue time.
    ExpiredCrl,
    /// The CRLs begin ten days after the issue time.
    FutureCrl,
    /// The CRLs hold and are signed, but they are older than those of the honest plan: their
    /// numbers went back. Only a verifier that remembers, or has a minimum, can see it.
    RolledBackCrl,
    /// The PCK certificate is on its CA's CRL; for SNP the serial number of the VCEK or VLEK is on
    /// the ARK's.
    RevokedPck,
    /// The CA of the PCK certificate is on the root's CRL; for SNP the ASK or ASVK.
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
    /// The quoting enclave is signed by a signer that the QE identity does not name.
    ForeignQuotingEnclave,
    /// The QE report does not vouch for the attestation key that signed the quote.
    UnboundAttestationKey,
    /// The trust domain lets the host cause exceptions (SEPT_VE_DISABLE is off); nothing for SGX.
    SeptVeEnabled,
    /// The host can read the memory, and the policy that comes with the attester does not mention
    /// it.
    Debug,
    /// A service TD may migrate the trust domain away (quote version 5 with a TD 1.5 body only).
    ServiceTdBound,
    /// The attester gives no bytes at all.
    EmptyQuote,
    /// One byte that is not zero follows the evidence.
    TrailingByte,
    /// The collateral brings a PCK certificate of its own: genuine, for the same key, but not the
    /// one in the quote.
    OtherPckChain,
    /// TCB info gives the platform a status that no specification knows.
    UnknownTcbStatus,
    /// The VCEK was certified for another chip than the report names; nothing for a VLEK.
    WrongChip,
    /// The VCEK or VLEK was certified for another TCB than the report names.
    WrongTcb,
    /// The report was requested by a program that is not the most privileged of its guest (VMPL 3).
    LowPrivilege,
    /// The guest may be migrated by an agent, which reads its memory (SNP only).
    MigrationAgent,
}

/// The times, levels and lists that the issuers follow, and the fault of the machine.
#[derive(Clone)]
pub(crate) struct SimulationPlan {
    pub(crate) edition: EndorsementEdition,
    pub(crate) level: SimulatedTcbLevel,
    fault: Option<Fault>,
}

impl SimulationPlan {
    pub(crate) fn new(issued_at: u64, fault: Option<Fault>) -> Self {
        let level = match fault {
            Some(Fault::SwHardeningNeeded) => SimulatedTcbLevel::SwHardeningNeeded,
            Some(Fault::OutOfDate) => SimulatedTcbLevel::OutOfDate,
            Some(Fault::RevokedTcb) => SimulatedTcbLevel::Revoked,
            _ => SimulatedTcbLevel::UpToDate,
        };
        Self { edition: edition(issued_at, fault), level, fault }
    }

    pub(crate) fn has_fault(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }
}

fn edition(issued_at: u64, fault: Option<Fault>) -> EndorsementEdition {
    let mut edition = EndorsementEdition::issued_at(issued_at);
    match fault {
        Some(Fault::ExpiredCollateral) => {
            edition.issued_at -= 2 * COLLATERAL_DAYS * DAY;
            edition.crl_issued_at = edition.issued_at;
        }
        Some(Fault::ExpiredCrl) => edition.crl_issued_at -= 2 * COLLATERAL_DAYS * DAY,
        Some(Fault::FutureCrl) => edition.crl_issued_at += 10 * DAY,
        Some(Fault::RolledBackCrl) => {
            edition.crl_issued_at -= 20 * DAY;
            edition.crl_number = edition.crl_issued_at;
        }
        _ => {}
    }
    edition
}
