// Messages mod t = 2^k as round(q * m / t), and back: crates/rlwe/src/context.rs. Constant time.
#pragma once
#include "modulus.cuh"

// What context.py passes of a context, 4 words.
struct alignas(16) Encoding {
    uint64_t plaintext_bits;
    // q mod t, and floor(2^(k + 64) / p0).
    uint64_t q_mod_t, ratio;
    uint64_t flood_bits;
};

// round(q * m / t) modulo one prime: (h - r) / t with h = t/2 and r = (q * m + h) mod t, as q * m is 0.
__device__ inline uint64_t encode(uint64_t message, const Encoding &encoding, const Limb &limb) {
    uint64_t mask = (uint64_t(1) << encoding.plaintext_bits) - 1, half = (mask >> 1) + 1;
    uint64_t rest = (encoding.q_mod_t * (message & mask) + half) & mask;
    return mul_shoup(lift(int64_t(half - rest), limb.q), limb.t_inverse, limb.q);
}

// 1 where a >= b, else 0; both below 2^63.
__device__ inline uint64_t not_below(uint64_t a, uint64_t b) { return ((a - b) >> 63) ^ 1; }

// round(phase * t / p0) mod t for a phase below p0, exactly.
__device__ inline uint64_t decode(uint64_t phase, const Encoding &encoding, uint64_t p) {
    uint64_t mask = (uint64_t(1) << encoding.plaintext_bits) - 1;
    // At most one too small: the ratio is.
    uint64_t quotient = __umul64hi(phase, encoding.ratio);
    uint64_t rest = (phase << encoding.plaintext_bits) - quotient * p;
    uint64_t missed = not_below(rest, p);
    rest -= missed * p;
    return (quotient + missed + not_below(rest, p / 2 + 1)) & mask;
}
