//! OpenVM 2: the hint stream, 256-bit integers (extension bigint) and SHA-256 (extension sha2).
//!
//! The encodings are those of `openvm-bigint-guest` and `openvm-sha2-guest` 2.0.2.
#![allow(unsafe_code, reason = "instructions of the VM are reached through assembly only")]

use alloc::vec::Vec;
use core::arch::asm;

use confide_guest_programs::{
    Input, ProgramError, Source,
    machine::{Int256, Sha256, U256},
};
use confide_statement::Statement;

/// The largest number of words that one instruction takes from the hint stream.
const HINT_WORDS_MAX: usize = 1023;

/// Bytes of a block of SHA-256.
const BLOCK: usize = 64;

/// State of SHA-256 before the first block (FIPS 180-4 section 5.3.3).
const INITIAL_STATE: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

/// 124 as a number of 256 bits.
static SHIFT_124: U256 = U256([124, 0, 0, 0, 0, 0, 0, 0]);

/// Runs `program` over the first input of the run and reveals the digest of its statement. Where it
/// refuses, the run ends without one, and no proof of it exists.
pub fn run_and_reveal(program: fn(&mut Input<Hints>) -> Result<Statement, ProgramError>) {
    openvm::hint_input();
    let mut length = [0];
    Hints.words(&mut length);
    let input = Input::new(Hints, length[0] as usize);
    match input.and_then(|mut input| program(&mut input)) {
        Ok(statement) => openvm::io::reveal_bytes32(statement.digest_by(OpenVm::sha256)),
        Err(_) => openvm::process::panic(),
    }
}

/// The rest of the current input.
pub struct Hints;

impl Source for Hints {
    #[inline(always)]
    fn words(&mut self, into: &mut [u32]) {
        // Known when it is compiled, most of the time.
        if (1..=HINT_WORDS_MAX).contains(&into.len()) {
            return read_hint_words(into.as_mut_ptr(), into.len());
        }
        for part in into.chunks_mut(HINT_WORDS_MAX) {
            read_hint_words(part.as_mut_ptr(), part.len());
        }
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        // Memory from the allocator of openvm-platform begins at a word.
        let mut bytes = Vec::<u8>::with_capacity(length);
        let start = bytes.as_mut_ptr().cast::<u32>();
        let words = length / 4;
        let mut done = 0;
        while done < words {
            let part = (words - done).min(HINT_WORDS_MAX);
            read_hint_words(start.wrapping_add(done), part);
            done += part;
        }
        // SAFETY: the capacity is at least `length`, and all of it has been written.
        unsafe { bytes.set_len(length) };
        bytes
    }
}

/// Takes the next `count` words of the hint stream, at least one.
#[inline(always)]
fn read_hint_words(to: *mut u32, count: usize) {
    // SAFETY: `to` is aligned, and `count` words from it on belong to the caller.
    unsafe {
        asm!(".insn i 0x0b, 1, {to}, {count}, 1", to = in(reg) to, count = in(reg) count,
             options(nostack));
    }
}

/// OpenVM's instructions as the machine of the programs.
pub struct OpenVm;

/// An instruction of the extension bigint.
macro_rules! int256 {
    ($funct7:literal, $to:expr, $a:expr, $b:expr) => {
        // SAFETY: each address is that of a `U256`, which is aligned to four bytes; the
        // instruction reads two of them, then writes one and nothing else.
        unsafe {
            asm!(
                concat!(".insn r 0x0b, 5, ", $funct7, ", {to}, {a}, {b}"),
                to = in(reg) $to, a = in(reg) $a, b = in(reg) $b,
                options(nostack),
            )
        }
    };
}

impl Int256 for OpenVm {
    #[inline(always)]
    fn mul(product: &mut U256, a: &U256, b: &U256) {
        int256!("10", product, a, b);
    }

    #[inline(always)]
    fn add(sum: &mut U256, a: &U256) {
        let sum: *mut U256 = sum;
        int256!("0", sum, sum, a);
    }

    #[inline(always)]
    fn double(double: &mut U256, a: &U256) {
        int256!("0", double, a, a);
    }

    #[inline(always)]
    fn sub(difference: &mut U256, a: &U256) {
        let difference: *mut U256 = difference;
        int256!("1", difference, difference, a);
    }

    #[inline(always)]
    fn shift_right_124(value: &mut U256) {
        let value: *mut U256 = value;
        int256!("7", value, value, &raw const SHIFT_124);
    }
}

impl Sha256 for OpenVm {
    fn sha256(bytes: &[u8]) -> [u8; 32] {
        let mut state = INITIAL_STATE;
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        let aligned = bytes.as_ptr().cast::<u32>().is_aligned();
        for block in blocks {
            match aligned {
                true => compress(&mut state, block.as_ptr().cast()),
                false => compress(&mut state, Aligned(*block).0.as_ptr().cast()),
            }
        }
        let mut last = Aligned([0; BLOCK]);
        last.0[..rest.len()].copy_from_slice(rest);
        last.0[rest.len()] = 0x80;
        if rest.len() >= BLOCK - 8 {
            compress(&mut state, last.0.as_ptr().cast());
            last.0.fill(0);
        }
        last.0[BLOCK - 8..].copy_from_slice(&(8 * bytes.len() as u64).to_be_bytes());
        compress(&mut state, last.0.as_ptr().cast());
        let mut digest = [0; 32];
        for (bytes, word) in digest.as_chunks_mut().0.iter_mut().zip(state) {
            *bytes = word.to_be_bytes();
        }
        digest
    }
}

/// A block that begins at a word.
#[repr(C, align(4))]
struct Aligned([u8; BLOCK]);

/// Runs one compression of SHA-256.
#[inline(always)]
fn compress(state: &mut [u32; 8], block: *const u32) {
    // SAFETY: `block` is the aligned address of 64 bytes, `state` of 32; the instruction reads both
    // and writes the state.
    unsafe {
        asm!(".insn r 0x0b, 4, 2, {state}, {state}, {block}",
             state = in(reg) state, block = in(reg) block, options(nostack));
    }
}
