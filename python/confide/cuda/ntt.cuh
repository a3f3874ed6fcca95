// The negacyclic transform of crates/rlwe/src/ntt.rs, by one block in shared memory: three stages at a time in
// registers, then through shared memory to the next three. Same roots, same order, same values.
//
// Floor of one transform of degree n: n/2 * log2(n) butterflies of about 28 integer instructions at 64 bits (6 of them
// __umul64hi, 6 the two low products), about 9 at 32 bits; n words from and to memory. n = 4096: 24,576 butterflies.
#pragma once
#include "modulus.cuh"

// The word that values are held in: 64 bits, or 32 where all primes are below 2^30.
#ifndef RING_WORD
#define RING_WORD uint64_t
#endif
typedef RING_WORD Word;

// One word of padding after as many as there are banks, so that strides of a power of two do not meet in one bank.
constexpr uint32_t PAD_SHIFT = sizeof(Word) == 8 ? 4 : 5;

// Where element i stands in shared memory; the host asks for `at(n)` words.
__device__ inline uint32_t at(uint32_t i) { return i + (i >> PAD_SHIFT); }

// Roots of one limb: `[forward, inverse][n]`, powers in bit-reversed order.
__device__ inline const Shoup *roots_of(const Shoup *roots, uint32_t limb, uint32_t n, bool inverse) {
    return roots + (size_t(2 * limb) + inverse) * n;
}

// LOG stages of Cooley-Tukey from the one with `groups` groups on; values stay below 4q, LAST reduces them.
template <uint32_t LOG, bool LAST>
__device__ inline void forward_pass(Word *values, uint32_t log_n, uint32_t log_groups, const Shoup *roots, Word q) {
    constexpr uint32_t RADIX = 1u << LOG;
    const uint32_t log_stride = log_n - log_groups - LOG, stride = 1u << log_stride;
    const Word two_q = 2 * q;
#pragma unroll 1
    for (uint32_t item = threadIdx.x; item < 1u << (log_n - LOG); item += blockDim.x) {
        uint32_t block = item >> log_stride;
        uint32_t base = (block << (log_stride + LOG)) + (item & (stride - 1));
        Word x[RADIX];
#pragma unroll
        for (uint32_t k = 0; k < RADIX; k++) x[k] = values[at(base + (k << log_stride))];
#pragma unroll
        for (uint32_t stage = 0; stage < LOG; stage++) {
            uint32_t half = RADIX >> (stage + 1);
#pragma unroll
            for (uint32_t group = 0; group < 1u << stage; group++) {
                Shoup root = roots[(((1u << log_groups) + block) << stage) + group];
#pragma unroll
                for (uint32_t k = 0; k < half; k++) {
                    Word &left = x[group * 2 * half + k], &right = x[group * 2 * half + half + k];
                    Word base_value = once(left, two_q), turned = mul_shoup_lazy(right, root, q);
                    left = base_value + turned;
                    right = base_value + two_q - turned;
                }
            }
        }
#pragma unroll
        for (uint32_t k = 0; k < RADIX; k++) {
            values[at(base + (k << log_stride))] = LAST ? once(once(x[k], two_q), q) : x[k];
        }
    }
    __syncthreads();
}

// LOG stages of Gentleman-Sande from the one with distance `stride` on; values stay below 2q. LAST multiplies by n^-1 as
// well and reduces.
template <uint32_t LOG, bool LAST>
__device__ inline void inverse_pass(Word *values, uint32_t log_n, uint32_t log_stride, const Shoup *roots,
                                    const Limb &limb) {
    constexpr uint32_t RADIX = 1u << LOG;
    const uint32_t stride = 1u << log_stride;
    const Word q = Word(limb.q), two_q = 2 * q;
#pragma unroll 1
    for (uint32_t item = threadIdx.x; item < 1u << (log_n - LOG); item += blockDim.x) {
        uint32_t block = item >> log_stride;
        uint32_t base = (block << (log_stride + LOG)) + (item & (stride - 1));
        Word x[RADIX];
#pragma unroll
        for (uint32_t k = 0; k < RADIX; k++) x[k] = values[at(base + (k << log_stride))];
#pragma unroll
        for (uint32_t stage = 0; stage < LOG; stage++) {
            bool last = LAST && stage + 1 == LOG;
            uint32_t half = 1u << stage, groups = 1u << (log_n - log_stride - stage - 1);
#pragma unroll
            for (uint32_t group = 0; group < RADIX >> (stage + 1); group++) {
                Shoup root = last ? limb.turn : roots[groups + (block << (LOG - 1 - stage)) + group];
#pragma unroll
                for (uint32_t k = 0; k < half; k++) {
                    Word &left = x[group * 2 * half + k], &right = x[group * 2 * half + half + k];
                    Word sum = left + right, difference = left + two_q - right;
                    left = last ? mul_shoup(sum, limb.scale, q) : once(sum, two_q);
                    right = last ? mul_shoup(difference, root, q) : mul_shoup_lazy(difference, root, q);
                }
            }
        }
#pragma unroll
        for (uint32_t k = 0; k < RADIX; k++) values[at(base + (k << log_stride))] = x[k];
    }
    __syncthreads();
}

// Coefficient form to NTT form, reduced values in place; n = 2^log_n from 16. Threads have met after it.
__device__ inline void forward(Word *values, uint32_t log_n, const Shoup *roots, const Limb &limb) {
    Word q = Word(limb.q);
    uint32_t done = log_n % 3;
    __syncthreads();
    if (done == 1) forward_pass<1, false>(values, log_n, 0, roots, q);
    if (done == 2) forward_pass<2, false>(values, log_n, 0, roots, q);
#pragma unroll 1
    for (; done + 3 < log_n; done += 3) forward_pass<3, false>(values, log_n, done, roots, q);
    forward_pass<3, true>(values, log_n, done, roots, q);
}

// NTT form to coefficient form, reduced values in place. Threads have met after it.
__device__ inline void inverse(Word *values, uint32_t log_n, const Shoup *roots, const Limb &limb) {
    uint32_t done = 0;
    __syncthreads();
#pragma unroll 1
    for (; done + 3 < log_n; done += 3) inverse_pass<3, false>(values, log_n, done, roots, limb);
    if (log_n - done == 1) inverse_pass<1, true>(values, log_n, done, roots, limb);
    if (log_n - done == 2) inverse_pass<2, true>(values, log_n, done, roots, limb);
    if (log_n - done == 3) inverse_pass<3, true>(values, log_n, done, roots, limb);
}
