//! Random inputs of each guest, as JSON: what tests run and what the suite measures.

use alloc::{format, string::String, vec::Vec};

use confide_statement::{Direction, MODULUS_BYTES};
use crypto_bigint::{
    Odd, U2048,
    modular::{FixedMontyForm, FixedMontyParams},
};
use serde_json::{Value, json};

use super::{encode::InputError, native::Native};
use crate::{
    fibonacci::FIBONACCI_N_MAX,
    machine::Sha256,
    rsa2048::{MESSAGE_BYTES_MAX, encoded_message},
    sha256::SHA256_BYTES_MAX,
    sort::SORT_COUNT_MAX,
};

/// A key made for these samples and for nothing else. **Not secret.**
const SAMPLE_MODULUS: &str = "\
    a8d24bc49764c6c59c24ecefa6b7eb8bc8ee5885e0211269c1963eecdc53cc0b700049db0cbbfc3a0cd09511\
    a7c006aa0cd81be8c046a0d12b72880b4a5e4dac1ce7fbf56fd556816fb771ca4ad766a1353183e7110faf3a\
    08dabe5c738d31199f89c012fce98044988c1b0101b13724f1cda8abe9ad69abde8c7e10b0b5d39987e8d882\
    df8ff047e700fa41a439faaf1d4da0bd26b555517517b1f754add75a1ab9da10273038b840bae23bf221cc28\
    dec6f2c71be634cdd7645deaa9f554ff1d02a294ab0b6834a794a41ea2464deb55af4492f4c8329d7202a729\
    9ddd0e245599ea5291cb25cefdaa4668fd8181e986a449242a1a9b825f1a1318c981e89b";

const SAMPLE_EXPONENT: &str = "\
    1ea3d05195629a7aea0c7f9e3d457b302b1f2b1cdd21537cb340681a4820c3533e18274f64dfc776e7b581a0\
    ab2ffc65a7a01f6c9e5d1339f3673d8ec3081b93c5c94adef055a976238709557c40dce51c48e8d62ab00c8e\
    fd656a10507e8b2f49d7cfef024d04d52e549b6012e50d8b9c8145803210a1b1aa5a18554225360a8763cd27\
    5d1e9866f02e59aaca2869f67cd3bccd166a304a41edf6ee15530945a79708c6de4dd99d71b26a84adb905a0\
    5fd0e45bd5a37963eb9e63bedc632aa996ba1fd5267439fcd2d9ba6f14c9daa62b8dba5c7a882cd4cb4f870d\
    595a19748a8dbd3bc33ae074d6ca993f1981ee9352e9739482fae3be4b1e297da057a7a5";

const CHUNK_BYTES: usize = 64;

/// A text that a sample's transcript contains.
const SAMPLE_TEXT: &str = "\"total_tokens\": 123";

/// A path of a sample's field.
const SAMPLE_PATH: &str = "response./usage/total_tokens";

/// Makes a random input of `guest` as JSON. The same `seed` gives the same input. `size` is
///
/// | guest | size |
/// | --- | --- |
/// | fibonacci | n |
/// | sort | how many numbers |
/// | rsa2048, sha256 | bytes of the message |
/// | transcript | bytes of the transcript |
///
/// A transcript's tree has as many levels as it needs; an even seed gives a text across two chunks,
/// an odd one a number in a field.
///
/// # Errors
/// If the guest is unknown or the size is beyond its limit.
pub fn sample_input(guest: &str, size: u32, seed: u64) -> Result<Value, InputError> {
    let mut random = SeededRandom::new(seed);
    let within = |most: u32| {
        let wanted = "a size within the guest's limit";
        (size <= most).then_some(()).ok_or(InputError::Value { subject: "size", wanted })
    };
    match guest {
        "fibonacci" => within(FIBONACCI_N_MAX).map(|()| json!({ "n": size })),
        "sort" => within(SORT_COUNT_MAX).map(|()| {
            let numbers: Vec<u32> = (0..size.max(1)).map(|_| random.next_u32()).collect();
            json!({ "given": { "numbers": numbers, "place": random.next_u32() % size.max(1) } })
        }),
        "rsa2048" => {
            within(MESSAGE_BYTES_MAX).map(|()| rsa_sample(&random.next_bytes(size as usize)))
        }
        "sha256" => within(SHA256_BYTES_MAX)
            .map(|()| json!({ "message_hex": hex::encode(random.next_bytes(size as usize)) })),
        "transcript" => within(1 << 24).map(|()| {
            let leaves = (size as usize).div_ceil(CHUNK_BYTES).next_power_of_two().max(16);
            match seed % 2 {
                0 => contains_sample(leaves, &mut random),
                _ => number_between_sample(leaves, &mut random),
            }
        }),
        _ => Err(InputError::Guest),
    }
}

/// A message with its signature.
fn rsa_sample(message: &[u8]) -> Value {
    let encoded = encoded_message(&Native::sha256(message));
    json!({
        "message_hex": hex::encode(message),
        "modulus": SAMPLE_MODULUS,
        "signature": hex::encode(sign(&encoded)),
    })
}

/// The private operation; not in constant time, of a key that is public.
fn sign(encoded: &[u8; MODULUS_BYTES]) -> Vec<u8> {
    let number = |digits: &str| U2048::from_be_hex(digits);
    let modulus = Option::<Odd<U2048>>::from(Odd::new(number(SAMPLE_MODULUS)));
    let Some(modulus) = modulus else { return Vec::new() };
    let parameters = FixedMontyParams::new_vartime(modulus);
    let base = FixedMontyForm::new(&U2048::from_be_slice(encoded), &parameters);
    base.pow(&number(SAMPLE_EXPONENT)).retrieve().to_be_bytes().as_ref().to_vec()
}

fn contains_sample(leaves: usize, random: &mut SeededRandom) -> Value {
    let index = random.next_u32() as usize % (leaves - 1);
    let mut bytes = random.next_bytes(2 * CHUNK_BYTES);
    let place = CHUNK_BYTES - 1 - random.next_u32() as usize % (SAMPLE_TEXT.len() - 1);
    bytes[place..place + SAMPLE_TEXT.len()].copy_from_slice(SAMPLE_TEXT.as_bytes());
    let mut hashes = random.next_hashes(leaves);
    let mut chunks = Vec::new();
    for (at, chunk) in (index..).zip(bytes.chunks(CHUNK_BYTES)) {
        let salt = random.next_bytes(16);
        let leaf = [&[0, Direction::Response.byte()], &(at as u32).to_be_bytes()[..], &salt, chunk];
        hashes[at] = Native::sha256(&leaf.concat());
        chunks.push(json!({ "chunk": hex::encode(chunk), "salt": hex::encode(salt) }));
    }
    let nodes = sibling_nodes(hashes, index, index + 1);
    json!({ "contains": {
        "depth": leaves.ilog2(), "direction": "response", "text": SAMPLE_TEXT, "index": index,
        "chunks": chunks, "nodes": nodes,
    } })
}

fn number_between_sample(leaves: usize, random: &mut SeededRandom) -> Value {
    let index = random.next_u32() as usize % leaves;
    let (value, salt) = (random.next_u32() as i32, random.next_bytes(16));
    let text = format!("{value}");
    let digest = Native::sha256(&[&[3], &salt[..], text.as_bytes()].concat());
    let length = (SAMPLE_PATH.len() as u16).to_be_bytes();
    let commitment = random.next_hash();
    let leaf = [&[2, 3], &length[..], SAMPLE_PATH.as_bytes(), &digest, &[1], &commitment].concat();
    let mut hashes = random.next_hashes(leaves);
    hashes[index] = Native::sha256(&leaf);
    json!({ "number_between": {
        "depth": leaves.ilog2(), "path": SAMPLE_PATH, "index": index, "value": text,
        "least": i64::from(value) - 1, "greatest": value, "salt": hex::encode(salt),
        "commitment": hex::encode(commitment), "nodes": sibling_nodes(hashes, index, index),
    } })
}

/// The nodes that lead from the leaves `first` to `last` to the root.
fn sibling_nodes(mut level: Vec<[u8; 32]>, mut first: usize, mut last: usize) -> Vec<String> {
    let mut nodes = Vec::new();
    while level.len() > 1 {
        if first % 2 == 1 {
            nodes.push(hex::encode(level[first - 1]));
        }
        if last.is_multiple_of(2) {
            nodes.push(hex::encode(level[last + 1]));
        }
        let above =
            level.chunks(2).map(|pair| Native::sha256(&[&[1], &pair.concat()[..]].concat()));
        level = above.collect();
        (first, last) = (first / 2, last / 2);
    }
    nodes
}

/// Random bytes from a seed: SHA-256 of the seed and a counter.
struct SeededRandom {
    seed: u64,
    counter: u64,
}

impl SeededRandom {
    fn new(seed: u64) -> Self {
        Self { seed, counter: 0 }
    }

    fn next_hash(&mut self) -> [u8; 32] {
        self.counter += 1;
        Native::sha256(&[self.seed.to_be_bytes(), self.counter.to_be_bytes()].concat())
    }

    fn next_hashes(&mut self, count: usize) -> Vec<[u8; 32]> {
        (0..count).map(|_| self.next_hash()).collect()
    }

    fn next_u32(&mut self) -> u32 {
        let [a, b, c, d, ..] = self.next_hash();
        u32::from_be_bytes([a, b, c, d])
    }

    fn next_bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = self.next_hashes(length.div_ceil(32)).concat();
        bytes.truncate(length);
        bytes
    }
}
