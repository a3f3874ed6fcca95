// Distributions over the generator's words, as crates/rlwe/src/sampler.rs has them. Ternary, error and flooding values
// take a fixed number of words each and have no branch: constant time. Uniform values modulo a prime are for public
// polynomials alone: words cut to the prime's width, those not below it skipped.
#pragma once
#include "modulus.cuh"
#include "rng.cuh"

// -1, 0, 1, each with probability 1/3 within 2^-62.
__device__ inline int64_t ternary(uint64_t word) { return int64_t(__umul64hi(word, 3)) - 1; }

// The difference of two sums of 21 bits.
__device__ inline int64_t binomial(uint64_t word) {
    constexpr uint64_t HALF = (1u << 21) - 1;
    return int64_t(__popcll(word & HALF)) - int64_t(__popcll(word >> 21 & HALF));
}

// Below `bound`, within 2^-64: the upper 64 of the 192 bits of a 128-bit word times the bound.
__device__ inline uint64_t scale_to_bound(uint64_t low, uint64_t high, uint64_t bound) {
    uint64_t carried = __umul64hi(low, bound), part = high * bound, sum = part + carried;
    return __umul64hi(high, bound) + (sum < part);
}

// Shared memory that fill_uniform works with.
struct Scan {
    uint32_t totals[32];
    uint64_t next;
};

// How many of the block's threads' counts come before this thread's; `total` is their sum. Whole warps only.
__device__ inline uint32_t counted_before(uint32_t count, Scan &scan, uint32_t &total) {
    uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, sum = count;
    for (uint32_t step = 1; step < WARP; step *= 2) {
        uint32_t other = __shfl_up_sync(ALL_LANES, sum, step);
        if (lane >= step) sum += other;
    }
    if (lane == WARP - 1) scan.totals[warp] = sum;
    __syncthreads();
    uint32_t before = sum - count;
    total = 0;
    for (uint32_t i = 0; i < blockDim.x / WARP; i++) {
        if (i < warp) before += scan.totals[i];
        total += scan.totals[i];
    }
    __syncthreads();
    return before;
}

// Calls emit(i, value) for n uniform values below q from word `next` of the stream on, each by some thread of the
// block, and gives the word after the last one taken. The same values as one word after the other: a word's place is
// the count of words before it that were not skipped.
template <class Emit>
__device__ inline uint64_t fill_uniform(const Stream &stream, uint64_t next, const Limb &limb, uint32_t n, Scan &scan,
                                        Emit emit) {
    const uint64_t mask = ~uint64_t(0) >> (64 - limb.bits), q = limb.q;
    uint32_t filled = 0;
    while (filled < n) {
        uint64_t number = next / 8 + threadIdx.x, words[8];
        keystream_block(stream, number, words);
        uint32_t taken = 0;
#pragma unroll
        for (uint32_t k = 0; k < 8; k++) taken += (words[k] & mask) < q && number * 8 + k >= next;
        uint32_t total, place = filled + counted_before(taken, scan, total);
#pragma unroll
        for (uint32_t k = 0; k < 8; k++) {
            uint64_t value = words[k] & mask;
            if (value < q && number * 8 + k >= next) {
                if (place < n) emit(place, value);
                if (place == n - 1) scan.next = number * 8 + k + 1;
                place++;
            }
        }
        filled += total;
        next = (next / 8 + blockDim.x) * 8;
    }
    __syncthreads();
    uint64_t after = scan.next;
    __syncthreads();
    return after;
}
