// Kernels whose threads meet in memory, rightly and not; tests/test_races.py builds them with the races told.
#include "types.cuh"

// values [64 and more]: each thread gives its word to its neighbour, all count at the 65th word.
template <bool MEET>
__device__ inline void pass_on(uint32_t *values) {
    __shared__ uint32_t line[32];
    line[threadIdx.x] = threadIdx.x;
    if (MEET) __syncthreads();
    values[blockIdx.x * 32 + threadIdx.x] = line[threadIdx.x ^ 1];
}

extern "C" __global__ void with_a_barrier(uint32_t *values) {
    pass_on<true>(values);
    atomicAdd(&values[64], 1u);
}

extern "C" __global__ void without_a_barrier(uint32_t *values) { pass_on<false>(values); }

extern "C" __global__ void blocks_that_add(uint32_t *values) {
    if (threadIdx.x == 0) values[64] += 1;
}

// Each block reads what its neighbour writes.
extern "C" __global__ void blocks_that_read(uint32_t *values) {
    uint32_t other = values[(blockIdx.x ^ 1) * 32];
    __syncthreads();
    if (threadIdx.x == 0) values[blockIdx.x * 32] = other;
}

// One thread writes what the others read.
extern "C" __global__ void late_readers(uint32_t *values) {
    uint32_t first = values[64];
    values[threadIdx.x] = first;
    if (threadIdx.x == 0) values[64] = first + 1;
}
