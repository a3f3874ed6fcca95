//! Soundness, zero knowledge and what is refused, beyond the vectors.

use serde_json::Value;

use super::*;
use crate::{
    signature_file::SIGNATURE_PROOF_LENGTH_MAX,
    vector_tests::{bytes, read_all},
};

fn vector(name: &str) -> Value {
    read_all().into_iter().find(|(found, _)| found == name).unwrap().1
}

/// The key, message, context, signature and proof of a vector that holds.
struct Case {
    key: PublicKey,
    message: Vec<u8>,
    context: Vec<u8>,
    signature: Vec<u8>,
    proof: Vec<u8>,
}

fn case(name: &str) -> Case {
    let vector = vector(name);
    Case {
        key: PublicKey::from_spki(&bytes(&vector["key"])).unwrap(),
        message: bytes(&vector["message"]),
        context: bytes(&vector["context"]),
        signature: bytes(&vector["made_with"]["signature"]),
        proof: bytes(&vector["proof"]),
    }
}

impl Case {
    fn judge(&self, proof: &[u8]) -> Result<(), SigmaError> {
        SignatureProof::from_bytes(proof)?.verify(&self.key, &self.message, &self.context)
    }
}

#[test]
fn every_changed_bit_of_an_ecdsa_proof_is_refused() {
    let case = case("ecdsa-p256-sha256");
    for bit in 0..8 * case.proof.len() {
        let mut changed = case.proof.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(case.judge(&changed).is_err(), "bit {bit}");
    }
}

#[test]
fn a_changed_bit_in_every_byte_of_an_rsa_proof_is_refused() {
    let case = case("rsa-2048-pkcs1-sha256");
    for index in 0..case.proof.len() {
        let mut changed = case.proof.clone();
        changed[index] ^= 1 << (index % 8);
        assert!(case.judge(&changed).is_err(), "byte {index}");
    }
}

#[test]
fn proofs_of_every_length_but_their_own_are_refused() {
    for name in ["rsa-2048-pss-sha256", "ecdsa-p384-sha384"] {
        let case = case(name);
        for length in 0..case.proof.len() {
            assert!(case.judge(&case.proof[..length]).is_err(), "{name}: {length} bytes");
        }
        assert!(case.judge(&[&case.proof[..], &[0]].concat()).is_err());
        let endless = vec![0; SIGNATURE_PROOF_LENGTH_MAX + 1];
        assert!(matches!(case.judge(&endless), Err(SigmaError::TooLong { .. })));
    }
}

#[test]
fn two_proofs_of_one_signature_differ_and_both_hold() {
    for name in ["rsa-2048-pkcs1-sha256", "ecdsa-p256-sha256"] {
        let case = case(name);
        let digest = HashFunction::Sha256.digest(&case.message);
        let make = || match name.starts_with("rsa") {
            true => SignatureProof::prove_pkcs1,
            false => SignatureProof::prove_ecdsa,
        }(&case.key, HashFunction::Sha256, &digest, &case.signature, &case.context);
        let (one, other) = (make().unwrap(), make().unwrap());
        assert_ne!(one.body, other.body);
        assert_eq!(one.verify(&case.key, &case.message, &case.context), Ok(()));
        assert_eq!(other.verify(&case.key, &case.message, &case.context), Ok(()));
    }
}

#[test]
fn what_is_no_signature_is_not_proved() {
    let case = case("rsa-2048-pkcs1-sha256");
    let digest = HashFunction::Sha256.digest(&case.message);
    let prove = |digest: &[u8], signature: &[u8]| {
        SignatureProof::prove_pkcs1(&case.key, HashFunction::Sha256, digest, signature, b"")
            .map(|_| ())
    };
    let invalid = Err(SigmaError::SignatureInvalid);
    assert_eq!(prove(&digest, &case.signature), Ok(()));
    assert_eq!(prove(&HashFunction::Sha256.digest(b"another"), &case.signature), invalid);
    for signature in [vec![], vec![0; 256], vec![0xff; 256], case.signature[1..].to_vec()] {
        assert_eq!(prove(&digest, &signature), invalid);
    }
    let pss =
        SignatureProof::prove_pss(&case.key, HashFunction::Sha256, &digest, &case.signature, b"");
    assert_eq!(pss.map(|_| ()), invalid, "a PKCS#1 v1.5 signature is no PSS signature");
}

#[test]
fn an_ecdsa_signature_of_another_message_or_shape_is_not_proved() {
    let case = case("ecdsa-p256-sha256");
    let prove = |message: &[u8], signature: &[u8]| {
        let digest = HashFunction::Sha256.digest(message);
        SignatureProof::prove_ecdsa(&case.key, HashFunction::Sha256, &digest, signature, b"")
            .map(|_| ())
    };
    assert_eq!(prove(&case.message, &case.signature), Ok(()));
    let invalid = Err(SigmaError::SignatureInvalid);
    assert_eq!(prove(b"another", &case.signature), invalid);
    for signature in [vec![], vec![0; 64], vec![0xff; 64], [&case.signature[..], &[0]].concat()] {
        assert_eq!(prove(&case.message, &signature), invalid);
    }
}

#[test]
fn schemes_and_keys_that_do_not_fit_are_refused_by_name() {
    let (rsa, ec) = (case("rsa-2048-pkcs1-sha256"), case("ecdsa-p256-sha256"));
    let digest = HashFunction::Sha256.digest(&rsa.message);
    let with_ec =
        SignatureProof::prove_pkcs1(&ec.key, HashFunction::Sha256, &digest, &rsa.signature, b"");
    assert!(matches!(with_ec, Err(SigmaError::Unsupported { .. })));
    let with_rsa =
        SignatureProof::prove_ecdsa(&rsa.key, HashFunction::Sha256, &digest, &ec.signature, b"");
    assert!(matches!(with_rsa, Err(SigmaError::Unsupported { .. })));
    let pss = SignatureProof::prove_pss(&ec.key, HashFunction::Sha256, &digest, &ec.signature, b"");
    assert!(matches!(pss, Err(SigmaError::Unsupported { .. })));
}

#[test]
fn keys_outside_what_is_proved_are_refused_by_name() {
    let rsa = |bits: usize, last: u8, exponent: &[u8]| {
        let mut modulus = vec![0xa5; bits.div_ceil(8)];
        modulus[0] = 0xff >> (8 * modulus.len() - bits);
        *modulus.last_mut().unwrap() = last;
        PublicKey::from_rsa_numbers(&modulus, exponent).map(|_| ())
    };
    assert_eq!(rsa(2048, 1, &[1, 0, 1]), Ok(()));
    assert_eq!(rsa(4096, 1, &[0, 1, 0, 1]), Ok(()));
    assert_eq!(rsa(2048, 1, &[3]), Err(SigmaError::Exponent { got: "03".to_string() }));
    assert_eq!(rsa(2048, 1, &[]), Err(SigmaError::Exponent { got: String::new() }));
    assert_eq!(rsa(2048, 2, &[1, 0, 1]), Err(SigmaError::ModulusEven));
    for bits in [1024, 2047, 4097, 8192] {
        let got = rsa(bits, 1, &[1, 0, 1]);
        assert_eq!(got, Err(SigmaError::ModulusLength { got: bits }));
    }
}

#[test]
fn a_salt_is_part_of_the_statement() {
    let case = case("rsa-2048-pss-sha256");
    let proof = SignatureProof::from_bytes(&case.proof).unwrap();
    let mut other = proof.clone();
    other.scheme = SignatureScheme::Pss { salt: vec![0; 32] };
    assert_eq!(case.judge(&other.to_bytes()), Err(SigmaError::Refused));
    other.scheme = SignatureScheme::Pkcs1;
    assert_eq!(case.judge(&other.to_bytes()), Err(SigmaError::Refused));
}

#[test]
fn debug_output_shows_no_proof_and_no_secret() {
    let case = case("ecdsa-p256-sha256");
    let proof = SignatureProof::from_bytes(&case.proof).unwrap();
    assert_eq!(format!("{proof:?}"), "SignatureProof(ECDSA with SHA-256, 81 bytes)");
    assert!(format!("{:?}", case.key).starts_with("PublicKey(P-256 "));
}
