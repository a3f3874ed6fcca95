//! Proofs that need no circuit: files, keys, and the checks of what could be read.
#![no_main]

use std::sync::LazyLock;

use confide_sigma::{
    Blinding, Commitment, PublicKey, Range, SignatureProof, verify_equal, verify_range,
};
use libfuzzer_sys::fuzz_target;

static KEYS: LazyLock<Vec<PublicKey>> = LazyLock::new(|| {
    let vectors = [
        include_str!("../../vectors/sigma/rsa-2048-pkcs1-sha256.json"),
        include_str!("../../vectors/sigma/rsa-2048-pss-sha256.json"),
        include_str!("../../vectors/sigma/ecdsa-p256-sha256.json"),
        include_str!("../../vectors/sigma/ecdsa-p384-sha384.json"),
    ];
    vectors.map(key_of).into()
});

static COMMITTED: LazyLock<Commitment> =
    LazyLock::new(|| Commitment::new(7, &Blinding::from_seed(&[1; 32])));

fuzz_target!(|data: &[u8]| {
    if let Ok(proof) = SignatureProof::from_bytes(data) {
        assert_eq!(proof.to_bytes(), data);
        for key in KEYS.iter() {
            let _ = proof.verify_digest(key, proof.digest(), proof.context());
        }
    }
    for read in [PublicKey::from_certificate, PublicKey::from_spki, PublicKey::from_jwk] {
        if let Ok(key) = read(data) {
            assert_eq!(key.id(), key.clone().id());
        }
    }
    let _ = verify_equal(b"", &COMMITTED, &COMMITTED, data);
    let small = Range::new(0, 9).expect("0 to 9");
    for range in [Range::at_least(1), small] {
        let _ = verify_range(b"", &range, &COMMITTED, data);
    }
    if let Some(bytes) = data.first_chunk() {
        let _ = (Commitment::from_bytes(bytes), Blinding::from_bytes(bytes));
    }
});

fn key_of(vector: &str) -> PublicKey {
    let vector: serde_json::Value = serde_json::from_str(vector).expect("JSON");
    let text = vector["key"].as_str().expect("a key").as_bytes();
    let digit = |byte: u8| (byte as char).to_digit(16).expect("hexadecimal") as u8;
    let key: Vec<u8> = text.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect();
    PublicKey::from_spki(&key).expect("a key that is proved")
}
