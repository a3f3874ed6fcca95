// A real vector to integers of 16 bits whose norm is at most an adapter's limit: crates/lora/src/quantise.rs, with its
// sums in its order where the result depends on them. One block works on one vector.
#pragma once
#include "types.cuh"

constexpr uint32_t NOT_FINITE = 1;   // an entry is infinite or no number
constexpr uint32_t TOO_COARSE = 2;   // the norm limit leaves a relative error above 2^-10
constexpr uint32_t NO_MASK = 4;      // no prepared counter is left
constexpr uint32_t QUANTISE_LANES = 256;  // partial sums, one for each thread of the block
constexpr double QUANTISE_MAGIC = 6755399441055744.0;  // 1.5 · 2^52: the integer is in the lowest bits
constexpr double ROUNDING_ERROR_MAX = 1.0 / 1024.0;

// x · factor to the nearest integer, halves to even. No contraction: the Rust code has none.
__device__ inline int16_t quantise(float x, double factor) {
    return int16_t(__double_as_longlong(__dadd_rn(__dmul_rn(double(x), factor), QUANTISE_MAGIC)));
}

// The squares of a vector summed over one warp's lanes, for a block of QUANTISE_LANES threads: entry i belongs to
// thread i % QUANTISE_LANES, and lanes are added at distance 16, 8, 4, 2 and 1. `tree_of_warps` adds what warps have.
template <class Element>
__device__ inline double lane_sum(const Element *x, uint32_t columns) {
    double sum = 0.0;
    // A square of a float is exact in a double, so that its multiply and add round once either way.
    for (uint32_t i = threadIdx.x; i < columns; i += QUANTISE_LANES) {
        double value = to_float(x[i]);
        sum = __dadd_rn(sum, __dmul_rn(value, value));
    }
    for (int lanes = WARP / 2; lanes > 0; lanes >>= 1) {
        sum = __dadd_rn(sum, __shfl_xor_sync(ALL_LANES, sum, lanes));
    }
    return sum;
}

// The sums of the block's eight warps, added at distance 4, 2 and 1.
__device__ inline double tree_of_warps(const double *of_warps) {
    double four[4];
#pragma unroll
    for (int i = 0; i < 4; i++) four[i] = __dadd_rn(of_warps[i], of_warps[i + 4]);
    return __dadd_rn(__dadd_rn(four[0], four[2]), __dadd_rn(four[1], four[3]));
}

// Greatest magnitude within one warp's share of the vector: columns from `first`, `step` apart.
template <class Element>
__device__ inline float warp_greatest(const Element *x, uint32_t columns, uint32_t first, uint32_t step) {
    float greatest = 0.0f;
    for (uint32_t i = first; i < columns; i += step) {
        float value = fabsf(to_float(x[i]));
        greatest = value > greatest ? value : greatest;
    }
    for (int lanes = 16; lanes > 0; lanes >>= 1) {
        float other = __shfl_xor_sync(ALL_LANES, greatest, lanes);
        greatest = other > greatest ? other : greatest;
    }
    return greatest;
}

// The scale of a vector, or a refusal. A vector of zeroes has the scale 1.
__device__ inline double vector_scale(double square, float greatest, uint32_t columns, uint64_t norm_limit,
                                      uint32_t *status) {
    // NaN and infinity alike: neither is below the greatest double.
    if (!(square <= 1.7976931348623157e308)) {
        *status = NOT_FINITE;
        return 1.0;
    }
    if (greatest == 0.0f) return 1.0;
    double room = double(norm_limit) - sqrt(double(columns)) / 2.0 - 1.0;
    if (room < 1.0) {
        *status = TOO_COARSE;
        return 1.0;
    }
    double by_entry = double(greatest) / 32767.0, by_norm = sqrt(square) / room;
    return by_entry > by_norm ? by_entry : by_norm;
}

// Whether the rounded vector keeps the promise. norm_square is at most 2^46, so its limit's square is not needed above.
__device__ inline uint32_t rounded_status(uint64_t norm_square, double error_square, double square, uint32_t columns,
                                          uint64_t norm_limit) {
    if (norm_limit < (uint64_t(1) << 24) && norm_square > norm_limit * norm_limit) return TOO_COARSE;
    double worst = double(columns) / 4.0 / (ROUNDING_ERROR_MAX * ROUNDING_ERROR_MAX);
    if (double(norm_square) < worst && sqrt(error_square / square) > ROUNDING_ERROR_MAX) return TOO_COARSE;
    return 0;
}
