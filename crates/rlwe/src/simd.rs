//! Pointwise loops over a limb, by the path of its transform.

#![allow(unsafe_code)] // Calls of code for detected features; each block states why it is sound.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
mod encoding;
#[cfg(target_arch = "x86_64")]
mod wide;

pub(crate) use encoding::EncodingConstants;

use crate::{
    modulus::{Modulus, ShoupFactor, conditional_subtract},
    ntt::NttPath,
};

/// Runs a loop that the compiler vectorises, compiled for the widest vectors of this machine. The
/// closure and the functions that it calls must be small enough to be inlined.
#[inline(always)]
pub fn run_vectorised<T>(body: impl FnOnce() -> T) -> T {
    #[cfg(target_arch = "x86_64")]
    return wide::run_widest(body);
    #[cfg(not(target_arch = "x86_64"))]
    body()
}

/// x *= y.
pub(crate) fn multiply(path: NttPath, q: Modulus, x: &mut [u64], y: &[u64]) {
    #[cfg(target_arch = "x86_64")]
    if path == NttPath::Ifma {
        // SAFETY: a table has this path only if the machine has the path's features.
        return unsafe { avx512::multiply(q, x, y) };
    }
    let _ = path;
    x.iter_mut().zip(y).for_each(|(x, &y)| *x = q.mul(*x, y));
}

/// x += a·b.
pub(crate) fn add_product(path: NttPath, q: Modulus, x: &mut [u64], a: &[u64], b: &[u64]) {
    #[cfg(target_arch = "x86_64")]
    if path == NttPath::Ifma {
        // SAFETY: as in `multiply`.
        return unsafe { avx512::add_product(q, x, a, b) };
    }
    let _ = path;
    x.iter_mut().zip(a.iter().zip(b)).for_each(|(x, (&a, &b))| *x = q.mul_add(a, b, *x));
}

/// x −= a·b.
pub(crate) fn sub_product(path: NttPath, q: Modulus, x: &mut [u64], a: &[u64], b: &[u64]) {
    #[cfg(target_arch = "x86_64")]
    if path == NttPath::Ifma {
        // SAFETY: as in `multiply`.
        return unsafe { avx512::sub_product(q, x, a, b) };
    }
    let _ = path;
    x.iter_mut().zip(a.iter().zip(b)).for_each(|(x, (&a, &b))| *x = q.sub(*x, q.mul(a, b)));
}

/// x *= factor.
pub(crate) fn scale(path: NttPath, q: Modulus, x: &mut [u64], factor: ShoupFactor) {
    #[cfg(target_arch = "x86_64")]
    if path == NttPath::Ifma {
        // SAFETY: as in `multiply`.
        return unsafe { avx512::scale(q, x, factor) };
    }
    let _ = path;
    x.iter_mut().for_each(|x| *x = q.mul_shoup(*x, factor));
}

/// x += round(q·m/t).
pub(crate) fn add_encoded(
    path: NttPath,
    p: Modulus,
    x: &mut [u64],
    messages: &[u64],
    e: &EncodingConstants,
) {
    #[cfg(target_arch = "x86_64")]
    if path == NttPath::Ifma {
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
pub(crate) fn divide_by_last_prime(
    path: NttPath,
    q: Modulus,
    x: &mut [u64],
    rest: &[u64],
    last: Modulus,
    inverse: ShoupFactor,
) {
    // Primes of one width: the centred value is below 2q, so one step reduces it.
    if last.value() / 2 < q.value() {
        run_vectorised(|| {
            let (half, shift) = (last.value() / 2, q.value() * 2 - last.value());
            for (x, &rest) in x.iter_mut().zip(rest) {
                // rest, minus last if rest > last/2, plus 2q: in (q, 3q).
                let above = (half.wrapping_sub(rest) >> 63).wrapping_neg();
                let lifted = rest + (shift & above) + ((2 * q.value()) & !above);
                *x = conditional_subtract(
                    conditional_subtract(*x + 3 * q.value() - lifted, 2 * q.value()),
                    q.value(),
                );
            }
        });
    } else {
        for (x, &rest) in x.iter_mut().zip(rest) {
            *x = q.sub(*x, q.reduce_signed(last.to_centred(rest)));
        }
    }
    scale(path, q, x, inverse);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Rng, ntt_primes_below};

    const N: usize = 64;

    /// Uniform values, with the extremes first.
    fn values(rng: &mut Rng, q: Modulus) -> Vec<u64> {
        let mut values = vec![0; N];
        rng.fill_uniform(q, &mut values);
        values[..3].copy_from_slice(&[0, 1, q.value() - 1]);
        values
    }

    #[test]
    fn every_path_computes_the_same_loops() {
        let mut rng = Rng::from_seed([81; 32]);
        for bits in [25, 40, 49, 50, 51, 60, 61] {
            let q = Modulus::new(ntt_primes_below(bits, N, 1)[0]).unwrap();
            let [x, mut a, b] = [(); 3].map(|()| values(&mut rng, q));
            a.reverse();
            for path in NttPath::available(q) {
                let run = |each: &dyn Fn(&mut [u64])| {
                    let mut x = x.clone();
                    each(&mut x);
                    x
                };
                let each = |value: fn(Modulus, u64, u64, u64) -> u64| -> Vec<u64> {
                    (0..N).map(|i| value(q, x[i], a[i], b[i])).collect()
                };
                assert_eq!(run(&|x| multiply(path, q, x, &a)), each(|q, x, a, _| q.mul(x, a)));
                assert_eq!(
                    run(&|x| add_product(path, q, x, &a, &b)),
                    each(|q, x, a, b| q.add(x, q.mul(a, b)))
                );
                assert_eq!(
                    run(&|x| sub_product(path, q, x, &a, &b)),
                    each(|q, x, a, b| q.sub(x, q.mul(a, b)))
                );
                let factor = q.shoup_factor(q.value() - 2);
                assert_eq!(
                    run(&|x| scale(path, q, x, factor)),
                    each(|q, x, _, _| q.mul(x, q.value() - 2))
                );
            }
        }
    }

    #[test]
    fn every_path_encodes_as_wide_division_does() {
        let mut rng = Rng::from_seed([82; 32]);
        let primes = ntt_primes_below(50, N, 2);
        let product = u128::from(primes[0]) * u128::from(primes[1]);
        for k in [2, 8, 33, 47] {
            let t = 1u64 << k;
            let mut messages = vec![0; N];
            rng.fill_bits(k, &mut messages);
            messages[..3].copy_from_slice(&[t - 1, t / 2, t / 2 - 1]);
            for p in primes.iter().map(|&p| Modulus::new(p).unwrap()) {
                let e = EncodingConstants {
                    q_mod_t: product as u64 & (t - 1),
                    half: t / 2,
                    mask: t - 1,
                    inverse: p.shoup_factor(p.inverse(t)),
                };
                // (q·m + h)/t, by halves so that nothing passes 128 bits.
                let exact = |&m: &u64| {
                    let (m, t) = (u128::from(m), u128::from(t));
                    let (quotient, rest) = (product / t, product % t);
                    let sum = quotient % u128::from(p.value()) * m + (rest * m + t / 2) / t;
                    (sum % u128::from(p.value())) as u64
                };
                let wanted: Vec<u64> = messages.iter().map(exact).collect();
                for path in NttPath::available(p) {
                    let mut x = vec![0; N];
                    add_encoded(path, p, &mut x, &messages, &e);
                    assert_eq!(x, wanted, "{path}, k = {k}");
                }
            }
        }
    }

    #[test]
    fn every_path_divides_by_a_prime_of_any_width() {
        let mut rng = Rng::from_seed([83; 32]);
        for (bits, last_bits) in [(50, 50), (40, 60), (60, 40), (40, 41), (61, 61), (25, 61)] {
            let q = Modulus::new(ntt_primes_below(bits, N, 1)[0]).unwrap();
            let last = Modulus::new(ntt_primes_below(last_bits, N, 2)[1]).unwrap();
            let (x, rest) = (values(&mut rng, q), values(&mut rng, last));
            let inverse = q.inverse(q.reduce(last.value()));
            let exact = |(&x, &rest): (&u64, &u64)| {
                q.mul(q.sub(x, q.reduce_signed(last.to_centred(rest))), inverse)
            };
            let wanted: Vec<u64> = x.iter().zip(&rest).map(exact).collect();
            for path in NttPath::available(q) {
                let mut x = x.clone();
                divide_by_last_prime(path, q, &mut x, &rest, last, q.shoup_factor(inverse));
                assert_eq!(x, wanted, "{path}, {bits} and {last_bits} bits");
            }
        }
    }
}
