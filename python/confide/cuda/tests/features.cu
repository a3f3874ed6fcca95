// Small kernels that show what the CPU form of the language offers; tests/test_runtime.py runs them on every device.
#include "types.cuh"

#ifndef SCALE
#define SCALE 1
#endif

__constant__ uint32_t PRIMES[4] = {2, 3, 5, 7};

// Each block reverses its part of `values` through static shared memory.
extern "C" __global__ void __launch_bounds__(256) reverse(const uint32_t *values, uint32_t *reversed) {
    __shared__ uint32_t part[256];
    uint32_t at = blockIdx.x * blockDim.x + threadIdx.x;
    part[threadIdx.x] = values[at];
    __syncthreads();
    reversed[at] = part[blockDim.x - 1 - threadIdx.x];
}

// The sum of a block's floats: warps by shuffles, then warps among themselves by dynamic shared memory.
extern "C" __global__ void sum(const float *values, float *sums) {
    extern __shared__ float of_warps[];
    float total = values[blockIdx.x * blockDim.x + threadIdx.x];
    for (int lanes = 16; lanes > 0; lanes >>= 1) total += __shfl_xor_sync(ALL_LANES, total, lanes);
    if (threadIdx.x % WARP == 0) of_warps[threadIdx.x / WARP] = total;
    __syncthreads();
    if (threadIdx.x == 0) {
        float whole = 0;
        for (uint32_t i = 0; i < blockDim.x / WARP; i++) whole += of_warps[i];
        sums[blockIdx.x] = whole * SCALE;
    }
}

// counts[v] grows by one for each v; votes gets each warp's ballot of the odd values.
extern "C" __global__ void histogram(const uint32_t *values, uint64_t *counts, uint32_t *votes, uint32_t *largest) {
    uint32_t at = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&counts[values[at]], uint64_t(1));
    atomicMax(largest, values[at]);
    uint32_t odd = __ballot_sync(ALL_LANES, values[at] & 1);
    if (threadIdx.x % WARP == 0) votes[at / WARP] = odd;
}

// The high words of products, a 4-way byte product, a constant, and where this thread stands in three dimensions.
extern "C" __global__ void arithmetic(uint64_t a, int32_t bytes, uint64_t *high, int32_t *dot, uint32_t *place) {
    uint32_t x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    uint32_t z = blockIdx.z * blockDim.z + threadIdx.z;
    uint32_t width = gridDim.x * blockDim.x, height = gridDim.y * blockDim.y;
    uint32_t at = (z * height + y) * width + x;
    high[at] = __umul64hi(a, a - at);
    dot[at] = __dp4a(bytes, int(0x01ff0203), int(at)) + __popc(at) + __clz(at + 1);
    place[at] = at * PRIMES[at & 3];
}

// Rounds to bf16 and back.
extern "C" __global__ void through_bf16(const float *values, bf16 *halves, float *back, uint32_t count) {
    for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
        halves[i] = to_bf16(values[i]);
        back[i] = to_float(halves[i]);
    }
}

// Half of the threads never come to the barrier: a fault.
extern "C" __global__ void stuck(uint32_t *values) {
    if (threadIdx.x < 16) return;
    __syncthreads();
    values[threadIdx.x] = 1;
}

// Lanes 0 to 15 and 16 to 31 exchange apart from each other; each lane gets its neighbour's value.
extern "C" __global__ void neighbours(const uint64_t *values, uint64_t *exchanged) {
    uint32_t half = threadIdx.x % WARP < 16 ? 0x0000ffffu : 0xffff0000u;
    exchanged[threadIdx.x] = __shfl_xor_sync(half, values[threadIdx.x], 1);
    __syncwarp();
    exchanged[threadIdx.x] += __shfl_down_sync(ALL_LANES, values[threadIdx.x], 1) << 32;
}
