// Decryption of answers: crates/rlwe/src/keys.rs. Constant time over the secret: the same instructions and addresses
// whatever it is; rounding is done by arithmetic, without a branch or a table.
// Floor of one answer: two transforms modulo the first prime, 3n words read, the messages written.
// compile with: RING_WORD=uint64_t
// compile with: RING_WORD=uint32_t
#include "encoding.cuh"
#include "ntt.cuh"

// c0 [count, kept], c1 [count, n], coefficient form modulo the first prime; positions [kept] ascending, or null if
// kept = n; secret [n], NTT form of the first limb; messages [count, kept]. grid (count).
extern "C" __global__ void __launch_bounds__(512, 1)
    decrypt(const uint64_t *c0, const uint64_t *c1, const uint32_t *positions, const uint64_t *secret,
            const Limb *limbs, const Shoup *roots, const Encoding *encoding, uint64_t *messages, uint32_t kept,
            uint32_t log_n) {
    extern __shared__ Word shared[];
    uint32_t n = 1u << log_n;
    const Limb limb = limbs[0];
    const uint64_t *given = c1 + size_t(blockIdx.x) * n;
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) shared[padded_index(i)] = Word(given[i]);
    forward(shared, log_n, roots_of(roots, 0, n, false), limb);
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) {
        shared[padded_index(i)] = Word(mul_mod(shared[padded_index(i)], secret[i], limb));
    }
    inverse(shared, log_n, roots_of(roots, 0, n, true), limb);
    for (uint32_t i = threadIdx.x; i < kept; i += blockDim.x) {
        size_t place = size_t(blockIdx.x) * kept + i;
        uint64_t product = shared[padded_index(positions ? positions[i] : i)];
        messages[place] = decode(add_mod(c0[place], product, limb.q), *encoding, limb.q);
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) shared[padded_index(i)] = 0;
}
