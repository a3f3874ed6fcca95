//! The TLS parameters of a session, as numbers of IANA's registries, each from a closed list.
use confide_transcript::{FormatError, Reader, Writer};

/// The version, key exchange and cipher suite of one TLS session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsSession {
    version: TlsVersion,
    group: TlsGroup,
    suite: TlsSuite,
}

impl TlsSession {
    /// Makes a session from the negotiated numbers (version of the record layer, "TLS Supported
    /// Groups", "TLS Cipher Suites"). Numbers outside the list, and groups or suites that the
    /// version does not have, are refused.
    ///
    /// # Errors
    ///
    /// [`FormatError::Value`] for a version, group or suite that is not on its list, or that the
    /// version does not have.
    pub fn from_numbers(version: u16, group: u16, suite: u16) -> Result<Self, FormatError> {
        let unknown = |subject, got: u16| FormatError::Value { subject, got: got.into() };
        let version = [TlsVersion::V12, TlsVersion::V13]
            .into_iter()
            .find(|known| *known as u16 == version)
            .ok_or(unknown("TLS version", version))?;
        let group = GROUPS
            .into_iter()
            .find(|known| *known as u16 == group)
            .filter(|known| version == TlsVersion::V13 || !known.is_post_quantum())
            .ok_or(unknown("TLS key exchange", group))?;
        let suite = SUITES
            .into_iter()
            .find(|known| *known as u16 == suite && known.version() == version)
            .ok_or(unknown("TLS cipher suite", suite))?;
        Ok(Self { version, group, suite })
    }

    /// The version.
    pub fn version(&self) -> TlsVersion {
        self.version
    }

    /// The group of the key exchange.
    pub fn group(&self) -> TlsGroup {
        self.group
    }

    /// The cipher suite.
    pub fn suite(&self) -> TlsSuite {
        self.suite
    }

    pub(crate) fn write(&self, writer: &mut Writer) {
        writer.u16(self.version as u16).u16(self.group as u16).u16(self.suite as u16);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        let version = reader.u16("TLS version")?;
        let group = reader.u16("TLS key exchange")?;
        Self::from_numbers(version, group, reader.u16("TLS cipher suite")?)
    }
}

/// The TLS versions that a notary supports. The numbers are those of the record layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2.
    V12 = 0x0303,
    /// TLS 1.3.
    V13 = 0x0304,
}

impl TlsVersion {
    /// `TLS 1.2` or `TLS 1.3`.
    pub fn as_str(self) -> &'static str {
        match self {
            TlsVersion::V12 => "TLS 1.2",
            TlsVersion::V13 => "TLS 1.3",
        }
    }
}

/// The groups of the key exchange. The numbers are those of the registry and part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsGroup {
    /// secp256r1
    P256 = 0x0017,
    /// secp384r1
    P384 = 0x0018,
    /// x25519
    X25519 = 0x001d,
    /// SecP256r1MLKEM768
    P256MlKem768 = 0x11eb,
    /// X25519MLKEM768
    X25519MlKem768 = 0x11ec,
}

const GROUPS: [TlsGroup; 5] = [
    TlsGroup::P256,
    TlsGroup::P384,
    TlsGroup::X25519,
    TlsGroup::P256MlKem768,
    TlsGroup::X25519MlKem768,
];

impl TlsGroup {
    /// Whether the content stays secret from an adversary who records it now and has a quantum
    /// computer later. This does not cover the signatures that authenticate the host.
    pub fn is_post_quantum(self) -> bool {
        matches!(self, TlsGroup::P256MlKem768 | TlsGroup::X25519MlKem768)
    }

    /// The name of the group in the registry.
    pub fn as_str(self) -> &'static str {
        match self {
            TlsGroup::P256 => "secp256r1",
            TlsGroup::P384 => "secp384r1",
            TlsGroup::X25519 => "x25519",
            TlsGroup::P256MlKem768 => "SecP256r1MLKEM768",
            TlsGroup::X25519MlKem768 => "X25519MLKEM768",
        }
    }
}

/// Cipher suites, each with an authenticated cipher and an ephemeral key exchange. The numbers are
/// those of the registry and part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the registry's names say what they are")]
pub enum TlsSuite {
    Aes128GcmSha256 = 0x1301,
    Aes256GcmSha384 = 0x1302,
    ChaCha20Poly1305Sha256 = 0x1303,
    EcdheEcdsaAes128GcmSha256 = 0xc02b,
    EcdheEcdsaAes256GcmSha384 = 0xc02c,
    EcdheRsaAes128GcmSha256 = 0xc02f,
    EcdheRsaAes256GcmSha384 = 0xc030,
    EcdheRsaChaCha20Poly1305Sha256 = 0xcca8,
    EcdheEcdsaChaCha20Poly1305Sha256 = 0xcca9,
}

const SUITES: [TlsSuite; 9] = [
    TlsSuite::Aes128GcmSha256,
    TlsSuite::Aes256GcmSha384,
    TlsSuite::ChaCha20Poly1305Sha256,
    TlsSuite::EcdheEcdsaAes128GcmSha256,
    TlsSuite::EcdheEcdsaAes256GcmSha384,
    TlsSuite::EcdheRsaAes128GcmSha256,
    TlsSuite::EcdheRsaAes256GcmSha384,
    TlsSuite::EcdheRsaChaCha20Poly1305Sha256,
    TlsSuite::EcdheEcdsaChaCha20Poly1305Sha256,
];

impl TlsSuite {
    /// The name of the suite in the registry.
    pub fn as_str(self) -> &'static str {
        match self {
            TlsSuite::Aes128GcmSha256 => "TLS_AES_128_GCM_SHA256",
            TlsSuite::Aes256GcmSha384 => "TLS_AES_256_GCM_SHA384",
            TlsSuite::ChaCha20Poly1305Sha256 => "TLS_CHACHA20_POLY1305_SHA256",
            TlsSuite::EcdheEcdsaAes128GcmSha256 => "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
            TlsSuite::EcdheEcdsaAes256GcmSha384 => "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
            TlsSuite::EcdheRsaAes128GcmSha256 => "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            TlsSuite::EcdheRsaAes256GcmSha384 => "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
            TlsSuite::EcdheRsaChaCha20Poly1305Sha256 => {
                "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"
            }
            TlsSuite::EcdheEcdsaChaCha20Poly1305Sha256 => {
                "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"
            }
        }
    }

    /// The version of the suite: suites of TLS 1.3 have a number range of their own.
    fn version(self) -> TlsVersion {
        match self as u16 >> 8 {
            0x13 => TlsVersion::V13,
            _ => TlsVersion::V12,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_that_is_read_is_written_again() {
        let mut read = 0;
        for version in [0x0303, 0x0304] {
            for group in 0..0x1300 {
                for suite in SUITES {
                    let Ok(session) = TlsSession::from_numbers(version, group, suite as u16) else {
                        continue;
                    };
                    let mut writer = Writer::default();
                    session.write(&mut writer);
                    let bytes = writer.finish();
                    let wanted = [version, group, suite as u16].map(u16::to_be_bytes).concat();
                    assert_eq!(bytes, wanted);
                    let mut reader = Reader::new(&bytes, b"", "").unwrap();
                    assert_eq!(TlsSession::read(&mut reader), Ok(session));
                    read += 1;
                }
            }
        }
        // Five groups and three suites in version 1.3, three and six in 1.2.
        assert_eq!(read, 5 * 3 + 3 * 6);
    }

    #[test]
    fn numbers_beyond_the_list_or_of_another_version_are_refused() {
        let refused = |version, group, suite| match TlsSession::from_numbers(version, group, suite)
            .unwrap_err()
        {
            FormatError::Value { subject, got } => (subject, got),
            other => panic!("{other}"),
        };
        assert_eq!(refused(0x0302, 0x1d, 0x1301), ("TLS version", 0x0302));
        assert_eq!(refused(0x0304, 0x1e, 0x1301), ("TLS key exchange", 0x1e));
        assert_eq!(refused(0x0303, 0x11ec, 0xc02b), ("TLS key exchange", 0x11ec));
        assert_eq!(refused(0x0304, 0x1d, 0x1304), ("TLS cipher suite", 0x1304));
        assert_eq!(refused(0x0303, 0x1d, 0x1301), ("TLS cipher suite", 0x1301));
        assert_eq!(refused(0x0304, 0x1d, 0xc02b), ("TLS cipher suite", 0xc02b));
        // Key exchange by RSA, and a cipher without authentication of its own.
        assert_eq!(refused(0x0303, 0x17, 0x009c), ("TLS cipher suite", 0x009c));
        assert_eq!(refused(0x0303, 0x17, 0xc013), ("TLS cipher suite", 0xc013));
    }

    #[test]
    fn only_a_hybrid_group_is_called_post_quantum() {
        let named: Vec<&str> =
            GROUPS.iter().filter(|it| it.is_post_quantum()).map(|it| it.as_str()).collect();
        assert_eq!(named, ["SecP256r1MLKEM768", "X25519MLKEM768"]);
    }
}
