// Values packed at the width of their prime, least bit first: crates/rlwe/src/wire.rs.
// Floor: 8 + bits/8 bytes moved for each value.
#include "modulus.cuh"

// values [count, limbs, n] to words [count, words of all limbs]; the words of limb l begin at starts[l], each limb a
// whole number of words of 64 bits. grid (n / block, limbs, count): thread i makes word i of the limb.
extern "C" __global__ void pack(const uint64_t *values, const Limb *limbs, const uint32_t *starts, uint64_t *words,
                                uint32_t total, uint32_t n) {
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, bits = uint32_t(limbs[blockIdx.y].bits);
    uint64_t end = uint64_t(n) * bits;
    if (uint64_t(i) * 64 >= end) return;
    const uint64_t *own = values + (size_t(blockIdx.z) * gridDim.y + blockIdx.y) * n;
    uint64_t word = 0, first = uint64_t(i) * 64 / bits;
    for (uint64_t k = first; k < n && k * bits < uint64_t(i) * 64 + 64; k++) {
        int64_t shift = int64_t(k * bits) - int64_t(i) * 64;
        word |= shift < 0 ? own[k] >> -shift : own[k] << shift;
    }
    words[size_t(blockIdx.z) * total + starts[blockIdx.y] + i] = word;
}

// The inverse: words, with one spare word after the last, to values. status [count]: 1 is or-ed in where a value is not
// below its prime. grid (n / block, limbs, count).
extern "C" __global__ void unpack(const uint64_t *words, const Limb *limbs, const uint32_t *starts, uint64_t *values,
                                  uint32_t *status, uint32_t total, uint32_t n) {
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, bits = uint32_t(limbs[blockIdx.y].bits);
    if (i >= n) return;
    const uint64_t *own = words + size_t(blockIdx.z) * total + starts[blockIdx.y];
    uint64_t bit = uint64_t(i) * bits, shift = bit % 64;
    uint64_t value = own[bit / 64] >> shift;
    if (shift + bits > 64) value |= own[bit / 64 + 1] << (64 - shift);
    value &= ~uint64_t(0) >> (64 - bits);
    if (value >= limbs[blockIdx.y].q) atomicOr(&status[blockIdx.z], 1u);
    values[(size_t(blockIdx.z) * gridDim.y + blockIdx.y) * n + i] = value;
}
