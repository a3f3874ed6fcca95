//! One issue of all endorsements: dates, numbers and what is revoked.

use crate::time::DAY;

/// The days for which collateral holds: PCS gives 30 to everything it signs.
pub(crate) const COLLATERAL_DAYS: u64 = 30;
/// The TCB evaluation data number, which advances with each TCB recovery; Intel's was 19 in the
/// middle of 2026.
pub(crate) const EVALUATION_NUMBER: u32 = 20;

/// The endorsements that a service gives out from one moment on. Certificates and keys stay the
/// same through all editions; documents and revocation lists are signed again.
///
/// An edition with an older date or number than another one is what a rolled-back cache serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndorsementEdition {
    /// `issueDate` of TCB info and QE identities, unix seconds.
    pub issued_at: u64,
    /// `thisUpdate` of all revocation lists, unix seconds.
    pub crl_issued_at: u64,
    /// CRLNumber of all revocation lists; AMD's have none where it is 0.
    pub crl_number: u64,
    /// Days from issue to the next update, of documents and lists alike.
    pub days: u64,
    /// TCB evaluation data number of TCB info and QE identities.
    pub evaluation_number: u32,
    /// Serial numbers on the lists of Platform CA and Processor CA, big-endian.
    pub revoked_pck: Vec<Vec<u8>>,
    /// Serial numbers on the list of Intel's simulated root, big-endian.
    pub revoked_ca: Vec<Vec<u8>>,
    /// Serial numbers on the lists of AMD's simulated roots, big-endian.
    pub revoked_amd: Vec<Vec<u8>>,
}

/// The content of one revocation list.
pub(crate) struct RevocationList {
    pub(crate) from: u64,
    pub(crate) until: u64,
    pub(crate) number: u64,
    pub(crate) revoked: Vec<Vec<u8>>,
}

impl EndorsementEdition {
    /// An edition that is issued at one moment for the 30 days that Intel's services give; no
    /// certificate in use is revoked.
    pub fn issued_at(issued_at: u64) -> Self {
        Self {
            issued_at,
            crl_issued_at: issued_at,
            // RFC 5280 section 5.2.3 wants numbers that only grow; seconds do.
            crl_number: issued_at,
            days: COLLATERAL_DAYS,
            evaluation_number: EVALUATION_NUMBER,
            revoked_pck: Vec::new(),
            revoked_ca: Vec::new(),
            revoked_amd: Vec::new(),
        }
    }

    pub(crate) fn valid_until(&self) -> u64 {
        self.issued_at + self.days * DAY
    }

    pub(crate) fn revocation_list(&self, revoked: Vec<Vec<u8>>) -> RevocationList {
        let from = self.crl_issued_at;
        RevocationList { from, until: from + self.days * DAY, number: self.crl_number, revoked }
    }
}
