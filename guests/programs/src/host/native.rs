//! The native machine: ordinary arithmetic, and a slice for an input.

use alloc::vec::Vec;

use confide_statement::Statement;
use sha2::Digest as _;

use crate::{
    error::ProgramError,
    fibonacci::fibonacci,
    input::{Input, Source},
    machine::{Int256, Sha256, U256},
    rsa2048::rsa2048,
    sha256::sha256,
    sort::sort,
    transcript::transcript,
};

/// The guests of this crate, by name. `dcap` is a crate of its own.
pub const GUESTS: [&str; 5] = ["fibonacci", "sort", "rsa2048", "sha256", "transcript"];

/// Runs the program of that name over an encoded input; `None` if there is none of that name.
pub fn run(guest: &str, input: &[u8]) -> Option<Result<Statement, ProgramError>> {
    let program = match guest {
        "fibonacci" => fibonacci,
        "sort" => sort::<Native>,
        "rsa2048" => rsa2048::<Native>,
        "sha256" => sha256::<Native>,
        "transcript" => transcript::<Native>,
        _ => return None,
    };
    Some(Input::new(Slice(input), input.len()).and_then(|mut input| program(&mut input)))
}

/// An encoded input in memory.
pub struct Slice<'a>(pub &'a [u8]);

impl Source for Slice<'_> {
    fn words(&mut self, into: &mut [u32]) {
        let (words, rest) = self.0.split_at(4 * into.len());
        for (word, bytes) in into.iter_mut().zip(words.as_chunks().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        self.0 = rest;
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        bytes.to_vec()
    }
}

/// The machine of ordinary arithmetic.
pub struct Native;

impl Sha256 for Native {
    fn sha256(bytes: &[u8]) -> [u8; 32] {
        sha2::Sha256::digest(bytes).into()
    }
}

impl Int256 for Native {
    fn mul(product: &mut U256, a: &U256, b: &U256) {
        let mut words = [0; 8];
        for (i, a) in a.0.iter().enumerate() {
            let mut carry = 0;
            for (word, b) in words[i..].iter_mut().zip(&b.0) {
                let sum = u64::from(*a) * u64::from(*b) + u64::from(*word) + carry;
                (*word, carry) = (sum as u32, sum >> 32);
            }
        }
        product.0 = words;
    }

    fn add(sum: &mut U256, a: &U256) {
        let mut carry = 0;
        for (word, a) in sum.0.iter_mut().zip(&a.0) {
            carry += u64::from(*word) + u64::from(*a);
            *word = carry as u32;
            carry >>= 32;
        }
    }

    fn double(double: &mut U256, a: &U256) {
        *double = *a;
        Self::add(double, a);
    }

    fn sub(difference: &mut U256, a: &U256) {
        let mut borrow = 0;
        for (word, a) in difference.0.iter_mut().zip(&a.0) {
            borrow += i64::from(*word) - i64::from(*a);
            *word = borrow as u32;
            borrow >>= 32;
        }
    }

    fn shift_right_124(value: &mut U256) {
        let sign = (value.0[7] as i32 >> 31) as u32;
        let word = |at: usize| value.0.get(at).copied().unwrap_or(sign);
        value.0 = core::array::from_fn(|at| word(at + 3) >> 28 | word(at + 4) << 4);
    }
}
