// Arithmetic modulo an odd prime below 2^61, as crates/rlwe/src/modulus.rs has it: reduced values in, reduced values
// out, no branch on a value. `min` of unsigned words is a predicated select on the device.
#pragma once
#include "types.cuh"

// A factor w below q with floor(w * 2^64 / q).
struct alignas(16) Shoup {
    uint64_t value, quotient;
};

// One prime of a ring with what its operations need; context.py writes these as rows of 12 words.
struct alignas(16) Limb {
    uint64_t q;
    // floor(2^(63 + bits) / q), below 2^64.
    uint64_t ratio;
    uint64_t bits;
    // B * 2^flood_bits mod q: the middle of the flooding.
    uint64_t flood_middle;
    // Inverse of t = 2^k; n^-1; n^-1 times the root of the last inverse stage; 2^flood_bits.
    Shoup t_inverse, scale, turn, flood_shift;
};

// x - q where x >= q, else x; for x below 2q.
__device__ inline uint64_t subtract_once(uint64_t x, uint64_t q) { return min(x, x - q); }
__device__ inline uint32_t subtract_once(uint32_t x, uint32_t q) { return min(x, x - q); }

__device__ inline uint64_t add_mod(uint64_t a, uint64_t b, uint64_t q) { return subtract_once(a + b, q); }
__device__ inline uint64_t sub_mod(uint64_t a, uint64_t b, uint64_t q) { return subtract_once(a + q - b, q); }

// high * 2^64 + low mod q for values below 2^(63 + bits of q): Barrett, the remainder below 3q before the two selects.
__device__ inline uint64_t reduce_wide(uint64_t high, uint64_t low, const Limb &limb) {
    uint32_t shift = uint32_t(limb.bits) - 1;
    uint64_t c = high << (64 - shift) | low >> shift;
    uint64_t rest = low - __umul64hi(c, limb.ratio) * limb.q;
    return subtract_once(subtract_once(rest, 2 * limb.q), limb.q);
}

__device__ inline uint64_t mul_mod(uint64_t a, uint64_t b, const Limb &limb) {
    return reduce_wide(__umul64hi(a, b), a * b, limb);
}

// x mod q for any x, and for signed x of any size.
__device__ inline uint64_t reduce(uint64_t x, const Limb &limb) { return reduce_wide(0, x, limb); }

__device__ inline uint64_t reduce_signed(int64_t x, const Limb &limb) {
    uint64_t sign = uint64_t(x >> 63);
    uint64_t rest = reduce((uint64_t(x) ^ sign) - sign, limb);
    return subtract_once(((rest ^ sign) - sign) + (limb.q & sign), limb.q);
}

// A signed value of magnitude below q.
__device__ inline uint64_t lift(int64_t x, uint64_t q) { return uint64_t(x) + (q & uint64_t(x >> 63)); }

// The representative of x in (-q/2, q/2).
__device__ inline int64_t centre(uint64_t x, uint64_t q) {
    uint64_t beyond = uint64_t(int64_t((q >> 1) - x) >> 63);
    return int64_t(x - (q & beyond));
}

// x * factor mod q for any x: in [0, 2q), and reduced.
__device__ inline uint64_t mul_shoup_lazy(uint64_t x, Shoup factor, uint64_t q) {
    return x * factor.value - __umul64hi(x, factor.quotient) * q;
}
__device__ inline uint64_t mul_shoup(uint64_t x, Shoup factor, uint64_t q) {
    return subtract_once(mul_shoup_lazy(x, factor, q), q);
}

// As words of 32 bits, for primes below 2^30: three products where 64 bits take about eleven.
__device__ inline uint32_t mul_shoup_lazy(uint32_t x, Shoup factor, uint32_t q) {
    return x * uint32_t(factor.value) - __umulhi(x, uint32_t(factor.quotient >> 32)) * q;
}
__device__ inline uint32_t mul_shoup(uint32_t x, Shoup factor, uint32_t q) {
    return subtract_once(mul_shoup_lazy(x, factor, q), q);
}
