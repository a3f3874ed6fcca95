//! The inputs of one appraisal, and the signatures that it needs.

use confide_evidence::{
    pck::PckExtension, qe_identity::QeIdentity, quote::Quote, tcb_info::TcbInfo,
};
use rustls_pki_types::UnixTime;

use crate::{
    checks::Checks, crl::CrlVersion, crypto::Crypto, evidence::Evidence, policy::Policy,
    reason::Reason, validity::Validity,
};

/// The appraisal of one quote: its inputs, and the endorsements that were verified for it.
pub(crate) struct Appraisal<'a> {
    pub(crate) evidence: &'a Evidence<'a>,
    pub(crate) quote: Quote<'a>,
    pub(crate) endorsed: EndorsedValues<'a>,
    pub(crate) policy: &'a Policy,
    pub(crate) now: UnixTime,
    pub(crate) crypto: &'a dyn Crypto,
}

impl Appraisal<'_> {
    /// The lower of TCB info's and QE identity's evaluation data number.
    pub(crate) fn evaluation_number(&self) -> u32 {
        let EndorsedValues { tcb_info, qe_identity, .. } = self.endorsed;
        tcb_info.tcb_evaluation_data_number.min(qe_identity.tcb_evaluation_data_number)
    }
}

/// The values of the verified endorsements, whether they were verified now or prepared before.
#[derive(Clone, Copy)]
pub(crate) struct EndorsedValues<'a> {
    pub(crate) tcb_info: &'a TcbInfo,
    pub(crate) qe_identity: &'a QeIdentity,
    pub(crate) root_crl: CrlVersion,
    pub(crate) pck_crl: CrlVersion,
}

/// The platform that a verified PCK certificate describes.
pub(crate) struct Platform {
    pub(crate) pck: PckExtension,
    pub(crate) life: Validity,
    pub(crate) public_key: [u8; 65],
}

/// Verifies the signatures from the root to the quote. There are two implementations: [`crate::appraise`] verifies
/// all of them each time, [`crate::PreparedEndorsements`] leaves out those that it knows.
pub(crate) trait VerifySignatures {
    /// Verifies the PCK chain, which says what the platform is.
    fn verify_pck(
        &mut self,
        checks: &mut Checks,
        appraisal: &Appraisal<'_>,
    ) -> Result<Platform, Reason>;

    /// Verifies the PCK's signature on the quoting enclave's report, and that it binds the attestation key.
    fn verify_enclave(
        &mut self,
        checks: &mut Checks,
        appraisal: &Appraisal<'_>,
        platform: &Platform,
    ) -> Result<(), Reason>;

    /// Verifies the attestation key's signature on the quote.
    fn verify_quote(
        &mut self,
        checks: &mut Checks,
        appraisal: &Appraisal<'_>,
    ) -> Result<(), Reason>;
}
