//! Comparison with the committed `vectors/rlwe/*.json`. They hold long arrays as the SHA-256 of
//! their little-endian bytes, with the first words.

use std::{fmt::Write, fs, path::PathBuf};

use confide_rlwe::Rng;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The number of first words that are written with a digest.
const HEAD: usize = 4;

/// Compares with the committed file, or writes it if `CONFIDE_WRITE_VECTORS` is set.
pub(crate) fn compare_with_committed(name: &str, made: &Value) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../vectors/rlwe");
    let file = folder.join(format!("{name}.json"));
    if std::env::var_os("CONFIDE_WRITE_VECTORS").is_some() {
        let text = serde_json::to_string_pretty(made).unwrap() + "\n";
        fs::write(&file, text).unwrap();
    }
    let committed: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert!(&committed == made, "{name}.json is not what this crate computes");
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

pub(crate) fn digest_bytes(bytes: &[u8]) -> Value {
    let head = &bytes[..bytes.len().min(8 * HEAD)];
    json!({ "bytes": bytes.len(), "sha256": hex(&Sha256::digest(bytes)), "head": hex(head) })
}

pub(crate) fn digest_words(words: &[u64]) -> Value {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let head = &words[..words.len().min(HEAD)];
    json!({ "words": words.len(), "sha256": hex(&Sha256::digest(&bytes)), "head": head })
}

pub(crate) fn digest_signed(words: &[i64]) -> Value {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let head = &words[..words.len().min(HEAD)];
    json!({ "words": words.len(), "sha256": hex(&Sha256::digest(&bytes)), "head": head })
}

/// A generator whose seed is `byte`, 32 times.
pub(crate) fn rng_from_byte(byte: u8) -> Rng {
    Rng::from_seed([byte; 32])
}
