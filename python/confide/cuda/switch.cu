// Dividing by all primes but the first, with rounding: crates/rlwe/src/{poly,switch}.rs.
// Floor: (limbs + 1) words moved for each coefficient; 2 limbs of n = 4096: 192 KiB an answer.
#include "modulus.cuh"

// The sets have at most four; all of a coefficient is held in registers.
constexpr uint32_t LIMBS_MAX = 4;

// parts [rows, 2, limbs, n], coefficient form; inverses [limbs, limbs]: at [last][i] the inverse of prime `last` modulo
// prime i; c0, c1 [rows, n] modulo the first prime. grid (n / block, 2 * rows).
extern "C" __global__ void switch_down(const uint64_t *parts, const Limb *limbs, const Shoup *inverses, uint64_t *c0,
                                       uint64_t *c1, uint32_t limb_count, uint32_t n) {
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y / 2;
    if (i >= n) return;
    const uint64_t *own = parts + size_t(blockIdx.y) * limb_count * n + i;
    uint64_t x[LIMBS_MAX];
#pragma unroll
    for (uint32_t limb = 0; limb < LIMBS_MAX; limb++) {
        if (limb < limb_count) x[limb] = own[size_t(limb) * n];
    }
#pragma unroll
    for (uint32_t last = LIMBS_MAX - 1; last > 0; last--) {
        if (last >= limb_count) continue;
        int64_t rest = centre(x[last], limbs[last].q);
#pragma unroll
        for (uint32_t limb = 0; limb < last; limb++) {
            uint64_t q = limbs[limb].q, less = reduce_signed(rest, limbs[limb]);
            x[limb] = mul_shoup(sub_mod(x[limb], less, q), inverses[last * limb_count + limb], q);
        }
    }
    (blockIdx.y % 2 ? c1 : c0)[size_t(row) * n + i] = x[0];
}
