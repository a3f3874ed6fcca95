//! The vectors of `vectors/channel/authenticator.json`, which another program wrote from
//! `docs/channel-3.md`, through all the checks of an appraising end.

use std::{fs, path::Path, sync::Arc};

use aws_lc_rs::{
    digest::{SHA384, digest},
    encoding::{AsDer, PublicKeyX509Der},
    signature::{Ed25519KeyPair, KeyPair},
};
use confide_evidence::{
    Appraise, PresentedEvidence,
    authenticator::{
        AuthenticatorAnswer, AuthenticatorError, AuthenticatorRequest, encode_certificate,
    },
    binder::{Role, SuiteHash, authenticator_binder},
    session_message_3::AuthenticatedEvidence,
};
use rustls::{
    crypto::{WebPkiSupportedAlgorithms, aws_lc_rs::sign::any_supported_type},
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
    sign::CertifiedKey,
};
use serde_json::Value;
use zeroize::Zeroizing;

use crate::{
    authenticator::{AuthenticatorKeys, AuthenticatorSigner},
    error::{ChannelError, ErrorOrigin},
    exchange_message::{EvidenceDemand, ShownEvidence},
    handshake::crypto_provider,
    options::SessionVersion,
    session::SessionPeer,
    session_terms::SessionTerms,
};

/// Accepts a quote that is the word `quote` and the expected report data.
pub(crate) struct Appraiser;

#[derive(Debug, thiserror::Error)]
#[error("not the expected report data")]
pub(crate) struct Rejected;

impl Appraise for Appraiser {
    type Appraised = Vec<u8>;
    type Rejection = Rejected;

    fn appraise(&self, presented: &PresentedEvidence<'_>) -> Result<Vec<u8>, Rejected> {
        match presented.quote.strip_prefix(b"quote") {
            Some(signed) if signed == presented.expected_report_data.0 => Ok(signed.to_vec()),
            _ => Err(Rejected),
        }
    }
}

#[test]
fn authenticators_are_accepted_and_refused_as_the_vectors_say() {
    let cases = cases();
    assert!(cases.len() > 40);
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let (attester, asker) = match case["sender"].as_str() {
            Some("server") => (Role::Server, Role::Client),
            _ => (Role::Client, Role::Server),
        };
        let request_bytes = bytes(&case["request"]);
        let got = AuthenticatorRequest::decode(asker, &request_bytes)
            .map_err(ChannelError::from)
            .and_then(|request| {
                let demand = EvidenceDemand::Authenticator { request, bytes: request_bytes };
                let (collateral, gpu) = (optional(&case["collateral"]), optional(&case["gpu"]));
                let shown = ShownEvidence::Authenticated(AuthenticatedEvidence {
                    authenticator: &bytes(&case["authenticator"]),
                    collateral: collateral.as_deref(),
                    gpu: gpu.as_deref(),
                });
                let exported = bytes(&case["exported"]).try_into().unwrap();
                peer(&case, attester).appraise(&demand, &exported, shown, &Appraiser)
            });
        match case["error"].as_str() {
            Some(wanted) => assert_eq!(error_name(&got.unwrap_err()), wanted, "{name}"),
            None => {
                let (signed, sessions) = got.unwrap_or_else(|error| panic!("{name}: {error:?}"));
                let shared = sessions == 2;
                assert!(shared || signed == bytes(&case["report_data"]), "{name}");
                let exported = bytes(&case["exported"]).try_into().unwrap();
                let binder = authenticator_binder(hash(&case), &bytes(&case["spki"]), &exported);
                assert_eq!(binder, bytes(&case["binder"]), "{name}");
            }
        }
    }
}

#[test]
fn the_certificate_message_is_written_as_the_vectors_have_it() {
    for case in cases().iter().filter(|case| case["error"].is_null()) {
        let authenticator = bytes(&case["authenticator"]);
        let Ok(request) = AuthenticatorRequest::decode(Role::Client, &bytes(&case["request"]))
        else {
            continue;
        };
        let Ok(AuthenticatorAnswer::Authenticator(read)) =
            AuthenticatorAnswer::decode(&authenticator)
        else {
            panic!("{}", case["name"]);
        };
        let chain: Vec<&[u8]> = read.entries.iter().map(|entry| entry.certificate).collect();
        let written = encode_certificate(&request.context, &chain, &bytes(&case["cmw"])).unwrap();
        assert_eq!(written, read.certificate, "{}", case["name"]);
        if request.schemes.len() == 3 {
            assert_eq!(request.encode(), bytes(&case["request"]));
        }
    }
}

#[test]
fn keys_of_all_three_algorithms_make_authenticators_that_are_accepted() {
    for algorithm in
        [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519]
    {
        let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
        let certified = certify(&key);
        let spki = rcgen::PublicKeyData::subject_public_key_info(&key);
        for hash in [SuiteHash::Sha256, SuiteHash::Sha384] {
            let keys = keys(hash, 1);
            let request = AuthenticatorRequest::new(Role::Client, [7; 32]);
            let bytes = request.encode();
            let signer = AuthenticatorSigner::choose(&request, &certified).unwrap();
            let made = keys.make(&request, &bytes, &signer, b"cmw").unwrap();
            let verify = |keys: &AuthenticatorKeys| {
                keys.verify(&request, &bytes, &made, &spki, &algorithms()).map(<[u8]>::to_vec)
            };
            assert_eq!(verify(&keys), Ok(b"cmw".to_vec()));
            let other = verify(&self::keys(hash, 2));
            assert_eq!(other, Err(AuthenticatorError::Mac));
        }
    }
}

#[test]
fn a_key_whose_schemes_the_peer_does_not_verify_makes_no_authenticator() {
    let key = certify(&rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap());
    // RSA-PSS is known to TLS, but not to this profile.
    for schemes in [vec![0x0807], vec![0x0804]] {
        let request =
            AuthenticatorRequest { schemes, ..AuthenticatorRequest::new(Role::Client, [7; 32]) };
        let error = AuthenticatorSigner::choose(&request, &key).err().unwrap();
        assert_eq!(error, AuthenticatorError::NoCommonScheme);
        assert_eq!(ChannelError::from(error).origin(), ErrorOrigin::Peer);
    }
}

#[test]
fn ed25519_is_named_by_its_spki() {
    // RFC 8410 section 4: the algorithm has no parameters.
    let pair = Ed25519KeyPair::generate().unwrap();
    let spki: PublicKeyX509Der<'_> = pair.public_key().as_der().unwrap();
    assert_eq!(spki.as_ref()[..12], [48, 42, 48, 5, 6, 3, 43, 101, 112, 3, 33, 0]);
}

fn peer(case: &Value, attester: Role) -> SessionPeer {
    let keys = AuthenticatorKeys {
        hash: hash(case),
        context: Zeroizing::new(bytes(&case["handshake_context"])),
        finished: Zeroizing::new(bytes(&case["finished_key"])),
    };
    let terms = SessionTerms { attester, version: SessionVersion::V3, keys: Some(keys) };
    SessionPeer::new(terms, bytes(&case["spki"]), None, algorithms())
}

fn keys(hash: SuiteHash, number: u8) -> AuthenticatorKeys {
    let value = |label: u8| {
        let value = digest(&SHA384, &[number, label]).as_ref()[..hash.bytes()].to_vec();
        Zeroizing::new(value)
    };
    AuthenticatorKeys { hash, context: value(1), finished: value(2) }
}

fn algorithms() -> WebPkiSupportedAlgorithms {
    crypto_provider().signature_verification_algorithms
}

fn certify(key: &rcgen::KeyPair) -> CertifiedKey {
    let params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    let certificate: CertificateDer<'static> = params.self_signed(key).unwrap().der().clone();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    CertifiedKey::new(vec![certificate], Arc::clone(&any_supported_type(&key).unwrap()))
}

fn hash(case: &Value) -> SuiteHash {
    match case["hash"].as_str() {
        Some("sha384") => SuiteHash::Sha384,
        _ => SuiteHash::Sha256,
    }
}

/// The innermost variant that says what was wrong, in snake case.
fn error_name(error: &ChannelError) -> String {
    let variant = match error {
        ChannelError::Authenticator(AuthenticatorError::Cmw(error)) => format!("{error:?}"),
        ChannelError::Authenticator(AuthenticatorError::Wrapper(error)) => format!("{error:?}"),
        ChannelError::Authenticator(error) => format!("{error:?}"),
        error => format!("{error:?}"),
    };
    let variant = variant.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    let mut snake = String::new();
    for c in variant.chars() {
        if c.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
    }
    snake
}

fn cases() -> Vec<Value> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/channel"));
    let text = fs::read_to_string(folder.join("authenticator.json")).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    file["cases"].as_array().unwrap().clone()
}

fn bytes(value: &Value) -> Vec<u8> {
    hex::decode(value.as_str().unwrap()).unwrap()
}

fn optional(value: &Value) -> Option<Vec<u8>> {
    value.as_str().map(|text| hex::decode(text).unwrap())
}
