// The fixed-width names, bf16 and the few helpers that every kernel file shares. Include this first: outside CUDA it
// brings in the CPU form of the language, so that one source serves NVRTC, nvcc and a host compiler.
#pragma once

#ifndef __CUDACC__
#include "tests/emulator/cuda_on_cpu.h"
#elif defined(__CUDACC_RTC__)
// NVRTC has no headers of its own. uint64_t is `unsigned long long`, the type that the 64-bit atomics take.
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif
#else
#include <cmath>
#include <cstdint>
#endif

// bf16 by its bits: NVRTC is given no cuda_bf16.h.
struct bf16 {
    uint16_t bits;
};

__device__ inline float to_float(float value) { return value; }
__device__ inline float to_float(bf16 value) { return __uint_as_float(uint32_t(value.bits) << 16); }

// Two bf16 values from one 32-bit word, the lower address first.
__device__ inline float bf16_low(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ inline float bf16_high(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

// To the nearest bf16, ties to even, as torch and cuda_bf16.h do; a NaN stays one.
__device__ inline bf16 to_bf16(float value) {
    uint32_t bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return bf16{uint16_t(0x7fff)};
    return bf16{uint16_t((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

// A float as an element of the given type: `from_float<bf16>(x)`.
template <class Element>
__device__ inline Element from_float(float value);
template <>
__device__ inline float from_float<float>(float value) {
    return value;
}
template <>
__device__ inline bf16 from_float<bf16>(float value) {
    return to_bf16(value);
}

constexpr uint32_t WARP = 32;
constexpr uint32_t ALL_LANES = 0xffffffffu;
