//! Bodies of proofs, changed at random: none passes, none stops the checker, none makes it ask for
//! much memory. The checker runs in this process, so that a panic shows.
//!
//! `CONFIDE_MUTATIONS` says how many of each mode, `CONFIDE_MUTATIONS_SEED` where they begin.

mod prover;

use std::{env, fs, panic};

use confide_zkvm_machine::{
    Blueprint, CheckedProof, ProgramCommitment, Rejection, VerifyingKeys, check_aggregated,
    check_segments,
};
use prover::{Body, Folder, fibonacci, repository, run};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Cases of each mode where nobody says: some seconds.
const CASES: u64 = 400;

/// What the checker may ask for beyond what the process has: bodies here have half a megabyte.
const MEMORY_BYTES: u64 = 1 << 30;

/// Modulus of the field: what is not below it is not an element.
const MODULUS: u32 = 2_013_265_921;

/// The machine of `fibonacci`, as src/guests.rs has it.
const BASE: Blueprint =
    Blueprint { name: "base", log_height: 20, sha2: true, int256: false, p256: false };

type Check =
    fn(&[u8], &VerifyingKeys, Blueprint, &ProgramCommitment) -> Result<CheckedProof, Rejection>;

#[test]
fn mutated_bodies_are_refused_and_stop_nothing() {
    let bodies = [
        ("app", app(), check_segments as Check),
        ("aggregated", committed_proof(), check_aggregated as Check),
    ];
    let keys =
        VerifyingKeys::decode(&fs::read(repository("zkvm/keys/base.keys")).unwrap()).unwrap();
    let program = program();
    for (mode, body, check) in &bodies {
        check(body, &keys, BASE, &program).unwrap_or_else(|error| panic!("{mode}: {error}"));
    }
    let (cases, seed) = (number("CONFIDE_MUTATIONS", CASES), number("CONFIDE_MUTATIONS_SEED", 1));
    limit_memory();
    let mut seen = std::collections::BTreeMap::<String, u32>::new();
    for (mode, body, check) in &bodies {
        let words = small_words(body);
        for case in seed..seed + cases {
            let mutated = Random::new(case).mutate(body, &words);
            if mutated == *body {
                continue;
            }
            let checked = panic::catch_unwind(|| check(&mutated, &keys, BASE, &program));
            let named = match checked {
                Ok(Err(rejection)) => format!("{mode}: {}", name(&rejection)),
                Ok(Ok(_)) => panic!("{mode} case {case} passes"),
                Err(_) => panic!("{mode} case {case} stops the checker"),
            };
            *seen.entry(named).or_default() += 1;
        }
    }
    println!("{seen:#?}");
}

fn name(rejection: &Rejection) -> &'static str {
    match rejection {
        Rejection::Malformed(_) => "malformed",
        Rejection::Parameters => "parameters",
        Rejection::AnotherProgram => "another program",
        Rejection::Segments(_) => "segments",
        Rejection::PublicValues => "public values",
        Rejection::Unsound(_) => "unsound",
    }
}

fn app() -> Vec<u8> {
    let folder = Folder::new();
    let (input, out) = (folder.file("input", &fibonacci(10)), folder.path("proof"));
    run(&["prove", "--guest", "fibonacci", "--input", &input, "--out", &out, "--mode", "app"])
        .into_result();
    fs::read(out).unwrap()
}

fn committed_proof() -> Vec<u8> {
    fs::read(repository("zkvm/tests/data/fibonacci-10.aggregated")).unwrap()
}

fn program() -> ProgramCommitment {
    let text = fs::read_to_string(repository("zkvm/keys/programs.json")).unwrap();
    let records: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    let record = records.iter().find(|record| record["claim"] == "fibonacci").unwrap();
    let digest = |field: &str| {
        let text = record[field].as_str().unwrap();
        text.parse::<confide_prover::line::Digest>().unwrap().0
    };
    ProgramCommitment { instructions: digest("instructions"), executable: digest("executable") }
}

fn number(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}: {text}")))
}

/// An allocation beyond it ends the process.
fn limit_memory() {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    let size: u64 = size.trim().trim_end_matches(" kB").parse().unwrap();
    let Rlimit { maximum, .. } = getrlimit(Resource::As);
    let current = Some(size * 1024 + MEMORY_BYTES);
    setrlimit(Resource::As, Rlimit { current, maximum }).unwrap();
}

/// Places of the words that may be lengths.
fn small_words(body: &[u8]) -> Vec<usize> {
    let words = body.chunks_exact(4).enumerate();
    let small = words.filter(|(_, word)| word[0] > 0 && word[2..] == [0, 0]);
    small.map(|(place, _)| 4 * place).collect()
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn next_below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// One to four changes: in the whole body, or in a part of it whose length is written again.
    fn mutate(&mut self, body: &[u8], words: &[usize]) -> Vec<u8> {
        let mut whole = body.to_vec();
        if self.next_below(3) == 0 {
            let mut parts = Body::cut(body);
            let count = parts.segments.len();
            let part = match self.next_below(count + 1) {
                place if place < count => &mut parts.segments[place],
                _ => &mut parts.public_values,
            };
            for _ in 0..=self.next_below(3) {
                let places = small_words(part);
                self.change(part, &places);
            }
            return parts.join();
        }
        for _ in 0..=self.next_below(3) {
            self.change(&mut whole, words);
        }
        whole
    }

    fn change(&mut self, bytes: &mut Vec<u8>, words: &[usize]) {
        if bytes.len() < 8 {
            return bytes.push(self.next() as u8);
        }
        let place = self.next_below(bytes.len() - 4);
        let length = 1 + self.next_below(256.min(bytes.len() - place));
        match self.next_below(8) {
            0 => bytes[place] ^= 1 << self.next_below(8),
            1 => bytes[place] = self.next() as u8,
            2 => self.word(bytes, place & !3),
            3 | 4 => match words.get(self.next_below(words.len())) {
                Some(&place) if place + 4 <= bytes.len() => self.word(bytes, place),
                _ => self.word(bytes, place & !3),
            },
            5 => drop(bytes.drain(place..place + length)),
            6 => {
                let piece = bytes[place..place + length].to_vec();
                let at = self.next_below(bytes.len());
                match self.next_below(2) {
                    0 => drop(bytes.splice(at..at, piece)),
                    _ => drop(bytes.splice(at..(at + length).min(bytes.len()), piece)),
                }
            }
            _ => match self.next_below(4) {
                0 => bytes.truncate(place),
                _ => bytes[place..place + length].fill(self.next() as u8),
            },
        }
    }

    /// Replaces a word by one that is likely to do harm.
    fn word(&mut self, bytes: &mut [u8], place: usize) {
        let Some(word) = bytes.get_mut(place..place + 4) else { return };
        let old = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        let new = match self.next_below(12) {
            0 => 0,
            1 => 1,
            2 => u32::MAX,
            3 => u32::MAX >> 1,
            4 => 1 << 31,
            5 => MODULUS,
            6 => MODULUS - 1,
            7 => old.wrapping_add(1),
            8 => old.wrapping_sub(1),
            9 => old.wrapping_mul(2),
            10 => 1 << self.next_below(32),
            _ => self.next() as u32 % MODULUS,
        };
        word.copy_from_slice(&new.to_le_bytes());
    }
}
