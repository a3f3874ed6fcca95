//! The guest's ECDSA, by the slow reference of the VM, next to that of aws-lc-rs.

mod host;

use aws_lc_rs::{
    rand::SystemRandom,
    signature::{
        ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair,
    },
};
use confide_verifier::{AwsLc, Crypto};
use host::CRYPTO;
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    name: String,
    key: String,
    message: String,
    signature: String,
    valid: bool,
}

#[test]
fn every_edge_of_the_curve_comes_out_as_it_should() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("ecdsa.json")).unwrap();
    for case in cases {
        let key: [u8; 65] = bytes(&case.key).try_into().unwrap();
        let signature: [u8; 64] = bytes(&case.signature).try_into().unwrap();
        let message = bytes(&case.message);
        for (crypto, who) in [(&CRYPTO as &dyn Crypto, "guest"), (&AwsLc, "aws-lc-rs")] {
            let got = crypto.verify_p256(&key, &message, &signature);
            assert_eq!(got, case.valid, "{who}: {}", case.name);
        }
    }
}

#[test]
fn random_signatures_pass_and_none_passes_with_a_bit_changed() {
    let random = SystemRandom::new();
    for round in 0..8 {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        let key: [u8; 65] = pair.public_key().as_ref().try_into().unwrap();
        let message = vec![round; usize::from(round) * 37];
        let signature: [u8; 64] =
            pair.sign(&random, &message).unwrap().as_ref().try_into().unwrap();
        assert!(CRYPTO.verify_p256(&key, &message, &signature));
        let (mut other, mut stranger) = (signature, key);
        other[usize::from(round) * 8] ^= 1;
        stranger[1 + usize::from(round) * 8] ^= 1;
        assert!(!CRYPTO.verify_p256(&key, &message, &other));
        assert!(!CRYPTO.verify_p256(&stranger, &message, &signature));
    }
}

#[test]
fn certificates_are_signed_in_one_spelling_only() {
    let (ours, theirs) = (CRYPTO.certificate_algorithm(), AwsLc.certificate_algorithm());
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap();
    let (key, message) = (pair.public_key().as_ref(), b"certificate");
    for _ in 0..4 {
        let signature = pair.sign(&SystemRandom::new(), message).unwrap();
        let signature = signature.as_ref();
        assert!(ours.verify_signature(key, message, signature).is_ok());
        assert_eq!((ours.signature_alg_id(), ours.public_key_alg_id()), {
            (theirs.signature_alg_id(), theirs.public_key_alg_id())
        });
        for at in 0..signature.len() {
            let mut other = signature.to_vec();
            other[at] ^= 0x80;
            let both = [ours, theirs].map(|it| it.verify_signature(key, message, &other).is_ok());
            assert_eq!(both, [false, false], "byte {at}");
        }
        for length in 0..signature.len() {
            assert!(ours.verify_signature(key, message, &signature[..length]).is_err());
        }
        let longer = [signature, &[0]].concat();
        assert!(ours.verify_signature(key, message, &longer).is_err());
    }
}

#[test]
fn what_is_not_in_the_guest_is_refused_by_name() {
    assert!(!CRYPTO.verify_p384(&[4; 97], b"", &[1; 96]));
    let [rsa, _] = CRYPTO.amd_certificate_algorithms();
    for (algorithm, name) in [(CRYPTO.p384_certificate_algorithm(), "P-384"), (rsa, "RSA")] {
        assert!(algorithm.verify_signature(&[], &[], &[]).is_err());
        assert_eq!(format!("{algorithm:?}"), format!("{name}: not in this guest"));
    }
}

#[test]
fn sha256_of_parts_is_that_of_the_whole() {
    let bytes: Vec<u8> = (0..300_u16).map(|at| at as u8).collect();
    for length in 0..bytes.len() {
        for cut in [0, length / 3, length / 2, length] {
            let parts = [&bytes[..cut], &bytes[cut..length]];
            assert_eq!(CRYPTO.sha256(&parts), AwsLc.sha256(&[&bytes[..length]]));
        }
    }
}

fn bytes(hexadecimal: &str) -> Vec<u8> {
    hex::decode(hexadecimal).unwrap()
}
