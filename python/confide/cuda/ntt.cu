// Transforms of whole polynomials: one block each, all of it in shared memory.
// Floor: see ntt.cuh. Batched, n = 4096 at 64 bits: 64 KiB moved and 0.69 M integer instructions for each polynomial.
// compile with: RING_WORD=uint64_t
// compile with: RING_WORD=uint32_t
#include "ntt.cuh"

// values [count, limbs, n], in place; grid (count * limbs), block n/16 at most 512, shared padded_index(n) words.
extern "C" __global__ void __launch_bounds__(512, 1)
    ntt_forward(uint64_t *values, const Limb *limbs, const Shoup *roots, uint32_t limb_count, uint32_t log_n) {
    extern __shared__ Word shared[];
    uint32_t n = 1u << log_n, index = blockIdx.x % limb_count;
    uint64_t *own = values + size_t(blockIdx.x) * n;
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) shared[padded_index(i)] = Word(own[i]);
    forward(shared, log_n, roots_of(roots, index, n, false), limbs[index]);
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) own[i] = shared[padded_index(i)];
}

extern "C" __global__ void __launch_bounds__(512, 1)
    ntt_inverse(uint64_t *values, const Limb *limbs, const Shoup *roots, uint32_t limb_count, uint32_t log_n) {
    extern __shared__ Word shared[];
    uint32_t n = 1u << log_n, index = blockIdx.x % limb_count;
    uint64_t *own = values + size_t(blockIdx.x) * n;
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) shared[padded_index(i)] = Word(own[i]);
    const Limb limb = limbs[index];
    inverse(shared, log_n, roots_of(roots, index, n, true), limb);
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) own[i] = shared[padded_index(i)];
}
