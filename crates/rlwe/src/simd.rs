//! Loops over a limb, for the path of its transform.

#![allow(unsafe_code)] // Calls of code for detected features; each block says why it is sound.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;

use crate::{Modulus, Path, Shoup, modulus::once};

/// Runs a loop that the compiler turns into vector code by itself, compiled for the widest vectors
/// of this machine.
#[inline(always)]
pub(crate) fn vectorised<T>(body: impl FnOnce() -> T) -> T {
    #[cfg(target_arch = "x86_64")]
    if avx512::has_wide_loops() {
        // SAFETY: the features of `wide_loop` were just seen.
        return unsafe { avx512::wide_loop(body) };
    }
    body()
}

/// x *= y.
pub(crate) fn multiply(path: Path, q: Modulus, x: &mut [u64], y: &[u64]) {
    #[cfg(target_arch = "x86_64")]
    if path == Path::Ifma {
        // SAFETY: a table of this path is made only where the machine has its features.
        return unsafe { avx512::multiply(q, x, y) };
    }
    let _ = path;
    x.iter_mut().zip(y).for_each(|(x, &y)| *x = q.mul(*x, y));
}

/// x += a·b.
pub(crate) fn add_product(path: Path, q: Modulus, x: &mut [u64], a: &[u64], b: &[u64]) {
    #[cfg(target_arch = "x86_64")]
    if path == Path::Ifma {
        // SAFETY: as in `multiply`.
        return unsafe { avx512::add_product(q, x, a, b) };
    }
    let _ = path;
    x.iter_mut().zip(a.iter().zip(b)).for_each(|(x, (&a, &b))| *x = q.mul_add(a, b, *x));
}

/// x −= a·b.
pub(crate) fn sub_product(path: Path, q: Modulus, x: &mut [u64], a: &[u64], b: &[u64]) {
    #[cfg(target_arch = "x86_64")]
    if path == Path::Ifma {
        // SAFETY: as in `multiply`.
        return unsafe { avx512::sub_product(q, x, a, b) };
    }
    let _ = path;
    x.iter_mut().zip(a.iter().zip(b)).for_each(|(x, (&a, &b))| *x = q.sub(*x, q.mul(a, b)));
}

/// x *= factor.
pub(crate) fn scale(path: Path, q: Modulus, x: &mut [u64], factor: Shoup) {
    #[cfg(target_arch = "x86_64")]
    if path == Path::Ifma {
        // SAFETY: as in `multiply`.
        return unsafe { avx512::scale(q, x, factor) };
    }
    let _ = path;
    x.iter_mut().for_each(|x| *x = q.mul_shoup(*x, factor));
}

/// What a message is encoded with: see [`crate::Context`].
#[derive(Clone, Copy)]
pub(crate) struct Encoding {
    /// q mod t.
    pub(crate) q_mod_t: u64,
    /// t / 2.
    pub(crate) half: u64,
    /// t − 1.
    pub(crate) mask: u64,
    /// t^−1 modulo the prime.
    pub(crate) inverse: Shoup,
}

/// x += round(q·m/t).
pub(crate) fn add_encoded(path: Path, p: Modulus, x: &mut [u64], messages: &[u64], e: &Encoding) {
    #[cfg(target_arch = "x86_64")]
    if path == Path::Ifma {
        // SAFETY: as in `multiply`.
        return unsafe { avx512::add_encoded(p, x, messages, e) };
    }
    let _ = path;
    for (x, &message) in x.iter_mut().zip(messages) {
        let rest = e.q_mod_t.wrapping_mul(message).wrapping_add(e.half) & e.mask;
        *x = p.add(*x, p.mul_shoup(p.value() + e.half - rest, e.inverse));
    }
}

/// x = (x − centred(rest)) / last, where `rest` holds values modulo `last`.
pub(crate) fn divide_last(
    path: Path,
    q: Modulus,
    x: &mut [u64],
    rest: &[u64],
    last: Modulus,
    inverse: Shoup,
) {
    // Primes of one width: the centred value is below 2q, and one step reduces it.
    if last.value() / 2 < q.value() {
        vectorised(|| {
            let (half, shift) = (last.value() / 2, q.value() * 2 - last.value());
            for (x, &rest) in x.iter_mut().zip(rest) {
                // rest − last where rest > last/2, plus 2q: in (q, 3q).
                let above = (half.wrapping_sub(rest) >> 63).wrapping_neg();
                let lifted = rest + (shift & above) + (2 * q.value() & !above);
                *x = once(once(*x + 3 * q.value() - lifted, 2 * q.value()), q.value());
            }
        });
    } else {
        for (x, &rest) in x.iter_mut().zip(rest) {
            *x = q.sub(*x, q.reduce_signed(last.centred(rest)));
        }
    }
    scale(path, q, x, inverse);
}
