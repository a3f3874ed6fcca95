//! Writes vectors/sigma.

use std::{fs, path::Path, process::Command};

use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::{bytes, folder, hex, judge, make, outcome};
use crate::{
    hash::HashFunction,
    key::PublicKey,
    pedersen::{Blinding, Commitment},
    signature::{SignatureProof, SignatureScheme},
};

const CONTEXT: &[u8] = b"confide test vector";
const ENTROPY: [u8; 32] = [0x11; 32];

pub(super) fn all() {
    let place = std::env::temp_dir().join(format!("confide-sigma-{}", std::process::id()));
    fs::create_dir_all(&place).unwrap();
    fs::create_dir_all(folder()).unwrap();
    signatures(&place);
    relations();
    ranges();
    fs::remove_dir_all(place).unwrap();
}

/// The file name, the kind of key, the hash, and whether the padding is PSS.
const SIGNATURES: &[(&str, &str, HashFunction, bool)] = &[
    ("rsa-2048-pkcs1-sha256", "rsa_keygen_bits:2048", HashFunction::Sha256, false),
    ("rsa-2048-pss-sha256", "rsa_keygen_bits:2048", HashFunction::Sha256, true),
    ("rsa-2049-pss-sha384", "rsa_keygen_bits:2049", HashFunction::Sha384, true),
    ("rsa-3072-pkcs1-sha384", "rsa_keygen_bits:3072", HashFunction::Sha384, false),
    ("rsa-4096-pss-sha512", "rsa_keygen_bits:4096", HashFunction::Sha512, true),
    ("ecdsa-p256-sha256", "ec_paramgen_curve:P-256", HashFunction::Sha256, false),
    ("ecdsa-p256-sha512", "ec_paramgen_curve:P-256", HashFunction::Sha512, false),
    ("ecdsa-p384-sha256", "ec_paramgen_curve:P-384", HashFunction::Sha256, false),
    ("ecdsa-p384-sha384", "ec_paramgen_curve:P-384", HashFunction::Sha384, false),
];

fn signatures(place: &Path) {
    let message = b"the balance of account 17 is 4,200";
    for (name, parameter, hash, pss) in SIGNATURES {
        let (key, signature) = sign_with_openssl(place, parameter, *hash, *pss, message);
        let public = PublicKey::from_spki(&key).unwrap();
        let scheme = match (public.name().starts_with("RSA"), pss) {
            (false, _) => SignatureScheme::Ecdsa,
            (true, false) => SignatureScheme::Pkcs1,
            (true, true) => SignatureScheme::Pss {
                salt: crate::signature::pss_salt(&public, *hash, &signature).unwrap(),
            },
        };
        let digest = hash.digest(message);
        let entropy = Zeroizing::new(ENTROPY);
        let proof =
            super::sign(&public, scheme, *hash, &digest, CONTEXT, &entropy, &signature).unwrap();
        let vector = json!({
            "about": format!("a signature by {} under {}", public.name(), hash.name()),
            "kind": "signature", "key": hex(&key), "message": hex(message),
            "context": hex(CONTEXT), "proof": hex(&proof), "outcome": "holds",
            "made_with": {"entropy": hex(&ENTROPY), "signature": hex(&signature)},
        });
        put(name, &vector);
        match *name {
            "rsa-2048-pkcs1-sha256" => rsa_failures(&vector, &key, &proof),
            "rsa-2048-pss-sha256" => pss_failures(&vector, &proof),
            "ecdsa-p256-sha256" => ecdsa_failures(&vector, &proof),
            _ => {}
        }
    }
}

fn rsa_failures(vector: &Value, key: &[u8], proof: &[u8]) {
    let body = proof.len() - 16 - 8 * 256;
    put_changed(vector, "rsa-other-message", "another message", "message", b"the balance is 9,999");
    put_changed(vector, "rsa-other-context", "another context", "context", b"another context");
    flip(vector, "rsa-challenge", "a bit of the challenges", proof, body + 3);
    flip(vector, "rsa-response", "a bit of the first response", proof, body + 16 + 100);
    flip(vector, "rsa-scheme", "the scheme says PSS", proof, 17);
    flip(vector, "rsa-key-named", "the key that the proof names", proof, 19);
    flip(vector, "rsa-digest-named", "the digest that the proof names", proof, 19 + 32);
    flip(vector, "rsa-magic", "the first byte", proof, 0);
    let stored = SignatureProof::from_bytes(proof).unwrap();
    let context = stored.context().len();
    flip(vector, "rsa-context-named", "the context that the proof names", proof, body - context);
    let response = |bytes: &[u8]| {
        let mut out = proof.to_vec();
        out[body + 16..body + 16 + 256].copy_from_slice(bytes);
        out
    };
    let modulus = &key[33..33 + 256];
    put_changed(
        vector,
        "rsa-response-zero",
        "the first response is 0",
        "proof",
        &response(&[0; 256]),
    );
    put_changed(
        vector,
        "rsa-response-modulus",
        "the first response is N",
        "proof",
        &response(modulus),
    );
    let negated = negate(modulus, &proof[body + 16..body + 16 + 256]);
    put_changed(
        vector,
        "rsa-response-negated",
        "N less the first response",
        "proof",
        &response(&negated),
    );
    let mut swapped = proof.to_vec();
    swapped[body + 16..body + 16 + 512].rotate_left(256);
    put_changed(vector, "rsa-responses-swapped", "two responses swapped", "proof", &swapped);
    put_changed(
        vector,
        "rsa-short",
        "the last byte is missing",
        "proof",
        &proof[..proof.len() - 1],
    );
    put_changed(vector, "rsa-long", "a byte too many", "proof", &[proof, &[0]].concat());
    let mut exponent = key.to_vec();
    *exponent.last_mut().unwrap() = 3;
    put_changed(vector, "rsa-exponent", "a key with e = 65539", "key", &exponent);
    let mut even = key.to_vec();
    even[33 + 255] &= 0xfe;
    put_changed(vector, "rsa-modulus-even", "a key with an even modulus", "key", &even);
}

fn pss_failures(vector: &Value, proof: &[u8]) {
    flip(vector, "rsa-pss-salt", "a bit of the salt", proof, 17 + 2 + 32 + 32 + 2);
}

fn ecdsa_failures(vector: &Value, proof: &[u8]) {
    let body = proof.len() - 33 - 16 - 32;
    put_changed(
        vector,
        "ecdsa-other-message",
        "another message",
        "message",
        b"the balance is 9,999",
    );
    flip(vector, "ecdsa-challenge", "a bit of the challenge", proof, body + 33 + 15);
    flip(vector, "ecdsa-response", "a bit of the response", proof, body + 33 + 16 + 31);
    let put = |start: usize, bytes: &[u8]| {
        let mut out = proof.to_vec();
        out[start..start + bytes.len()].copy_from_slice(bytes);
        out
    };
    let sign = put(body, &[proof[body] ^ 1]);
    put_changed(
        vector,
        "ecdsa-point-sign",
        "the other point with R's x coordinate",
        "proof",
        &sign,
    );
    // x = 1: 1 − 3 + b is not a square for P-256.
    let off: Vec<u8> = [&[2], &[0; 31][..], &[1]].concat();
    put_changed(
        vector,
        "ecdsa-point-off-curve",
        "R is not on the curve",
        "proof",
        &put(body, &off),
    );
    put_changed(
        vector,
        "ecdsa-point-neutral",
        "R is the neutral element",
        "proof",
        &put(body, &[0; 33]),
    );
    let order = [0xff; 32];
    put_changed(
        vector,
        "ecdsa-response-large",
        "a response above the order",
        "proof",
        &put(body + 49, &order),
    );
}

fn relations() {
    let parts = |value: u64, seed: u8| {
        let blinding = Blinding::from_seed(&[seed; 32]);
        (hex(&Commitment::new(value, &blinding).to_bytes()), hex(blinding.to_bytes().as_slice()))
    };
    let ((one, r), (other, s), (third, t)) = (parts(5, 1), parts(5, 2), parts(7, 3));
    let equal = with_proof(json!({
        "about": "two commitments to 5", "kind": "relation",
        "terms": [{"weight": 1, "commitment": one}, {"weight": -1, "commitment": other}],
        "constant": "0", "context": hex(CONTEXT), "outcome": "holds",
        "made_with": {"entropy": hex(&ENTROPY), "blindings": [r, s]},
    }));
    put("equal", &equal);
    let proof = bytes(&equal["proof"]);
    flip(&equal, "equal-challenge", "a bit of the challenge", &proof, 0);
    flip(&equal, "equal-response", "a bit of the response", &proof, 16);
    put_changed(
        &equal,
        "equal-response-large",
        "a response above the order",
        "proof",
        &[&proof[..16], &[0xff; 32]].concat(),
    );
    put_changed(&equal, "equal-other-context", "another context", "context", b"another context");
    let mut unequal = equal.clone();
    unequal["terms"][1]["commitment"] = json!(third);
    put_failure(&unequal, "equal-other-number", "the second commitment hides 7");
    let sum = with_proof(json!({
        "about": "3·5 − 2·5 + 7 = 12", "kind": "relation",
        "terms": [{"weight": 3, "commitment": one}, {"weight": -2, "commitment": other},
                  {"weight": 1, "commitment": third}],
        "constant": "12", "context": hex(CONTEXT), "outcome": "holds",
        "made_with": {"entropy": hex(&ENTROPY), "blindings": [r, s, t]},
    }));
    put("sum", &sum);
    let mut wrong = sum.clone();
    wrong["constant"] = json!("13");
    put_failure(&wrong, "sum-other-constant", "another constant");
    let mut wrong = sum;
    wrong["terms"][0]["weight"] = json!(4);
    put_failure(&wrong, "sum-other-weight", "another weight");
}

fn ranges() {
    let blinding = Blinding::from_seed(&[4; 32]);
    let range = |value: u64, low: u64, high: u64, about: &str| {
        with_proof(json!({
            "about": about, "kind": "range", "low": low.to_string(), "high": high.to_string(),
            "commitment": hex(&Commitment::new(value, &blinding).to_bytes()),
            "context": hex(CONTEXT), "outcome": "holds",
            "made_with": {"entropy": hex(&ENTROPY), "value": value.to_string(),
                          "blinding": hex(blinding.to_bytes().as_slice())},
        }))
    };
    let at_most = range(1000, 0, 4096, "a number of at most 4096");
    put("range-at-most", &at_most);
    put("range-at-least", &range(1 << 40, 18, u64::MAX, "a number of at least 18"));
    put("range-byte", &range(255, 0, 255, "a number of 8 bits: one shifted number is enough"));
    put("range-single", &range(7, 7, 7, "one number only"));
    let proof = bytes(&at_most["proof"]);
    for (part, at) in [("a", 0), ("tx", 4 * 32), ("l", 7 * 32), ("b", proof.len() - 32)] {
        flip(&at_most, &format!("range-{part}"), &format!("a bit of {part}"), &proof, at);
    }
    put_changed(&at_most, "range-other-context", "another context", "context", b"another context");
    put_changed(
        &at_most,
        "range-short",
        "the last 32 bytes are missing",
        "proof",
        &proof[..proof.len() - 32],
    );
    let mut lower = at_most.clone();
    lower["high"] = json!("4095");
    put_failure(&lower, "range-other-end", "a shorter range");
    let mut other = at_most;
    other["commitment"] = json!(hex(&Commitment::new(1001, &blinding).to_bytes()));
    put_failure(&other, "range-other-number", "a commitment to another number");
}

/// The vector with the proof that its witness gives.
fn with_proof(mut vector: Value) -> Value {
    vector["proof"] = json!(hex(&make(&vector).unwrap()));
    vector
}

/// A vector with one field replaced, which has to fail.
fn put_changed(vector: &Value, name: &str, about: &str, field: &str, bytes: &[u8]) {
    let mut vector = vector.clone();
    vector[field] = json!(hex(bytes));
    put_failure(&vector, name, about);
}

fn flip(vector: &Value, name: &str, about: &str, proof: &[u8], at: usize) {
    let mut proof = proof.to_vec();
    // A scheme byte turns from 1 into 2 by both low bits; elsewhere any change will do.
    proof[at] ^= 3;
    put_changed(vector, name, &format!("changed: {about}"), "proof", &proof);
}

fn put_failure(vector: &Value, name: &str, about: &str) {
    let mut vector = vector.clone();
    vector.as_object_mut().unwrap().remove("made_with");
    let outcome = outcome(&judge(&vector));
    assert_ne!(outcome, "holds", "{name}");
    (vector["about"], vector["outcome"]) = (json!(about), json!(outcome));
    put(name, &vector);
}

fn put(name: &str, vector: &Value) {
    let text = serde_json::to_string_pretty(vector).unwrap();
    fs::write(folder().join(format!("{name}.json")), text + "\n").unwrap();
}

fn negate(modulus: &[u8], number: &[u8]) -> Vec<u8> {
    let mut out = vec![0; modulus.len()];
    let mut borrow = 0;
    for i in (0..modulus.len()).rev() {
        let difference = i32::from(modulus[i]) - i32::from(number[i]) - borrow;
        borrow = i32::from(difference < 0);
        out[i] = difference.rem_euclid(256) as u8;
    }
    out
}

/// A fresh key's `SubjectPublicKeyInfo` and its signature, both by openssl.
fn sign_with_openssl(
    place: &Path,
    parameter: &str,
    hash: HashFunction,
    pss: bool,
    message: &[u8],
) -> (Vec<u8>, Vec<u8>) {
    let file = |name: &str| place.join(name).to_string_lossy().to_string();
    fs::write(file("message"), message).unwrap();
    let algorithm = if parameter.starts_with("rsa") { "RSA" } else { "EC" };
    let to = file("key");
    let mut make = vec!["genpkey", "-algorithm", algorithm, "-pkeyopt", parameter, "-out", &to];
    if parameter.ends_with(":2049") {
        // With two primes openssl makes even lengths only.
        make.extend(["-pkeyopt", "rsa_keygen_primes:3"]);
    }
    openssl(&make);
    openssl(&["pkey", "-in", &file("key"), "-pubout", "-outform", "DER", "-out", &file("public")]);
    let digest = format!("-{}", hash.name().to_lowercase().replace('-', ""));
    let mut command = vec!["dgst", &digest, "-sign"];
    let (key, out, message) = (file("key"), file("signature"), file("message"));
    command.extend([key.as_str(), "-out", &out]);
    if pss {
        command.extend(["-sigopt", "rsa_padding_mode:pss", "-sigopt", "rsa_pss_saltlen:digest"]);
    }
    command.push(&message);
    openssl(&command);
    (fs::read(file("public")).unwrap(), fs::read(out).unwrap())
}

fn openssl(arguments: &[&str]) {
    let output = Command::new("openssl").args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
