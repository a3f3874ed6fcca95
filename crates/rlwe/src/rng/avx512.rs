//! ChaCha20, sixteen blocks at a time: register i holds word i of all of them, so that the rounds
//! are the RFC's with registers for words; a transposition at the end puts each block together.

#![allow(unsafe_code)] // Intrinsics; each block states why it is sound.

use std::{arch::x86_64::*, mem};

use zeroize::Zeroize;

use super::keystream::{STREAM_WORDS, Seed};

/// "expand 32-byte k" (RFC 8439, section 2.3).
const CONSTANTS: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];
/// The number of blocks that are computed at a time; each has eight 64-bit words.
const LANES: u32 = 16;

/// The state of a keystream: key, nonce and the number of the next block.
pub(super) struct KeystreamBlocks {
    state: [u32; 16],
    spent: bool,
}

impl KeystreamBlocks {
    /// Starts a keystream; `None` on machines without AVX-512.
    pub(super) fn new(seed: &Seed, nonce: &[u8; 12]) -> Option<KeystreamBlocks> {
        if !is_x86_feature_detected!("avx512f") {
            return None;
        }
        let word = |bytes: &[u8; 4]| u32::from_le_bytes(*bytes);
        let mut state = [0; 16];
        state[..4].copy_from_slice(&CONSTANTS);
        state[4..12].iter_mut().zip(seed.as_chunks().0).for_each(|(x, bytes)| *x = word(bytes));
        state[13..].iter_mut().zip(nonce.as_chunks().0).for_each(|(x, bytes)| *x = word(bytes));
        Some(KeystreamBlocks { state, spent: false })
    }

    /// Writes the next 64 blocks.
    ///
    /// # Panics
    /// After 2^32 blocks, 256 GiB.
    pub(super) fn fill(&mut self, words: &mut [u64; STREAM_WORDS]) {
        assert!(!self.spent, "a generator yields 256 GiB at most");
        for part in words.as_chunks_mut().0 {
            // SAFETY: `new`, the only constructor, checked for the feature.
            unsafe { compute_blocks(&self.state, part) };
            self.state[12] = self.state[12].wrapping_add(LANES);
        }
        self.spent = self.state[12] == 0;
    }
}

impl Drop for KeystreamBlocks {
    fn drop(&mut self) {
        self.state.zeroize();
    }
}

/// Computes sixteen blocks, of which the first is that of the state.
#[target_feature(enable = "avx512f")]
fn compute_blocks(state: &[u32; 16], out: &mut [u64; 128]) {
    let mut start = [_mm512_setzero_si512(); 16];
    for (register, &word) in start.iter_mut().zip(state) {
        *register = _mm512_set1_epi32(word as i32);
    }
    let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    start[12] = _mm512_add_epi32(start[12], lanes);
    let mut x = start;
    for _ in 0..10 {
        for [a, b, c, d] in [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]] {
            quarter_round(&mut x, a, b, c, d);
        }
        for [a, b, c, d] in [[0, 5, 10, 15], [1, 6, 11, 12], [2, 7, 8, 13], [3, 4, 9, 14]] {
            quarter_round(&mut x, a, b, c, d);
        }
    }
    for (x, start) in x.iter_mut().zip(start) {
        *x = _mm512_add_epi32(*x, start);
    }
    transpose(&x, out);
}

#[inline]
#[target_feature(enable = "avx512f")]
fn quarter_round(x: &mut [__m512i; 16], a: usize, b: usize, c: usize, d: usize) {
    x[a] = _mm512_add_epi32(x[a], x[b]);
    x[d] = _mm512_rol_epi32::<16>(_mm512_xor_si512(x[d], x[a]));
    x[c] = _mm512_add_epi32(x[c], x[d]);
    x[b] = _mm512_rol_epi32::<12>(_mm512_xor_si512(x[b], x[c]));
    x[a] = _mm512_add_epi32(x[a], x[b]);
    x[d] = _mm512_rol_epi32::<8>(_mm512_xor_si512(x[d], x[a]));
    x[c] = _mm512_add_epi32(x[c], x[d]);
    x[b] = _mm512_rol_epi32::<7>(_mm512_xor_si512(x[b], x[c]));
}

/// Reorders the words of sixteen blocks: from word i of all blocks in register i to one block after
/// the other.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose(x: &[__m512i; 16], out: &mut [u64; 128]) {
    // For each four words, register j has in its 128-bit lane l those words of block 4l + j.
    let mut quads = [[_mm512_setzero_si512(); 4]; 4];
    for (quad, words) in quads.iter_mut().zip(x.as_chunks::<4>().0) {
        let low = _mm512_unpacklo_epi32(words[0], words[1]);
        let high = _mm512_unpackhi_epi32(words[0], words[1]);
        let next_low = _mm512_unpacklo_epi32(words[2], words[3]);
        let next_high = _mm512_unpackhi_epi32(words[2], words[3]);
        quad[0] = _mm512_unpacklo_epi64(low, next_low);
        quad[1] = _mm512_unpackhi_epi64(low, next_low);
        quad[2] = _mm512_unpacklo_epi64(high, next_high);
        quad[3] = _mm512_unpackhi_epi64(high, next_high);
    }
    let [first, second, third, fourth] = quads;
    let (out, _) = out.as_chunks_mut::<8>();
    for j in 0..4 {
        let even = _mm512_shuffle_i32x4::<0x88>(first[j], second[j]);
        let even_next = _mm512_shuffle_i32x4::<0x88>(third[j], fourth[j]);
        let odd = _mm512_shuffle_i32x4::<0xdd>(first[j], second[j]);
        let odd_next = _mm512_shuffle_i32x4::<0xdd>(third[j], fourth[j]);
        out[j] = to_words(_mm512_shuffle_i32x4::<0x88>(even, even_next));
        out[4 + j] = to_words(_mm512_shuffle_i32x4::<0x88>(odd, odd_next));
        out[8 + j] = to_words(_mm512_shuffle_i32x4::<0xdd>(even, even_next));
        out[12 + j] = to_words(_mm512_shuffle_i32x4::<0xdd>(odd, odd_next));
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn to_words(register: __m512i) -> [u64; 8] {
    // SAFETY: both are 64 bytes of integers, and every pattern of bits is a value of either.
    unsafe { mem::transmute::<__m512i, [u64; 8]>(register) }
}
