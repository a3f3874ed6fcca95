//! The test vectors of this crate and of the kernels in `python/confide/cuda`:
//! `vectors/rlwe/*.json`, made from fixed seeds. The test of `ckks.json` is in `crates/report-003`.
//!
//! `CONFIDE_WRITE_VECTORS=1 cargo test -p confide-rlwe --test vectors` writes them again.

#[path = "vectors/digests.rs"]
mod digests;
#[path = "vectors/exact.rs"]
mod exact;

use confide_rlwe::{Modulus, NttPath, NttTable, ParameterSet, Rng, ntt_primes_below};
use digests::{compare_with_committed, digest_signed, digest_words, hex, rng_from_byte};
use serde_json::{Value, json};

#[test]
fn keystreams_are_those_of_rfc_8439() {
    // Appendix A.1, test vectors 1 to 5: key, nonce, block.
    let mut last = [0; 32];
    last[31] = 1;
    let mut second = [0; 32];
    second[1] = 255;
    let cases = [
        ([0; 32], [0; 4], 0, 0),
        ([0; 32], [0; 4], 0, 1),
        (last, [0; 4], 0, 1),
        (second, [0; 4], 0, 2),
        ([0; 32], [0; 4], 2 << 56, 0),
        ([7; 32], *b"test", 3, 65),
    ];
    let blocks = cases.map(|(key, label, counter, block): ([u8; 32], [u8; 4], u64, usize)| {
        let mut rng = match label == [0; 4] && counter == 0 {
            true => Rng::from_seed(key),
            false if label == [0; 4] => return published_block(&key, counter),
            false => Rng::derive(&key, label, counter),
        };
        let mut bytes = vec![0; 64 * (block + 1)];
        rng.fill_bytes(&mut bytes);
        let words = hex(&bytes[64 * block..]);
        json!({ "key": hex(&key), "label": hex(&label), "counter": counter, "block": block,
            "keystream": words })
    });
    assert_eq!(blocks[0]["keystream"].as_str().unwrap()[..16], *"76b8e0ada0f13d90");
    compare_with_committed("keystream", &json!({ "blocks": blocks }));
}

/// Test vector 5 as the RFC prints it: a generator cannot make it, because the label of four zeros
/// is reserved for a seed's own stream.
fn published_block(key: &[u8], counter: u64) -> Value {
    let keystream = "c2c64d378cd536374ae204b9ef933fcd1a8b2288b3dfa49672ab765b54ee27c7\
        8a970e0e955c14f3a88e741b97c286f75f8fc299e8148362fa198a39531bed6d";
    json!({ "key": hex(key), "label": "00000000", "counter": counter, "block": 0,
        "keystream": keystream })
}

#[test]
fn draws_take_the_words_of_their_stream() {
    let mut draws = Vec::new();
    // The last modulus rejects nearly half of all words.
    for q in [12289, 33_550_337, 1_125_899_906_826_241, 576_460_752_303_439_873] {
        let modulus = Modulus::new(q).unwrap();
        let mut values = vec![0; 5000];
        let mut rng = rng_from_byte(11);
        rng.fill_uniform(modulus, &mut values);
        draws.push(json!({ "what": "uniform", "modulus": q, "drawn": digest_words(&values),
            "next": rng.next_u64() }));
    }
    let mut signed = vec![0; 5000];
    let mut rng = rng_from_byte(11);
    rng.fill_ternary(&mut signed);
    draws.push(
        json!({ "what": "ternary", "drawn": digest_signed(&signed), "next": rng.next_u64() }),
    );
    let mut rng = rng_from_byte(11);
    rng.fill_errors(&mut signed);
    draws
        .push(json!({ "what": "errors", "drawn": digest_signed(&signed), "next": rng.next_u64() }));
    let mut values = vec![0; 5000];
    let mut rng = rng_from_byte(11);
    rng.fill_bits(33, &mut values);
    draws.push(json!({ "what": "bits", "bits": 33, "drawn": digest_words(&values),
        "next": rng.next_u64() }));
    compare_with_committed("sampler", &json!({ "seed": 11, "draws": draws }));
}

#[test]
fn transforms_of_every_set_are_as_committed() {
    let mut sets = Vec::new();
    for name in ParameterSet::names() {
        let set = ParameterSet::dangerous_from_name(name).unwrap();
        let limbs: Vec<Value> = set.primes().iter().map(|&q| transform(set.n(), q)).collect();
        sets.push(json!({ "name": name, "id": set.id(), "n": set.n(), "primes": set.primes(),
            "plaintext_bits": set.plaintext_bits(), "flood_bits": set.flood_bits(),
            "row_l1_max": set.row_l1_max(), "limbs": limbs }));
    }
    sets.push(set_of_report_003());
    compare_with_committed("ntt", &json!({ "seed": 12, "sets": sets }));
}

/// The set of report 003's CKKS (`crates/report-003`), which has the greatest moduli of all.
fn set_of_report_003() -> Value {
    let (wide, narrow) = (ntt_primes_below(60, 16384, 2), ntt_primes_below(40, 16384, 2));
    let (data, special) = ([wide[1], narrow[1], narrow[0]], wide[0]);
    let limbs: Vec<Value> = data.iter().chain([&special]).map(|&q| transform(16384, q)).collect();
    json!({ "name": "ckks-16384-tensafe", "n": 16384, "primes": data, "special": special,
        "limbs": limbs })
}

fn transform(n: usize, q: u64) -> Value {
    let table = NttTable::with_path(n, Modulus::new(q).unwrap(), NttPath::Portable).unwrap();
    let mut values = vec![0; n];
    rng_from_byte(12).fill_uniform(table.modulus(), &mut values);
    let (mut forward, mut inverse) = (values.clone(), values.clone());
    table.forward(&mut forward);
    table.inverse(&mut inverse);
    let mut greatest = vec![q - 1; n];
    table.forward(&mut greatest);
    json!({ "modulus": q, "root": table.root(), "input": digest_words(&values),
        "forward": digest_words(&forward), "inverse": digest_words(&inverse),
        "greatest": digest_words(&greatest) })
}

#[test]
fn mask_streams_are_tiles_of_keystreams() {
    const TILE: usize = 32;
    let (tokens, columns) = (40, 70);
    let mut rows = vec![0; tokens * columns];
    for tile in 0..columns.div_ceil(TILE) {
        // Nonce `tile` as 64 bits little-endian and four zeros: see crates/lora/src/mask.rs.
        let mut rng = match tile {
            0 => rng_from_byte(13),
            _ => Rng::derive(&[13; 32], (tile as u32).to_le_bytes(), 0),
        };
        for token in 0..tokens {
            for column in tile * TILE..(tile + 1) * TILE {
                let word = rng.next_u64();
                if column < columns {
                    rows[token * columns + column] = word;
                }
            }
        }
    }
    let cut = |bits: u32| {
        let words: Vec<u64> = rows.iter().map(|word| word & (u64::MAX >> (64 - bits))).collect();
        let window = &words[17 * columns..20 * columns];
        json!({ "bits": bits, "rows": digest_words(&words), "rows_17_to_20": digest_words(window) })
    };
    compare_with_committed(
        "mask",
        &json!({ "key": 13, "tokens": tokens, "columns": columns,
        "streams": [cut(33), cut(64)] }),
    );
}
