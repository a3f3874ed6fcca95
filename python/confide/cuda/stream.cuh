// Reading a stream of weights past the cache, sums over a warp, and the two ends of a launch that begins before its
// predecessor ended (programmatic dependent launch: driver.py, `overlap`).
#pragma once

#include "types.cuh"

// Sixteen bytes that are read once in a step: they leave no line in L1, which holds the activations. Not
// `ld.global.nc`: ptxas would move such a load past the wait for the kernel ahead, next to its use.
__device__ inline uint4 load_stream(const uint4 *address) {
#ifdef __CUDACC__
    uint4 words;
    asm volatile("ld.global.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "l"(address));
    return words;
#else
    return *address;
#endif
}

// Before the first access to what an earlier kernel wrote or still reads: waits until all of it is done and visible.
// Weights need not wait. Does nothing in a launch without overlap.
__device__ inline void previous_done() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The next kernel's blocks may take free places and wait there.
__device__ inline void next_may_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ inline float warp_sum(float value) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes >>= 1) value += __shfl_xor_sync(ALL_LANES, value, lanes);
    return value;
}

// Eight neighbours as floats; the address is a multiple of 16 bytes.
__device__ inline void load_eight(const float *address, float values[8]) {
    float4 low = *reinterpret_cast<const float4 *>(address), high = *reinterpret_cast<const float4 *>(address + 4);
    values[0] = low.x, values[1] = low.y, values[2] = low.z, values[3] = low.w;
    values[4] = high.x, values[5] = high.y, values[6] = high.z, values[7] = high.w;
}
__device__ inline void load_eight(const bf16 *address, float values[8]) {
    uint4 words = *reinterpret_cast<const uint4 *>(address);
    values[0] = bf16_low(words.x), values[1] = bf16_high(words.x);
    values[2] = bf16_low(words.y), values[3] = bf16_high(words.y);
    values[4] = bf16_low(words.z), values[5] = bf16_high(words.z);
    values[6] = bf16_low(words.w), values[7] = bf16_high(words.w);
}

// Four neighbours as floats.
__device__ inline float4 load_four(const float *address) { return *reinterpret_cast<const float4 *>(address); }
__device__ inline float4 load_four(const bf16 *address) {
    uint2 words = *reinterpret_cast<const uint2 *>(address);
    return make_float4(bf16_low(words.x), bf16_high(words.x), bf16_low(words.y), bf16_high(words.y));
}
