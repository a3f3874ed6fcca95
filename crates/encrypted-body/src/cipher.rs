//! The ciphers of an exchange.

/// The cipher of an exchange. EHBP and this project's clients use AES-256-GCM only; many clients of
/// OHTTP offer AES-128-GCM alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyCipher {
    /// AES-256-GCM.
    Aes256Gcm,
    /// AES-128-GCM.
    Aes128Gcm,
}

impl BodyCipher {
    /// Both ciphers, the preferred one first.
    pub const ALL: [Self; 2] = [Self::Aes256Gcm, Self::Aes128Gcm];

    /// HPKE's identifier (RFC 9180 section 7.3).
    pub(crate) fn id(self) -> u16 {
        match self {
            Self::Aes256Gcm => 0x0002,
            Self::Aes128Gcm => 0x0001,
        }
    }

    /// The number of bytes of a key. A nonce in front of an answer has as many (RFC 9458 section 4.4:
    /// the longer one of key and nonce).
    pub fn key_bytes(self) -> usize {
        match self {
            Self::Aes256Gcm => 32,
            Self::Aes128Gcm => 16,
        }
    }
}
