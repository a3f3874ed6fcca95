// The exact product of a matrix of 13-bit integers and vectors mod 2^k, k at most 33, as crates/lora/src/int_matrix.rs:
// a word is three digits of 11 bits, so that products of 24 bits are summed in 32-bit registers, 56 to a lane.
#pragma once
#include "types.cuh"

constexpr uint32_t DIGIT_BITS = 11;
constexpr uint32_t DIGITS = 3;
constexpr uint32_t DIGIT_MASK = (1u << DIGIT_BITS) - 1;
// Columns that a block holds at a time: 7 warps with 8 columns to a thread. 56 products a lane stay below 2^31.
constexpr uint32_t TILE_COLUMNS = 7 * 32 * 8;

// 8 entries of a row, or 8 digits: 16 bytes that travel together.
struct alignas(16) Eight {
    int16_t values[8];
};

struct Digits {
    Eight plane[DIGITS][TILE_COLUMNS / 8];
};

__device__ inline void store_digits(Digits &digits, uint32_t chunk, const uint64_t *words) {
#pragma unroll
    for (uint32_t digit = 0; digit < DIGITS; digit++) {
        Eight eight;
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) eight.values[i] = int16_t(words[i] >> (DIGIT_BITS * digit) & DIGIT_MASK);
        digits.plane[digit][chunk] = eight;
    }
}

// Adds a lane's part of one row's product with the tile that `digits` holds. `row` is 16-byte aligned and filled up
// with zeroes to whole chunks.
__device__ inline void add_product(uint64_t &sum, const int16_t *row, const Digits &digits, uint32_t chunks,
                                   uint32_t lane) {
    int32_t sums[DIGITS] = {0, 0, 0};
    for (uint32_t chunk = lane; chunk < chunks; chunk += WARP) {
        Eight entries = reinterpret_cast<const Eight *>(row)[chunk];
#pragma unroll
        for (uint32_t digit = 0; digit < DIGITS; digit++) {
            Eight values = digits.plane[digit][chunk];
#pragma unroll
            for (uint32_t i = 0; i < 8; i++) sums[digit] += int32_t(entries.values[i]) * int32_t(values.values[i]);
        }
    }
#pragma unroll
    for (uint32_t digit = 0; digit < DIGITS; digit++) sum += uint64_t(int64_t(sums[digit])) << (DIGIT_BITS * digit);
}

__device__ inline uint64_t warp_sum(uint64_t sum) {
    for (int lanes = 16; lanes > 0; lanes >>= 1) sum += __shfl_xor_sync(ALL_LANES, sum, lanes);
    return sum;
}

// A word mod 2^bits as the integer of least magnitude.
__device__ inline int64_t centre(uint64_t word, uint32_t bits) {
    return int64_t(word << (64 - bits)) >> (64 - bits);
}
