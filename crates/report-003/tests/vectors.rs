//! CKKS in report 003's layout: copies of a vector in one ciphertext, as many rows of A in a
//! plaintext, terms summed after decryption (`src/ckks_slots.rs`). The values are compared with
//! `vectors/rlwe/ckks.json`.
//!
//! `CONFIDE_WRITE_VECTORS=1 cargo test -p confide-report-003 --test vectors` writes the file.

#[path = "../../rlwe/tests/vectors/digests.rs"]
mod digests;

use confide_report_003::ckks::{CkksContext, EncodedMessage, Parameters, SecretKey};
use digests::{compare_with_committed, digest_bytes, digest_signed, digest_words, rng_from_byte};
use serde_json::{Value, json};

// Twiddle factors come from the C library's cosine, and their last bits affect how a coefficient is
// rounded. The file was made with glibc.
#[cfg(target_env = "gnu")]
#[test]
fn ckks_in_the_layout_of_report_003_is_as_committed() {
    let toy = compute_walk(&Parameters::dangerous_of_degree(1024), 100, 8);
    let real = compute_walk(&Parameters::from_name("ckks-16384-tensafe").unwrap(), 1536, 32);
    compare_with_committed("ckks", &json!({ "walks": [toy, real] }));
}

fn compute_walk(parameters: &Parameters, width: usize, rank: usize) -> Value {
    let ckks = CkksContext::new(parameters).unwrap();
    let copies = ckks.slot_count() / width;
    let vector: Vec<f64> = (0..width).map(|column| entry(0, column) * 8.0).collect();
    let rows: Vec<Vec<f64>> =
        (1..=rank).map(|row| (0..width).map(|column| entry(row, column)).collect()).collect();
    let message = ckks.encode(&vector.repeat(copies)).unwrap();
    let key = SecretKey::generate(&ckks, &mut rng_from_byte(21));
    let input = key.encrypt(&message, ckks.limbs_max(), &mut rng_from_byte(22)).unwrap();
    let mut packs = Vec::new();
    let mut dots = Vec::new();
    for rows in rows.chunks(copies) {
        let weights = ckks.encode(&rows.concat()).unwrap();
        let factor = ckks.to_plaintext(&weights, ckks.limbs_max()).unwrap();
        let product = input.product(&factor).unwrap();
        let decrypted = key.decrypt(&product).unwrap();
        let slots = ckks.decode(&decrypted).unwrap();
        let (c0, c1) = product.polynomials();
        packs.push(json!({ "weights": message_json(&weights),
            "factor": digest_words(factor.poly().values()), "c0": digest_words(c0.values()),
            "c1": digest_words(c1.values()), "decrypted": digest_words(decrypted.values()) }));
        let sums = slots.chunks_exact(width).take(rows.len());
        dots.extend(sums.map(|segment| segment.iter().sum::<f64>()));
    }
    for (row, dot) in rows.iter().zip(&dots) {
        let wanted: f64 = row.iter().zip(&vector).map(|(a, x)| a * x).sum();
        assert!((wanted - dot).abs() < 1e-4, "{wanted} {dot}");
    }
    let (c0, c1) = input.polynomials();
    json!({ "set": parameters.name(), "n": parameters.n(), "primes": parameters.primes().0,
        "width": width, "rank": rank, "seeds": { "key": 21, "encrypt": 22 },
        "message": message_json(&message), "c0": digest_words(c0.values()), "c1": digest_words(c1.values()),
        "wire": digest_bytes(&input.to_bytes(&ckks)), "packs": packs, "dots": round_dots(&dots) })
}

fn message_json(message: &EncodedMessage) -> Value {
    digest_signed(message.coefficients())
}

/// Entries in (−1, 1) that every language computes exactly: multiples of 2^−10.
fn entry(row: usize, column: usize) -> f64 {
    let mixed = (row * 7919 + column * 104_729 + 12_345) % 2047;
    (mixed as f64 - 1023.0) / 1024.0
}

/// Rounds to three decimals, which do not depend on the noise or on how a coefficient was rounded.
fn round_dots(dots: &[f64]) -> Vec<f64> {
    dots.iter().map(|dot| (dot * 1e3).round() / 1e3).collect()
}
