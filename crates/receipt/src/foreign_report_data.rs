//! The report data of dstack's and of Tinfoil's reports, for gateways that answer their verifiers.
//!
//! Neither has a text of its own that tells it apart from the report data of another protocol, and
//! the asker chooses a part of each. What keeps the protocols apart is this:
//!
//! - The hashed bytes have 64 (dstack) or 96 (Tinfoil) bytes, and begin with 32 that the gateway
//!   made: a random Ed25519 public key, or the digest of a random TLS key. The asker chooses the
//!   last 32 bytes of Tinfoil's, and nothing of dstack's.
//! - Key binding hashes claims and `aci/1` a statement, each followed by 32 zero bytes, which a
//!   dstack nonce may be as well. Claims of this program and the statement are longer than 96 bytes.
//!   Other programs have shorter claims, and Gramine hashed the bare `SubjectPublicKeyInfo`. All of
//!   them begin with fixed bytes and a name where random bytes stand here. So one quote fits two of
//!   them only if SHA-256 collides, or if a random key spells that name.
//! - Session binding and its batches are SHA-512 over a domain of their own. An asker who knows such
//!   a value in advance can choose its second half as the nonce, and cannot choose the first.
//! - With exported authenticators, the second half is SHA-256 over a domain, the key and the
//!   claims: an asker can choose it, with a key and claims of their own, and this half then
//!   separates nothing. The first half is the hash of a DER `SubjectPublicKeyInfo` and of 32
//!   exporter bytes. As the 64 bytes of dstack's it would have to be a `SubjectPublicKeyInfo` of 32
//!   bytes, which no kind of key has. The form without the TLS key has the Ed25519 key itself in
//!   the first half, which would have to be a digest of chosen bytes: a preimage.
//! - The other way round, the second half of a dstack report is the nonce of its verifier. Of ours
//!   it is zero or a digest, so no quote that exists fits a nonce that was drawn afterwards. A
//!   Tinfoil report hashes the nonce of its verifier after two keys, in 96 bytes that nothing else
//!   hashes; dstack's 64 bytes differ in length.
//!
//! One form is not kept apart, and this program must never give it: version 2 of Tinfoil's document
//! has the bare HPKE key in the second half, where a dstack asker writes a nonce. A verifier that
//! takes version 2 of this program, and does not compare the TLS key, can be shown any HPKE key.

use confide_evidence::ReportData;
use sha2::{Digest, Sha256};

use crate::keyset::Nonce;

/// The report data of dstack's report: the signing address, hashed together with the SHA-256 of the
/// TLS key's `SubjectPublicKeyInfo` if the report names it, and then the verifier's nonce.
pub fn dstack_report_data(
    signing_address: &[u8; 32],
    spki_sha256: Option<&[u8; 32]>,
    nonce: &Nonce,
) -> ReportData {
    let first: [u8; 32] = match spki_sha256 {
        Some(spki) => {
            Sha256::new().chain_update(signing_address).chain_update(spki).finalize().into()
        }
        None => *signing_address,
    };
    let mut data = ReportData::from_digest(first);
    data.0[32..].copy_from_slice(nonce);
    data
}

/// The report data of Tinfoil's report without a GPU: the SHA-256 of the TLS key's SHA-256, the
/// X25519 key of encrypted bodies and the verifier's nonce, and then 32 zero bytes.
pub fn tinfoil_report_data(
    spki_sha256: &[u8; 32],
    hpke_key: &[u8; 32],
    nonce: &Nonce,
) -> ReportData {
    let keys = Sha256::new().chain_update(spki_sha256).chain_update(hpke_key);
    ReportData::from_digest(keys.chain_update(nonce).finalize().into())
}

#[cfg(test)]
mod tests {
    use confide_evidence::{
        binder::{Role, SuiteHash, authenticator_report_data, session_report_data},
        claims::Claims,
    };

    use super::*;
    use crate::{json::Json, keyset::Keyset};

    const ADDRESS: [u8; 32] = [1; 32];
    const SPKI: [u8; 32] = [2; 32];
    const HPKE: [u8; 32] = [3; 32];
    const ZERO: Nonce = [0; 32];

    #[test]
    fn each_input_has_its_place() {
        let both = [ADDRESS, SPKI].concat();
        let nonce = [9; 32];
        let data = dstack_report_data(&ADDRESS, Some(&SPKI), &nonce);
        assert_eq!(data.0[..32], Sha256::digest(&both)[..]);
        assert_eq!(data.0[32..], nonce);
        assert_eq!(dstack_report_data(&ADDRESS, None, &nonce).0[..], [ADDRESS, nonce].concat());
        let data = tinfoil_report_data(&SPKI, &HPKE, &nonce);
        assert_eq!(data.0[..32], Sha256::digest([SPKI, HPKE, nonce].concat())[..]);
        assert_eq!(data.0[32..], [0; 32]);
    }

    #[test]
    fn what_our_own_protocols_hash_is_longer_and_begins_otherwise() {
        // The shortest claims that a reader accepts.
        let claims = Claims {
            config_digest: [0; 32],
            gpu_evidence_hash: None,
            guarantee: "x".into(),
            nonce: None,
            not_after: 0,
            not_before: 0,
            pubkey_hash: [0; 32],
            weights: None,
        };
        assert!(Claims::decode(&claims.encode()).is_ok());
        assert!(claims.encode().len() > 96, "{}", claims.encode().len());
        // The statement of aci/1, whose digest its report data is.
        let keyset = Keyset::new("k", &ADDRESS, &SPKI, 0);
        let statement = Json::object([
            ("keyset_digest", Json::from(keyset.digest())),
            ("nonce", Json::Null),
            ("purpose", "aci.report_data.v1".into()),
        ])
        .to_canonical();
        assert_eq!(keyset.report_data(None).0[..32], Sha256::digest(&statement)[..]);
        assert!(statement.len() > 96 && statement.starts_with("{\"keyset_digest\":\"sha256:"));
    }

    /// The asker knows the report data of its own session and chooses what is chosen by an asker.
    #[test]
    fn no_nonce_makes_the_report_data_of_a_session() {
        let (spki, exporter, claims) = ([0x30; 91], [7; 32], b"claims");
        let spki_sha256 = Sha256::digest(spki).into();
        let session = session_report_data(Role::Server, &spki_sha256, &exporter, claims);
        let mut wanted = vec![session];
        for hash in [SuiteHash::Sha256, SuiteHash::Sha384] {
            wanted.push(authenticator_report_data(Role::Server, hash, &spki, &exporter, claims));
        }
        for wanted in wanted {
            let nonce: Nonce = wanted.0[32..].try_into().unwrap();
            for spki in [None, Some(&SPKI), Some(&spki_sha256)] {
                let data = dstack_report_data(&ADDRESS, spki, &nonce);
                assert_eq!(data.0[32..], wanted.0[32..]);
                assert_ne!(data, wanted);
            }
            assert_ne!(tinfoil_report_data(&spki_sha256, &HPKE, &nonce), wanted);
        }
        // A nonce of zeros gives the second half of key binding, of aci/1 and of Tinfoil's form.
        let zero = dstack_report_data(&ADDRESS, Some(&SPKI), &ZERO);
        assert_eq!(zero.0[32..], [0; 32]);
        assert_ne!(zero, tinfoil_report_data(&ADDRESS, &SPKI, &ZERO));
        assert_ne!(zero, Keyset::new("k", &ADDRESS, &SPKI, 0).report_data(Some(&ZERO)));
    }
}
