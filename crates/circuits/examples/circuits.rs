//! Prints sizes and times of both circuits, one run each: a look, not a measurement.
//!
//! `cargo run --release -p confide-circuits --example circuits -- sha256 1024`
//! `cargo run --release -p confide-circuits --example circuits -- contains 10`

use std::time::Instant;

use confide_circuits::{Circuit, Keys, Leaf, Prepared, Tree, check_contains, check_sha256};
use sha2::{Digest, Sha256};

const RUNS: usize = 3;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let size = arguments.get(1).and_then(|size| size.parse().ok());
    match arguments.first().map(String::as_str) {
        Some("sha256") => sha256(size.unwrap_or(1024)),
        Some("contains") => contains(size.unwrap_or(10) as u8),
        _ => Err("usage: circuits sha256 BYTES | contains DEPTH".into()),
    }
}

fn sha256(bytes: usize) -> Result<(), Box<dyn std::error::Error>> {
    let message: Vec<u8> = (0..bytes).map(|place| place as u8).collect();
    let digest = Sha256::digest(&message).into();
    keys(Circuit::for_message(bytes)?)?;
    for run in 0..RUNS {
        let start = Instant::now();
        let mut prepared = Prepared::sha256(&message, &digest)?;
        let prepared_ms = ms(start);
        let start = Instant::now();
        let proof = prepared.prove(&[run as u8; 32])?;
        let online_ms = ms(start);
        let start = Instant::now();
        check_sha256(&proof, &digest, &[run as u8; 32])?;
        report(prepared_ms, online_ms, ms(start), proof.len());
    }
    peak()
}

fn contains(depth: u8) -> Result<(), Box<dyn std::error::Error>> {
    let siblings: Vec<[u8; 32]> = (0..depth).map(|level| [level; 32]).collect();
    let chunk = b"{\"object\":\"chat.completion\",\"model\":\"a-model\",\"created\":17000000";
    let leaf = Leaf { index: 5, salt: &[7; 16], chunk: &chunk[..64], siblings: &siblings };
    let root = root(&leaf, 2);
    let tree = Tree { root: &root, depth, direction: 2 };
    keys(Circuit::for_tree(depth)?)?;
    for run in 0..RUNS {
        let start = Instant::now();
        let mut prepared = Prepared::contains(&leaf, &tree, b"\"model\":\"a-model\"")?;
        let prepared_ms = ms(start);
        let start = Instant::now();
        let proof = prepared.prove(&[run as u8; 32])?;
        let online_ms = ms(start);
        let start = Instant::now();
        check_contains(&proof, &tree, b"\"model\":\"a-model\"", &[run as u8; 32])?;
        report(prepared_ms, online_ms, ms(start), proof.len());
    }
    peak()
}

fn root(leaf: &Leaf<'_>, direction: u8) -> [u8; 32] {
    let start = Sha256::new().chain_update([0, direction]).chain_update(leaf.index.to_be_bytes());
    let mut node = start.chain_update(leaf.salt).chain_update(leaf.chunk).finalize();
    for (level, sibling) in leaf.siblings.iter().enumerate() {
        let inner = Sha256::new().chain_update([1]);
        node = match leaf.index >> level & 1 {
            0 => inner.chain_update(node).chain_update(sibling),
            _ => inner.chain_update(sibling).chain_update(node),
        }
        .finalize();
    }
    node.into()
}

fn keys(circuit: Circuit) -> Result<(), Box<dyn std::error::Error>> {
    let start = Instant::now();
    let keys = Keys::of(circuit)?;
    println!("{circuit}: {} constraints, keys in {:.0} ms", keys.constraints(), ms(start));
    Ok(())
}

fn report(prepared_ms: f64, online_ms: f64, check_ms: f64, bytes: usize) {
    println!(
        "prepare {prepared_ms:.0} ms, prove {online_ms:.0} ms, check {check_ms:.0} ms, {bytes} bytes"
    );
}

fn peak() -> Result<(), Box<dyn std::error::Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or("VmHWM: unknown");
    println!("{peak}");
    Ok(())
}

fn ms(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}
