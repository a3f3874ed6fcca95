// CUDA's language on a CPU: a .cu file compiled by a host compiler through this header runs with its own indexing,
// one block after the other, each thread a fiber. A thread runs until it meets a barrier or a warp exchange that
// others have not reached; threads that meet none run to their end without a switch between them.
// What it refuses (returned as text by the launch): a barrier that threads of the block will never reach, warp
// exchanges whose members disagree on the mask or the operation. What it cannot show: races between blocks, the
// weak order of memory. Races inside a block show when the threads run in another order (`order` = 1: reversed).
#pragma once

#include <sys/mman.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <type_traits>
#include <utility>

#include "fibers.h"
#include "races.h"

#define __global__
#define __device__
#define __host__
#define __constant__ static
// Blocks run one at a time under a lock, so one copy in the library is a block's own. `extern __shared__ T name[];` in
// a .cu file is rewritten to a pointer by __init__.py before the compiler sees it.
#define __shared__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x = 1, y = 1, z = 1;
};

#define CONFIDE_VECTORS(type, name, bytes)                                                                  \
    struct alignas(2 * bytes) name##2 {                                                                     \
        type x, y;                                                                                          \
    };                                                                                                      \
    struct alignas(4 * bytes > 16 ? 16 : 4 * bytes) name##4 {                                               \
        type x, y, z, w;                                                                                    \
    };                                                                                                      \
    static inline name##2 make_##name##2(type x, type y) { return {x, y}; }                                 \
    static inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
CONFIDE_VECTORS(int, int, 4)
CONFIDE_VECTORS(unsigned, uint, 4)
CONFIDE_VECTORS(float, float, 4)
CONFIDE_VECTORS(short, short, 2)
CONFIDE_VECTORS(unsigned short, ushort, 2)
CONFIDE_VECTORS(signed char, char, 1)
CONFIDE_VECTORS(unsigned char, uchar, 1)
CONFIDE_VECTORS(uint64_t, ulonglong, 8)
CONFIDE_VECTORS(int64_t, longlong, 8)
CONFIDE_VECTORS(double, double, 8)
#undef CONFIDE_VECTORS

static uint3 threadIdx, blockIdx;
static dim3 blockDim, gridDim;
static const int warpSize = 32;

#include "block.h"
#include "intrinsics.h"
