// The negacyclic transform of crates/rlwe/src/ntt.rs, by one block in shared memory: three stages at a time in
// registers, then through shared memory to the next three. Same roots, same order, same values.
//
// Floor of one transform of degree n: n/2 * log2(n) butterflies of about 28 integer instructions at 64 bits (6 of them
// __umul64hi, 6 the two low products), about 9 at 32 bits; n words from and to memory. n = 4096: 24,576.
#pragma once
#include "modulus.cuh"

// The word that values are held in: 64 bits, or 32 where all primes are below 2^30.
#ifndef RING_WORD
#define RING_WORD uint64_t
#endif
typedef RING_WORD Word;

// One word of padding after as many as there are banks, so that strides of a power of two do not meet in one bank.
constexpr uint32_t PAD_SHIFT = sizeof(Word) == 8 ? 4 : 5;

// Where element i stands in shared memory; the host asks for `padded_index(n)` words.
__device__ inline uint32_t padded_index(uint32_t i) { return i + (i >> PAD_SHIFT); }

// Roots of one limb: `[forward, inverse][n]`, powers in bit-reversed order.
__device__ inline const Shoup *roots_of(const Shoup *roots, uint32_t limb, uint32_t n, bool inverse) {
    return roots + (size_t(2 * limb) + inverse) * n;
}

// LOG stages of Cooley-Tukey on values that stay below 4q. `node` is the number of the first stage's group in the tree
// of groups, 1 for the whole: the root's place.
template <uint32_t LOG>
__device__ inline void forward_butterflies(Word *x, const Shoup *roots, uint32_t node, Word q) {
    const Word two_q = 2 * q;
#pragma unroll
    for (uint32_t stage = 0; stage < LOG; stage++) {
        const uint32_t half = (1u << LOG) >> (stage + 1);
#pragma unroll
        for (uint32_t group = 0; group < 1u << stage; group++) {
            Shoup root = roots[(node << stage) + group];
#pragma unroll
            for (uint32_t k = 0; k < half; k++) {
                Word &left = x[group * 2 * half + k], &right = x[group * 2 * half + half + k];
                Word base = subtract_once(left, two_q), turned = mul_shoup_lazy(right, root, q);
                left = base + turned;
                right = base + two_q - turned;
            }
        }
    }
}

// LOG stages of Gentleman-Sande on values that stay below 2q; `node` is the number of the last stage's group. LAST:
// that is the whole; multiplies by n^-1 as well and reduces.
template <uint32_t LOG, bool LAST>
__device__ inline void inverse_butterflies(Word *x, const Shoup *roots, uint32_t node, const Limb &limb) {
    const Word q = Word(limb.q), two_q = 2 * q;
#pragma unroll
    for (uint32_t stage = 0; stage < LOG; stage++) {
        const bool last = LAST && stage + 1 == LOG;
        const uint32_t half = 1u << stage;
#pragma unroll
        for (uint32_t group = 0; group < (1u << LOG) >> (stage + 1); group++) {
            Shoup root = last ? limb.turn : roots[(node << (LOG - 1 - stage)) + group];
#pragma unroll
            for (uint32_t k = 0; k < half; k++) {
                Word &left = x[group * 2 * half + k], &right = x[group * 2 * half + half + k];
                Word sum = left + right, difference = left + two_q - right;
                left = last ? mul_shoup(sum, limb.scale, q) : subtract_once(sum, two_q);
                right = last ? mul_shoup(difference, root, q) : mul_shoup_lazy(difference, root, q);
            }
        }
    }
}

__device__ inline Word reduced_once(Word x, Word q) { return subtract_once(subtract_once(x, 2 * q), q); }

// A pass over a part of 2^log_n values in shared memory, the part being group `node` of the whole transform (1: the
// whole): LOG stages from the one with 2^log_groups groups in the part on. FINAL reduces.
template <uint32_t LOG, bool FINAL>
__device__ inline void forward_pass(Word *values, uint32_t log_n, uint32_t log_groups, uint32_t node,
                                    const Shoup *roots, Word q) {
    constexpr uint32_t RADIX = 1u << LOG;
    const uint32_t log_stride = log_n - log_groups - LOG;
#pragma unroll 1
    for (uint32_t item = threadIdx.x; item < 1u << (log_n - LOG); item += blockDim.x) {
        uint32_t block = item >> log_stride;
        uint32_t base = (block << (log_stride + LOG)) + (item & ((1u << log_stride) - 1));
        Word x[RADIX];
#pragma unroll
        for (uint32_t k = 0; k < RADIX; k++) x[k] = values[padded_index(base + (k << log_stride))];
        forward_butterflies<LOG>(x, roots, (node << log_groups) + block, q);
#pragma unroll
        for (uint32_t k = 0; k < RADIX; k++) {
            values[padded_index(base + (k << log_stride))] = FINAL ? reduced_once(x[k], q) : x[k];
        }
    }
    __syncthreads();
}

// As forward_pass, the other way: LOG stages from the one with distance 2^log_stride on.
template <uint32_t LOG, bool LAST>
__device__ inline void inverse_pass(Word *values, uint32_t log_n, uint32_t log_stride, uint32_t node,
                                    const Shoup *roots, const Limb &limb) {
    constexpr uint32_t RADIX = 1u << LOG;
#pragma unroll 1
    for (uint32_t item = threadIdx.x; item < 1u << (log_n - LOG); item += blockDim.x) {
        uint32_t block = item >> log_stride;
        uint32_t base = (block << (log_stride + LOG)) + (item & ((1u << log_stride) - 1));
        Word x[RADIX];
#pragma unroll
        for (uint32_t k = 0; k < RADIX; k++) x[k] = values[padded_index(base + (k << log_stride))];
        inverse_butterflies<LOG, LAST>(x, roots, (node << (log_n - log_stride - LOG)) + block, limb);
#pragma unroll
        for (uint32_t k = 0; k < RADIX; k++) values[padded_index(base + (k << log_stride))] = x[k];
    }
    __syncthreads();
}

// Coefficient form to NTT form, in place; 2^log_n values from 16, group `node` of the whole transform (values below 4q
// where it is a part), reduced at the end. Threads have met before and after it.
__device__ inline void forward(Word *values, uint32_t log_n, const Shoup *roots, const Limb &limb, uint32_t node = 1) {
    Word q = Word(limb.q);
    uint32_t done = log_n % 3;
    __syncthreads();
    if (done == 1) forward_pass<1, false>(values, log_n, 0, node, roots, q);
    if (done == 2) forward_pass<2, false>(values, log_n, 0, node, roots, q);
#pragma unroll 1
    for (; done + 3 < log_n; done += 3) forward_pass<3, false>(values, log_n, done, node, roots, q);
    forward_pass<3, true>(values, log_n, done, node, roots, q);
}

// NTT form to coefficient form, reduced values in place. A part (WHOLE false) is left below 2q, without n^-1.
template <bool WHOLE = true>
__device__ inline void inverse(Word *values, uint32_t log_n, const Shoup *roots, const Limb &limb, uint32_t node = 1) {
    uint32_t done = 0;
    __syncthreads();
#pragma unroll 1
    for (; done + 3 < log_n; done += 3) inverse_pass<3, false>(values, log_n, done, node, roots, limb);
    if (log_n - done == 1) inverse_pass<1, WHOLE>(values, log_n, done, node, roots, limb);
    if (log_n - done == 2) inverse_pass<2, WHOLE>(values, log_n, done, node, roots, limb);
    if (log_n - done == 3) inverse_pass<3, WHOLE>(values, log_n, done, node, roots, limb);
}
