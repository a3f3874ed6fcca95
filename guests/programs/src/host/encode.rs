//! Inputs as the programs read them, hints included.

use alloc::vec::Vec;

use confide_statement::{Direction, MODULUS_BYTES};
use crypto_bigint::{NonZero, U2048, U4096};

use super::native::Native;
use crate::{
    machine::Sha256,
    rsa2048::{STEPS, encoded_message, input_words},
};

/// Why an input cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// There is no guest of that name here.
    #[error("guest: wanted fibonacci, sort, rsa2048, sha256 or transcript, got another")]
    Guest,
    /// The JSON does not have the shape of this guest's input.
    #[error("input of {guest} is not the JSON of one: {reason}")]
    Json {
        /// The guest.
        guest: &'static str,
        /// The JSON reader's message.
        reason: alloc::string::String,
    },
    /// A field is not hexadecimal of the wanted length.
    #[error("{subject}: wanted {wanted}")]
    Value {
        /// The field.
        subject: &'static str,
        /// What it must be.
        wanted: &'static str,
    },
    /// The signature is not one of the message under the modulus: there is nothing to prove.
    #[error("signature does not hold: wanted one of the message under the modulus")]
    Signature,
}

/// Words and padded bytes, one after another.
#[derive(Default)]
pub(super) struct WordWriter(pub(super) Vec<u8>);

impl WordWriter {
    pub(super) fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(super) fn i64(mut self, value: i64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Appends bytes without their length, filled up to whole words.
    pub(super) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Appends the length of bytes, then the bytes.
    pub(super) fn length_prefixed(self, bytes: &[u8]) -> Self {
        self.u32(bytes.len() as u32).bytes(bytes)
    }

    pub(super) fn words(mut self, words: &[u32]) -> Self {
        self.0.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        self
    }
}

/// A signature and the quotient and remainder of each multiplication that checks it.
#[derive(Clone)]
pub struct RsaHints {
    /// The message.
    pub message: Vec<u8>,
    /// The modulus, big-endian.
    pub modulus: [u8; MODULUS_BYTES],
    /// The signature, big-endian.
    pub signature: [u8; MODULUS_BYTES],
    /// Quotient and remainder of each step, big-endian; the last remainder is the encoded message.
    pub steps: Vec<[[u8; MODULUS_BYTES]; 2]>,
}

impl RsaHints {
    /// Computes the hints of a signature, which need not hold.
    ///
    /// # Errors
    /// If the modulus is zero.
    pub fn new(
        message: &[u8],
        modulus: &[u8; MODULUS_BYTES],
        signature: &[u8; MODULUS_BYTES],
    ) -> Result<Self, InputError> {
        let n: U4096 = U2048::from_be_slice(modulus).resize();
        let wanted = "a number above zero";
        let n = Option::<NonZero<U4096>>::from(NonZero::new(n))
            .ok_or(InputError::Value { subject: "modulus", wanted })?;
        let s = U2048::from_be_slice(signature);
        let (mut power, mut steps) = (s, Vec::new());
        for step in 0..STEPS {
            let factor = if step < STEPS - 1 { &power } else { &s };
            let product: U4096 = power.concatenating_mul(factor);
            let (quotient, remainder) = product.div_rem(&n);
            power = remainder.resize();
            steps.push([quotient.resize(), power].map(be_bytes));
        }
        let (modulus, signature) = (*modulus, *signature);
        Ok(Self { message: message.to_vec(), modulus, signature, steps })
    }

    /// Whether the last remainder is the encoded message.
    pub fn is_valid(&self) -> bool {
        let digest = Native::sha256(&self.message);
        self.steps.last().is_some_and(|[_, last]| *last == encoded_message(&digest))
    }

    /// Encodes the input of the program.
    pub fn encode(&self) -> Vec<u8> {
        let mut words = WordWriter::default()
            .length_prefixed(&self.message)
            .bytes(&self.modulus)
            .words(&input_words(&self.signature));
        for (step, [quotient, remainder]) in self.steps.iter().enumerate() {
            words = words.words(&input_words(quotient));
            if step + 1 < self.steps.len() {
                words = words.words(&input_words(remainder));
            }
        }
        words.0
    }
}

/// Input of `transcript`: `text` is in these neighbouring chunks, each with its salt, the first of
/// them at `first`. `None` if it is not.
pub(super) fn encode_contains(
    depth: u8,
    direction: Direction,
    text: &str,
    first: u32,
    chunks: &[(Vec<u8>, [u8; 16])],
    nodes: &[[u8; 32]],
) -> Option<Vec<u8>> {
    let joined: Vec<u8> = chunks.iter().flat_map(|(chunk, _)| chunk.iter().copied()).collect();
    let place = joined.windows(text.len().max(1)).position(|part| part == text.as_bytes())?;
    let mut words = WordWriter::default()
        .u32(0)
        .u32(depth.into())
        .u32(direction.byte().into())
        .length_prefixed(text.as_bytes())
        .u32(place as u32)
        .u32(first)
        .u32(chunks.len() as u32);
    for (chunk, salt) in chunks {
        words = words.length_prefixed(chunk).bytes(salt);
    }
    Some(nodes.iter().fold(words, |words, node| words.bytes(node)).0)
}

/// A number under a root of fields, as `transcript` reads it.
pub(super) struct NumberLeaf<'a> {
    pub(super) path: &'a str,
    pub(super) index: u32,
    pub(super) value: &'a str,
    pub(super) salt: [u8; 16],
    pub(super) commitment: Option<[u8; 32]>,
}

/// Encodes an input of `transcript`: the number of this field is within the range.
pub(super) fn encode_number_range(
    depth: u8,
    range: core::ops::RangeInclusive<i64>,
    field: &NumberLeaf<'_>,
    nodes: &[[u8; 32]],
) -> Vec<u8> {
    let words = WordWriter::default()
        .u32(1)
        .u32(depth.into())
        .i64(*range.start())
        .i64(*range.end())
        .length_prefixed(field.path.as_bytes())
        .u32(field.index)
        .length_prefixed(field.value.as_bytes())
        .bytes(&field.salt);
    let words = match &field.commitment {
        None => words.u32(0),
        Some(commitment) => words.u32(1).bytes(commitment),
    };
    nodes.iter().fold(words, |words, node| words.bytes(node)).0
}

fn be_bytes(number: U2048) -> [u8; MODULUS_BYTES] {
    let mut bytes = [0; MODULUS_BYTES];
    bytes.copy_from_slice(number.to_be_bytes().as_ref());
    bytes
}
