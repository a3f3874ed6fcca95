//! What report data has to be, so that evidence belongs to one key or to one TLS session.

use alloc::vec::Vec;

use sha2::{Digest, Sha256, Sha384, Sha512};

use crate::report_data::ReportData;

/// Begins every session binder, so that no other protocol's report data can be mistaken for one.
const SESSION_DOMAIN: &[u8] = b"confide attestation v1\0";

/// Begins the input whose hash is a GPU's nonce.
const GPU_DOMAIN: &[u8] = b"confide gpu nonce v1\0";

/// Begins the input whose hash is the second half of report data with exported authenticators.
const AUTHENTICATOR_DOMAIN: &[u8] = b"confide attestation v3\0";

/// Label of the TLS exporter (RFC 8446 section 7.5), as draft-fossati-seat-expat-03 has it.
pub const EXPORTER_LABEL: &[u8] = b"Attestation";

/// Label of the TLS exporter whose output gives the binders of fresh evidence in an open session.
pub const RENEWAL_LABEL: &[u8] = b"Attestation renewal";

/// Begins the input whose hash takes the exporter's place in the binder of fresh evidence.
const RENEWAL_DOMAIN: &[u8] = b"confide renewal v1\0";

/// Length in bytes of the TLS exporter's output for a binder.
pub const EXPORTER_BYTES: usize = 32;

/// Length in bytes of the exporter context, which the verifier chooses at random.
pub const CONTEXT_BYTES: usize = 32;

/// The end of the TLS session that attests. It is in the binder because the exporter is the same at both ends:
/// without it, evidence could be sent back to the end that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The TLS server.
    Server,
    /// The TLS client.
    Client,
}

impl Role {
    /// The byte that stands for this role in a binder.
    pub fn byte(self) -> u8 {
        match self {
            Role::Server => 1,
            Role::Client => 2,
        }
    }
}

/// The hash of a session's cipher suite, which exported authenticators use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuiteHash {
    /// SHA-256, 32 bytes.
    Sha256,
    /// SHA-384, 48 bytes.
    Sha384,
}

impl SuiteHash {
    /// The length of the hash in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
        }
    }
}

/// Key binding (`TlsSpki`): SHA-256 over the claims, which name the key, then 32 zero bytes.
pub fn key_report_data(claims: &[u8]) -> ReportData {
    ReportData::from_digest(Sha256::digest(claims).into())
}

/// Session binding (`TlsExporter`): SHA-512 over domain, role of the attester, hash of the
/// attester's SPKI, exporter output and SHA-256 of the claims.
///
/// Every part has a fixed length, so the concatenation can be read in one way only.
pub fn session_report_data(
    role: Role,
    spki_hash: &[u8; 32],
    exporter: &[u8; EXPORTER_BYTES],
    claims: &[u8],
) -> ReportData {
    let digest = Sha512::new()
        .chain_update(SESSION_DOMAIN)
        .chain_update([role.byte()])
        .chain_update(spki_hash)
        .chain_update(exporter)
        .chain_update(Sha256::digest(claims))
        .finalize();
    ReportData(digest.into())
}

/// The binder of draft-fossati-seat-expat-03: the suite's hash over the DER SubjectPublicKeyInfo of
/// the attester's key and the exporter's output.
pub fn authenticator_binder(
    hash: SuiteHash,
    spki: &[u8],
    exporter: &[u8; EXPORTER_BYTES],
) -> Vec<u8> {
    match hash {
        SuiteHash::Sha256 => {
            Sha256::new().chain_update(spki).chain_update(exporter).finalize().to_vec()
        }
        SuiteHash::Sha384 => {
            Sha384::new().chain_update(spki).chain_update(exporter).finalize().to_vec()
        }
    }
}

/// Session binding with exported authenticators: the first 32 bytes of [`authenticator_binder`], then
/// SHA-256 over domain, role of the attester, SHA-256 of its SPKI and SHA-256 of the claims.
///
/// The draft leaves open where binder and key hash stand in 64 bytes of report data; this is the
/// profile of `confide-session/3`.
pub fn authenticator_report_data(
    role: Role,
    hash: SuiteHash,
    spki: &[u8],
    exporter: &[u8; EXPORTER_BYTES],
    claims: &[u8],
) -> ReportData {
    let binder = authenticator_binder(hash, spki, exporter);
    let identity = Sha256::new()
        .chain_update(AUTHENTICATOR_DOMAIN)
        .chain_update([role.byte()])
        .chain_update(Sha256::digest(spki))
        .chain_update(Sha256::digest(claims))
        .finalize();
    let mut data = [0; 64];
    let (first, second) = data.split_at_mut(32);
    first.copy_from_slice(&binder[..32]);
    second.copy_from_slice(&identity);
    ReportData(data)
}

/// Returns the value that replaces the exporter's in the binder and nonce of fresh evidence in an open
/// session: SHA-256 over domain, the output of the exporter with [`RENEWAL_LABEL`], and the context.
///
/// The ends keep `secret` instead of the session's own secrets. It is as secret and as fresh as the
/// session, and the context, which the verifier chooses at random, makes each output fresh.
pub fn renewed_exporter(
    secret: &[u8; EXPORTER_BYTES],
    context: &[u8; CONTEXT_BYTES],
) -> [u8; EXPORTER_BYTES] {
    let parts = Sha256::new().chain_update(RENEWAL_DOMAIN).chain_update(secret);
    parts.chain_update(context).finalize().into()
}

/// The nonce that a GPU signs under key binding: SHA-256 over domain, the byte 1, role of the
/// attester and hash of its SPKI.
///
/// It cannot cover the claims, for these hold the hash of the GPU's evidence.
pub fn key_gpu_nonce(role: Role, spki_hash: &[u8; 32]) -> [u8; 32] {
    let parts = Sha256::new().chain_update(GPU_DOMAIN).chain_update([1, role.byte()]);
    parts.chain_update(spki_hash).finalize().into()
}

/// The nonce that a GPU signs under session binding: SHA-256 over domain, the byte 2, role of the
/// attester, hash of its SPKI and exporter output. Fresh, because the exporter's context is.
pub fn session_gpu_nonce(
    role: Role,
    spki_hash: &[u8; 32],
    exporter: &[u8; EXPORTER_BYTES],
) -> [u8; 32] {
    let parts = Sha256::new().chain_update(GPU_DOMAIN).chain_update([2, role.byte()]);
    parts.chain_update(spki_hash).chain_update(exporter).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_binder_is_a_digest_and_32_zero_bytes() {
        let bound = key_report_data(b"claims");
        assert_eq!(bound.0[32..], [0; 32]);
        assert_ne!(bound.0[..32], [0; 32]);
    }

    #[test]
    fn every_input_changes_a_session_binder() {
        let base = session_report_data(Role::Server, &[1; 32], &[2; 32], b"claims");
        let others = [
            session_report_data(Role::Client, &[1; 32], &[2; 32], b"claims"),
            session_report_data(Role::Server, &[2; 32], &[2; 32], b"claims"),
            session_report_data(Role::Server, &[1; 32], &[1; 32], b"claims"),
            session_report_data(Role::Server, &[1; 32], &[2; 32], b"claim"),
            key_report_data(b"claims"),
        ];
        for other in others {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn every_input_changes_report_data_with_authenticators() {
        let data = |role, hash, spki: &[u8], exporter, claims: &[u8]| {
            authenticator_report_data(role, hash, spki, exporter, claims)
        };
        let (server, sha256) = (Role::Server, SuiteHash::Sha256);
        let base = data(server, sha256, b"key", &[2; 32], b"claims");
        let others = [
            data(Role::Client, sha256, b"key", &[2; 32], b"claims"),
            data(server, SuiteHash::Sha384, b"key", &[2; 32], b"claims"),
            data(server, sha256, b"kez", &[2; 32], b"claims"),
            data(server, sha256, b"key", &[1; 32], b"claims"),
            data(server, sha256, b"key", &[2; 32], b"claim"),
            session_report_data(server, &Sha256::digest(b"key").into(), &[2; 32], b"claims"),
        ];
        for other in others {
            assert_ne!(base, other);
        }
        let binder = authenticator_binder(sha256, b"key", &[2; 32]);
        assert_eq!(base.0[..32], binder, "with SHA-256 the draft's binder is the first half");
    }

    #[test]
    fn every_input_changes_a_gpu_nonce() {
        let base = session_gpu_nonce(Role::Server, &[1; 32], &[2; 32]);
        let others = [
            session_gpu_nonce(Role::Client, &[1; 32], &[2; 32]),
            session_gpu_nonce(Role::Server, &[2; 32], &[2; 32]),
            session_gpu_nonce(Role::Server, &[1; 32], &[1; 32]),
            key_gpu_nonce(Role::Server, &[1; 32]),
            key_gpu_nonce(Role::Client, &[1; 32]),
        ];
        for (at, other) in others.iter().enumerate() {
            assert_ne!(base, *other);
            assert!(!others[at + 1..].contains(other));
        }
    }
}
