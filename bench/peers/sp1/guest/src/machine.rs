//! SP1's machine: where a program begins, its system calls, memory that is never given back.
//!
//! The numbers are those of `sp1-zkvm` 6.10.0, which itself needs a toolchain that no registry has.
//! What is committed is the statement's encoding: SP1 binds SHA-256 of it, and that is the digest
//! which our own guests reveal. So both machines hash the statement once, and agree on 32 bytes.
#![allow(unsafe_code, reason = "the machine is reached through assembly and raw memory only")]

use alloc::vec::Vec;
use core::{
    alloc::{GlobalAlloc, Layout},
    arch::{asm, global_asm},
    panic::PanicInfo,
    ptr,
};

use confide_guest_programs::{Input, Source, machine::Sha256, sort};
use sha2::Digest as _;

/// System calls.
const HALT: usize = 0x00;
const WRITE: usize = 0x02;
const COMMIT: usize = 0x10;
const COMMIT_DEFERRED_PROOFS: usize = 0x1a;
const HINT_LEN: usize = 0xf0;
const HINT_READ: usize = 0xf1;

/// Where public values are written to.
const PUBLIC_VALUES: usize = 13;

/// Exit status of a run that the program refused: no proof of it passes.
const REFUSED: usize = 1;

/// Input is read in words of eight bytes, and one more word is written behind the last.
const WORD: usize = 8;

// The stack grows down from where the program's first segment lies.
global_asm!(
    ".section .text._start",
    ".globl _start",
    "_start:",
    ".option push",
    ".option norelax",
    "la gp, __global_pointer$",
    ".option pop",
    "li sp, 0x78000000",
    "call {main}",
    main = sym main,
);

extern "C" fn main() -> ! {
    let bytes = input();
    let input = Input::new(Words(&bytes), bytes.len());
    match input.and_then(|mut input| sort::<Machine>(&mut input)) {
        Ok(statement) => {
            commit(statement.digest_by(|encoding| {
                call(WRITE, PUBLIC_VALUES, encoding.as_ptr() as usize, encoding.len());
                Machine::sha256(encoding)
            }));
            halt(0)
        }
        Err(_) => halt(REFUSED),
    }
}

/// The first input of the run.
fn input() -> Vec<u8> {
    let length = call(HINT_LEN, 0, 0, 0);
    // Memory that nothing has touched, aligned to a word: what the machine asks for.
    let mut words = Vec::<u64>::with_capacity(length / WORD + 1);
    call(HINT_READ, words.as_mut_ptr() as usize, length, 0);
    // SAFETY: the machine has written `length` bytes, filled up to whole words.
    unsafe { words.set_len(length.div_ceil(WORD)) };
    words.iter().flat_map(|word| word.to_le_bytes()).take(length).collect()
}

/// Binds the digest of what was written to the public values, and that no other proof was used.
fn commit(digest: [u8; 32]) {
    for (at, word) in digest.as_chunks().0.iter().enumerate() {
        call(COMMIT, at, u32::from_le_bytes(*word) as usize, 0);
    }
    for at in 0..8 {
        call(COMMIT_DEFERRED_PROOFS, at, 0, 0);
    }
}

fn halt(status: usize) -> ! {
    loop {
        call(HALT, status, 0, 0);
    }
}

fn call(code: usize, a: usize, b: usize, c: usize) -> usize {
    let answer;
    // SAFETY: each caller hands over memory of its own, as long as it says.
    unsafe {
        asm!("ecall", inlateout("t0") code => answer, in("a0") a, in("a1") b, in("a2") c);
    }
    answer
}

/// What is left of the input.
struct Words<'a>(&'a [u8]);

impl Source for Words<'_> {
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

/// Ordinary instructions. SP1 has SHA-256 apart, in tables of its own: for two blocks they cost more
/// than they save.
struct Machine;

impl Sha256 for Machine {
    fn sha256(bytes: &[u8]) -> [u8; 32] {
        sha2::Sha256::digest(bytes).into()
    }
}

/// Hands out memory from the program's end upwards.
struct Bump;

#[global_allocator]
static MEMORY: Bump = Bump;

unsafe extern "C" {
    /// The linker's: the first byte behind the program.
    static _end: u8;
}

/// The first byte that is free; 0 before the first time.
static mut FREE: usize = 0;

// SAFETY: one thread, and no byte is handed out twice.
unsafe impl GlobalAlloc for Bump {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: one thread; no reference to FREE is kept.
        unsafe {
            let free = if FREE == 0 { &raw const _end as usize } else { FREE };
            let start = free.next_multiple_of(layout.align().max(WORD));
            FREE = start + layout.size();
            ptr::with_exposed_provenance_mut(start)
        }
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    halt(REFUSED)
}
