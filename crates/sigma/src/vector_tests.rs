//! The test vectors in vectors/sigma: each proof is made again, and judged as its vector says.
//!
//! `cargo test -p confide-sigma vectors_are_written -- --ignored` writes them, with keys and
//! signatures from the `openssl` program.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::{
    error::SigmaError,
    hash::HashFunction,
    key::PublicKey,
    linear::{LinearRelation, prove_relation_with, verify_relation},
    pedersen::{Blinding, Commitment},
    random::Entropy,
    range::{Range, prove_range_with, verify_range},
    signature::{SignatureProof, SignatureScheme},
};

mod write;

#[test]
fn every_vector_is_judged_as_it_says() {
    for (name, vector) in read_all() {
        let outcome = outcome(&judge(&vector));
        assert_eq!(json!(outcome), vector["outcome"], "{name}");
    }
}

#[test]
fn every_proof_is_made_again_from_its_witness_and_entropy() {
    let mut made = 0;
    for (name, vector) in read_all() {
        if vector["made_with"].is_object() {
            assert_eq!(json!(hex(&make(&vector).unwrap())), vector["proof"], "{name}");
            made += 1;
        }
    }
    assert!(made >= 9, "only {made} vectors say what they were made with");
}

#[test]
#[ignore = "writes vectors/sigma anew"]
fn vectors_are_written_anew() {
    write::all();
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../vectors/sigma")
}

pub(crate) fn read_all() -> Vec<(String, Value)> {
    let mut found: Vec<(String, Value)> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_string_lossy().to_string();
            (name, serde_json::from_slice(&fs::read(&path).unwrap()).unwrap())
        })
        .collect();
    found.sort_by(|one, other| one.0.cmp(&other.0));
    assert!(found.len() > 20, "vectors/sigma holds {} files", found.len());
    found
}

/// Checks the proof of a vector.
fn judge(vector: &Value) -> Result<(), SigmaError> {
    let (context, proof) = (bytes(&vector["context"]), bytes(&vector["proof"]));
    match vector["kind"].as_str().unwrap() {
        "signature" => {
            let key = PublicKey::from_spki(&bytes(&vector["key"]))?;
            let proof = SignatureProof::from_bytes(&proof)?;
            proof.verify(&key, &bytes(&vector["message"]), &context)
        }
        "relation" => verify_relation(&context, &relation(vector), &proof),
        "range" => {
            verify_range(&context, &range(vector), &commitment(&vector["commitment"]), &proof)
        }
        other => panic!("no kind of proof: {other}"),
    }
}

/// The proof that a vector's witness and entropy give.
fn make(vector: &Value) -> Result<Vec<u8>, SigmaError> {
    let (context, with) = (bytes(&vector["context"]), &vector["made_with"]);
    let entropy: Entropy = Zeroizing::new(bytes(&with["entropy"]).try_into().unwrap());
    match vector["kind"].as_str().unwrap() {
        "signature" => {
            let key = PublicKey::from_spki(&bytes(&vector["key"]))?;
            let stored = SignatureProof::from_bytes(&bytes(&vector["proof"]))?;
            let (scheme, hash) = (stored.scheme().clone(), stored.hash());
            let digest = hash.digest(&bytes(&vector["message"]));
            let signature = bytes(&with["signature"]);
            sign(&key, scheme, hash, &digest, &context, &entropy, &signature)
        }
        "relation" => {
            let blindings: Vec<Blinding> =
                with["blindings"].as_array().unwrap().iter().map(blinding).collect();
            let blindings: Vec<&Blinding> = blindings.iter().collect();
            prove_relation_with(&entropy, &context, &relation(vector), &blindings)
                .map(|proof| proof.to_vec())
        }
        "range" => {
            let value = number(&with["value"]);
            prove_range_with(
                &entropy,
                &context,
                &range(vector),
                value,
                &blinding(&with["blinding"]),
            )
        }
        other => panic!("no kind of proof: {other}"),
    }
}

fn sign(
    key: &PublicKey,
    scheme: SignatureScheme,
    hash: HashFunction,
    digest: &[u8],
    context: &[u8],
    entropy: &Entropy,
    signature: &[u8],
) -> Result<Vec<u8>, SigmaError> {
    let proof = SignatureProof::new(key, scheme, hash, digest, context)?;
    Ok(proof.with_proof(entropy, key, signature)?.to_bytes())
}

/// The name of an outcome, as the vectors write it.
fn outcome(result: &Result<(), SigmaError>) -> &'static str {
    match result {
        Ok(()) => "holds",
        Err(SigmaError::Refused) => "refused",
        Err(SigmaError::Malformed { .. } | SigmaError::TooLong { .. }) => "malformed",
        Err(SigmaError::OtherKey) => "other key",
        Err(SigmaError::OtherMessage) => "other message",
        Err(SigmaError::OtherContext) => "other context",
        Err(SigmaError::NotOnCurve { .. }) => "not on curve",
        Err(SigmaError::Exponent { .. }) => "exponent",
        Err(SigmaError::ModulusLength { .. }) => "modulus length",
        Err(SigmaError::ModulusEven) => "modulus even",
        Err(SigmaError::Unsupported { .. }) => "unsupported",
        Err(other) => panic!("unexpected: {other}"),
    }
}

fn relation(vector: &Value) -> LinearRelation {
    let terms = vector["terms"].as_array().unwrap().iter();
    let terms =
        terms.map(|term| (term["weight"].as_i64().unwrap(), commitment(&term["commitment"])));
    let constant = vector["constant"].as_str().unwrap().parse().unwrap();
    LinearRelation::new(terms.collect(), constant).unwrap()
}

fn range(vector: &Value) -> Range {
    Range::new(number(&vector["low"]), number(&vector["high"])).unwrap()
}

fn commitment(value: &Value) -> Commitment {
    Commitment::from_bytes(&bytes(value).try_into().unwrap()).unwrap()
}

fn blinding(value: &Value) -> Blinding {
    Blinding::from_bytes(&bytes(value).try_into().unwrap()).unwrap()
}

/// Numbers of 64 bits are written as text: JSON readers round large ones.
fn number(value: &Value) -> u64 {
    value.as_str().unwrap().parse().unwrap()
}

pub(crate) fn bytes(value: &Value) -> Vec<u8> {
    let text = value.as_str().unwrap().as_bytes();
    let digit = |byte: u8| (byte as char).to_digit(16).unwrap() as u8;
    text.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
