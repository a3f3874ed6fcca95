//! Prints sizes and times of a circuit in three runs; for reliable measurements use `confide bench`.
//!
//! `cargo run --release -p confide-circuits --example circuits -- sha256 1024`, or `contains 10`,
//! `across 10`, `field-contains 1024`, `field-sha256 1024`.

use std::time::Instant;

use confide_circuits::{
    Circuit, CircuitError, CircuitKeys, HiddenField, HiddenLeaf, PreparedProof, ProofHeader,
    PublicTree, check_contains, check_contains_across, check_field_contains, check_field_sha256,
    check_sha256,
};
use sha2::{Digest, Sha256};

const RUNS: usize = 3;

const SALT: [u8; 16] = [7; 16];

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let size: Option<usize> = arguments.get(1).and_then(|size| size.parse().ok());
    match arguments.first().map(String::as_str) {
        Some("sha256") => measure_sha256(size.unwrap_or(1024)),
        Some("contains") => measure_contains(size.unwrap_or(10) as u8),
        Some("across") => measure_contains_across(size.unwrap_or(10) as u8),
        Some("field-contains") => measure_field_contains(size.unwrap_or(1024)),
        Some("field-sha256") => measure_field_sha256(size.unwrap_or(1024)),
        _ => {
            Err("usage: circuits sha256|field-contains|field-sha256 BYTES | contains|across DEPTH"
                .into())
        }
    }
}

fn measure_sha256(bytes: usize) -> Outcome {
    let message = text_without_repeats(bytes);
    let digest = digest(&[&message]);
    measure_key_derivation(Circuit::for_message(bytes)?)?;
    measure_runs(
        || PreparedProof::for_sha256(&message, &digest),
        |proof, context| check_sha256(proof, &digest, context),
    )
}

fn measure_contains(depth: u8) -> Outcome {
    let chunk = text_without_repeats(64);
    let siblings: Vec<[u8; 32]> = (0..depth).map(|level| [level; 32]).collect();
    let leaf = HiddenLeaf { index: 5, salt: &SALT, chunk: &chunk, siblings: &siblings };
    let root = siblings.iter().enumerate().fold(leaf_hash(&leaf), |node, (level, sibling)| {
        match leaf.index >> level & 1 {
            0 => digest(&[&[1], &node, sibling]),
            _ => digest(&[&[1], sibling, &node]),
        }
    });
    let tree = PublicTree { root: &root, depth, direction: 2 };
    let needle = &chunk[20..37];
    measure_key_derivation(Circuit::for_tree(depth)?)?;
    measure_runs(
        || PreparedProof::for_contains(&leaf, &tree, needle),
        |proof, context| check_contains(proof, &tree, needle, context),
    )
}

/// Proves across the two leaves in the middle, whose paths meet only at the root.
fn measure_contains_across(depth: u8) -> Outcome {
    let bytes = text_without_repeats(128);
    let middle = 1u32 << (depth - 1);
    let below: Vec<[u8; 32]> = (1..depth).map(|level| [level; 32]).collect();
    let leaf = |index: u32, chunk| HiddenLeaf { index, salt: &SALT, chunk, siblings: &[] };
    let leaves = [leaf(middle - 1, &bytes[..64]), leaf(middle, &bytes[64..])];
    // The first is a right child all the way up, the second a left one.
    let left = below.iter().fold(leaf_hash(&leaves[0]), |node, it| digest(&[&[1], it, &node]));
    let right = below.iter().fold(leaf_hash(&leaves[1]), |node, it| digest(&[&[1], &node, it]));
    let siblings = [[&below[..], &[right]].concat(), [&below[..], &[left]].concat()];
    let root = digest(&[&[1], &left, &right]);
    let tree = PublicTree { root: &root, depth, direction: 2 };
    let [one, two] = leaves;
    let leaves = [
        HiddenLeaf { siblings: &siblings[0], ..one },
        HiddenLeaf { siblings: &siblings[1], ..two },
    ];
    let needle = &bytes[50..75];
    measure_key_derivation(Circuit::for_neighbours(depth)?)?;
    measure_runs(
        || PreparedProof::for_contains_across(&leaves, &tree, needle),
        |proof, context| check_contains_across(proof, &tree, needle, context),
    )
}

fn measure_field_contains(bytes: usize) -> Outcome {
    let value = text_without_repeats(bytes);
    let field = HiddenField { salt: &SALT, value: &value };
    let salted = digest(&[&[3], &SALT, &value]);
    let needle = &value[bytes / 2..(bytes / 2 + 20).min(bytes)];
    measure_key_derivation(Circuit::for_field_text(bytes)?)?;
    measure_runs(
        || PreparedProof::for_field_contains(&field, &salted, needle),
        |proof, context| check_field_contains(proof, &salted, needle, context),
    )
}

fn measure_field_sha256(bytes: usize) -> Outcome {
    let value = text_without_repeats(bytes);
    let field = HiddenField { salt: &SALT, value: &value };
    let (salted, plain) = (digest(&[&[3], &SALT, &value]), digest(&[&value]));
    measure_key_derivation(Circuit::for_field_digest(bytes)?)?;
    measure_runs(
        || PreparedProof::for_field_sha256(&field, &salted, &plain),
        |proof, context| check_field_sha256(proof, &salted, &plain, context),
    )
}

fn measure_runs(
    prepare: impl Fn() -> Result<PreparedProof, CircuitError>,
    check: impl Fn(&[u8], &[u8; 32]) -> Result<ProofHeader, CircuitError>,
) -> Outcome {
    for run in 0..RUNS {
        let context = [run as u8; 32];
        let start = Instant::now();
        let mut prepared = prepare()?;
        let prepared_ms = elapsed_ms(start);
        let start = Instant::now();
        let proof = prepared.prove(&context)?;
        let online_ms = elapsed_ms(start);
        let start = Instant::now();
        check(&proof, &context)?;
        let (check_ms, bytes) = (elapsed_ms(start), proof.len());
        println!(
            "prepare {prepared_ms:.0} ms, prove {online_ms:.0} ms, check {check_ms:.0} ms, {bytes} bytes"
        );
    }
    print_peak_memory()
}

fn measure_key_derivation(circuit: Circuit) -> Outcome {
    let start = Instant::now();
    let keys = CircuitKeys::derive_cached(circuit)?;
    println!(
        "{circuit}: {} constraints, keys in {:.0} ms",
        keys.constraint_count(),
        elapsed_ms(start)
    );
    Ok(())
}

fn leaf_hash(leaf: &HiddenLeaf<'_>) -> [u8; 32] {
    digest(&[&[0, 2], &leaf.index.to_be_bytes(), leaf.salt, leaf.chunk])
}

fn digest(parts: &[&[u8]]) -> [u8; 32] {
    Sha256::digest(parts.concat()).into()
}

/// Bytes of which no 20 occur twice in 1 KiB.
fn text_without_repeats(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|place| (place * 7 + place / 256) as u8).collect()
}

fn print_peak_memory() -> Outcome {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or("VmHWM: unknown");
    println!("{peak}");
    Ok(())
}

fn elapsed_ms(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}
