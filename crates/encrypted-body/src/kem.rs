//! The kinds of keys.

/// The key encapsulation of a body: a classical one, which EHBP's clients speak, or a hybrid with a
/// post-quantum one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKem {
    /// DHKEM(X25519, HKDF-SHA256), RFC 9180 section 7.1.
    X25519,
    /// X-Wing: ML-KEM-768 and X25519 together (draft-connolly-cfrg-xwing-kem-06, whose vectors the
    /// tests check), as a KEM of HPKE (draft-ietf-hpke-pq-03).
    XWing,
}

impl BodyKem {
    /// Both kinds, the preferred one first.
    pub const ALL: [Self; 2] = [Self::XWing, Self::X25519];

    /// The `algo` of such a key in a keyset. It is named after EHBP, for which such keys were made first;
    /// OHTTP uses the same keys, with another `info`.
    pub fn algorithm(self) -> &'static str {
        match self {
            Self::X25519 => "ehbp-x25519-hkdf-sha256-aes-256-gcm",
            Self::XWing => "ehbp-x-wing-hkdf-sha256-aes-256-gcm",
        }
    }

    /// The kind that an `algo` of a keyset names.
    pub fn from_algorithm(algorithm: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kem| kem.algorithm() == algorithm)
    }

    /// The identifier in key configurations.
    pub(crate) fn id(self) -> u16 {
        match self {
            Self::X25519 => 0x0020,
            Self::XWing => 0x647a,
        }
    }

    /// The kind that an identifier of HPKE names.
    pub(crate) fn from_id(id: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|kem| kem.id() == id)
    }

    /// The number of bytes of a public key.
    pub fn public_key_bytes(self) -> usize {
        match self {
            Self::X25519 => 32,
            Self::XWing => 1216,
        }
    }

    /// The number of bytes of an encapsulated key, by which the kinds are told apart in a request.
    pub fn encapsulated_bytes(self) -> usize {
        match self {
            Self::X25519 => 32,
            Self::XWing => 1120,
        }
    }

    /// The kind whose encapsulated keys have this number of bytes.
    pub(crate) fn from_encapsulated_bytes(bytes: usize) -> Option<Self> {
        Self::ALL.into_iter().find(|kem| kem.encapsulated_bytes() == bytes)
    }
}
