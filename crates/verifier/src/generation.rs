//! The identifier of one set of endorsements.

use alloc::{string::String, vec::Vec};

use confide_evidence::collateral::Collateral;

use crate::{crypto::Crypto, roots::Root};

/// Identifies a set of endorsements: SHA-256 of all their bytes and of the root that they were verified under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EndorsementsId(pub [u8; 32]);

impl EndorsementsId {
    /// Hashes each part with its length, so that no two sets of endorsements have the same input.
    pub(crate) fn derive(collateral: &Collateral, root: &Root, crypto: &dyn Crypto) -> Self {
        let none = String::new();
        let parts: [&[u8]; 11] = [
            &root.sha256,
            collateral.pck_crl_issuer_chain.as_bytes(),
            &collateral.root_ca_crl,
            &collateral.pck_crl,
            collateral.tcb_info_issuer_chain.as_bytes(),
            collateral.tcb_info.as_bytes(),
            &collateral.tcb_info_signature,
            collateral.qe_identity_issuer_chain.as_bytes(),
            collateral.qe_identity.as_bytes(),
            &collateral.qe_identity_signature,
            collateral.pck_certificate_chain.as_ref().unwrap_or(&none).as_bytes(),
        ];
        let lengths = parts.map(|part| (part.len() as u64).to_le_bytes());
        let input: Vec<&[u8]> =
            lengths.iter().map(<[u8; 8]>::as_slice).chain(parts.iter().copied()).collect();
        Self(crypto.sha256(&input))
    }
}
