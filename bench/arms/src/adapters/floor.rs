//! Bounds that are measured next to a run.

use std::{thread, time::Instant};

use confide_arm_line::Outcome;
use confide_rlwe::{Modulus, NttTable, Rng, ntt_primes_below};

/// Bytes that the base model reads for a token: Qwen2.5-1.5B in bf16, its tied head included.
pub(crate) const BASE_BYTES: f64 = 3.087e9;

/// Bytes that all threads together read in one pass: more than caches hold.
const READ_BYTES: usize = 128 << 20;

/// Bytes a second that all cores together read from memory: the best of some passes.
pub(crate) fn measure_memory_read_bytes_per_s() -> f64 {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let words = vec![1u64; READ_BYTES / 8];
    let part = words.len().div_ceil(threads);
    let pass = || {
        let began = Instant::now();
        thread::scope(|scope| {
            for part in words.chunks(part) {
                scope.spawn(|| std::hint::black_box(xor_words(part)));
            }
        });
        READ_BYTES as f64 / began.elapsed().as_secs_f64()
    };
    std::iter::repeat_with(pass).take(5).fold(0.0, f64::max)
}

fn xor_words(words: &[u64]) -> u64 {
    let mut lanes = [0u64; 16];
    for chunk in words.chunks_exact(16) {
        lanes.iter_mut().zip(chunk).for_each(|(lane, word)| *lane ^= word);
    }
    lanes.iter().fold(0, |all, lane| all ^ lane)
}

/// The work that no masked offline share can do without, in ms a token of this thread: the
/// keystream of `a` (expanded by both ends), of masks and errors, and two transforms of two limbs
/// for every encrypted column.
pub(crate) fn measure_offline_floor_ms(width: usize) -> Outcome<f64> {
    const N: usize = 4096;
    const LIMBS: usize = 2;
    // `a` at both ends, 8 bytes a value; a mask in 5 bytes; 42 bits of an error.
    let stream_bytes = (width * N * (2 * LIMBS * 8 + 5 + 6)) as f64;
    let transforms = (width * 2 * LIMBS) as f64;
    let seconds = stream_bytes / measure_keystream_bytes_per_s() + transforms * measure_ntt_s(N)?;
    Ok(seconds * 1e3 / N as f64)
}

fn measure_keystream_bytes_per_s() -> f64 {
    let mut bytes = vec![0; 1 << 20];
    let mut rng = Rng::from_seed([3; 32]);
    let mut once = || {
        let began = Instant::now();
        rng.fill_bytes(&mut bytes);
        bytes.len() as f64 / began.elapsed().as_secs_f64()
    };
    std::iter::repeat_with(&mut once).take(8).fold(0.0, f64::max)
}

fn measure_ntt_s(n: usize) -> Outcome<f64> {
    let prime = ntt_primes_below(50, n, 1).first().copied().ok_or("no prime below 2^50")?;
    let modulus = Modulus::new(prime)?;
    let table = NttTable::new(n, modulus)?;
    let mut values: Vec<u64> = (0..n as u64).collect();
    let mut once = || {
        let began = Instant::now();
        table.forward(&mut values);
        began.elapsed().as_secs_f64()
    };
    Ok(std::iter::repeat_with(&mut once).take(32).fold(f64::INFINITY, f64::min))
}
