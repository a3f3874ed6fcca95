//! Signatures over any message, by the keys of the simulation: for tests whose faults lie behind a
//! signature that has to hold.

use crate::{
    endorsements::FakeEndorsements,
    keys::{Key, Role},
};

/// The key that signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ForgedKey {
    /// The key of Intel's simulated root.
    IntelRoot,
    /// The key of the CA of machines with several packages.
    PlatformCa,
    /// The key of the CA of machines with one package.
    ProcessorCa,
    /// The key that signs TCB info and QE identity.
    TcbSigner,
    /// The PCK of the machine with this number.
    Pck(u32),
    /// The attestation key of the machine with this number.
    AttestationKey(u32),
}

impl FakeEndorsements {
    /// Signs any message by ECDSA P-256 with SHA-256, as r and s.
    pub fn sign_as(&self, who: ForgedKey, message: &[u8]) -> [u8; 64] {
        let role = match who {
            ForgedKey::IntelRoot => Role::Root,
            ForgedKey::PlatformCa => Role::PlatformCa,
            ForgedKey::ProcessorCa => Role::ProcessorCa,
            ForgedKey::TcbSigner => Role::TcbSigner,
            ForgedKey::Pck(platform) => Role::Pck(platform),
            ForgedKey::AttestationKey(platform) => Role::AttestationKey(platform),
        };
        Key::derive(self.seed(), role).sign_raw(message)
    }
}
