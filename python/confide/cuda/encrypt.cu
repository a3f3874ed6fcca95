// Keys, public polynomials, encryption, and the fresh flooded encryption that hides a result:
// crates/rlwe/src/{keys,encrypt}.rs, with the draws of its generators word by word.
//
// Floor of one encryption for each limb: a transform, n/8 keystream blocks for the errors and n/8 for a (1,000
// instructions each), n words written. n = 4096, 2 limbs: 1.4 M + 2.1 M integer instructions, 64 KiB written, 64 KiB of
// the secret read. Errors are drawn once for each limb: that costs less than passing them through memory.
// Secrets are in registers and shared memory only, and what a block held is ciphertext when it ends.
// compile with: RING_WORD=uint64_t
// compile with: RING_WORD=uint32_t
#include "encoding.cuh"
#include "ntt.cuh"
#include "sampler.cuh"

// "a(X)", the label of public polynomials.
constexpr uint32_t PUBLIC_LABEL = 0x29582861u;

__device__ inline Stream public_stream(const uint32_t *seed, uint32_t index, uint32_t limb) {
    return Stream{seed, {PUBLIC_LABEL, index, limb}};
}

// words [count]: the words of the generator from `first` on. grid any.
extern "C" __global__ void keystream(const uint32_t *key, uint64_t first, uint64_t *words, uint32_t count) {
    Stream stream = stream_of(key);
    uint64_t last_block = (first + count - 1) / 8;
    for (uint64_t number = first / 8 + blockIdx.x * blockDim.x + threadIdx.x; number <= last_block;
         number += gridDim.x * blockDim.x) {
        uint64_t made[8];
        keystream_block(stream, number, made);
        for (uint32_t k = 0; k < 8; k++) {
            uint64_t i = number * 8 + k - first;
            if (i < count) words[i] = made[k];
        }
    }
}

// seeds [count, 8] uint32, indices [count] uint32; values [count, limbs, n], NTT form. grid (count, limbs).
extern "C" __global__ void __launch_bounds__(512, 1)
    public_polynomials(const uint32_t *seeds, const uint32_t *indices, const Limb *limbs, uint64_t *values,
                       uint32_t log_n) {
    __shared__ Scan scan;
    uint32_t n = 1u << log_n, limb = blockIdx.y;
    uint64_t *own = values + (size_t(blockIdx.x) * gridDim.y + limb) * n;
    Stream stream = public_stream(seeds + 8 * blockIdx.x, indices[blockIdx.x], limb);
    fill_uniform(stream, 0, limbs[limb], n, scan, [&](uint32_t i, uint64_t value) { own[i] = value; });
}

// A ternary secret from n words of the generator; secret [limbs, n], NTT form. grid (limbs).
extern "C" __global__ void __launch_bounds__(512, 1)
    secret_key(const uint32_t *key, uint64_t first, const Limb *limbs, const Shoup *roots, uint64_t *secret,
               uint32_t log_n) {
    extern __shared__ Word shared[];
    uint32_t n = 1u << log_n, index = blockIdx.x;
    const Limb limb = limbs[index];
    each_word(stream_of(key), first, n,
              [&](uint32_t i, uint64_t word) { shared[padded_index(i)] = Word(lift(ternary(word), limb.q)); });
    forward(shared, log_n, roots_of(roots, index, n, false), limb);
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) {
        secret[size_t(index) * n + i] = shared[padded_index(i)];
        shared[padded_index(i)] = 0;
    }
}

// c0 = e - a*s + encoded messages, a from the seed [8] and the index first_index + i, the errors of ciphertext i from
// n words of the generator from first + i*n on. messages [count, n] or null: none. secret [limbs, n]; c0
// [count, limbs, n], NTT form. grid (count, limbs).
extern "C" __global__ void __launch_bounds__(512, 1)
    encrypt(const uint64_t *messages, const uint32_t *key, uint64_t first, const uint32_t *seed, uint32_t first_index,
            const uint64_t *secret, const Limb *limbs, const Shoup *roots, const Encoding *encoding, uint64_t *c0,
            uint32_t log_n) {
    extern __shared__ Word shared[];
    __shared__ Scan scan;
    uint32_t n = 1u << log_n, index = blockIdx.x, of_limb = blockIdx.y;
    const Limb limb = limbs[of_limb];
    const uint64_t *own = messages ? messages + size_t(index) * n : nullptr;
    each_word(stream_of(key), first + uint64_t(index) * n, n, [&](uint32_t i, uint64_t word) {
        uint64_t value = lift(binomial(word), limb.q);
        if (own) value = add_mod(value, encode(own[i], *encoding, limb), limb.q);
        shared[padded_index(i)] = Word(value);
    });
    forward(shared, log_n, roots_of(roots, of_limb, n, false), limb);
    uint64_t *out = c0 + (size_t(index) * gridDim.y + of_limb) * n;
    const uint64_t *s = secret + size_t(of_limb) * n;
    Stream stream = public_stream(seed, first_index + index, of_limb);
    fill_uniform(stream, 0, limb, n, scan, [&](uint32_t i, uint64_t a) {
        out[i] = sub_mod(shared[padded_index(i)], mul_mod(a, s[i], limb), limb.q);
        shared[padded_index(i)] = 0;
    });
}

// The upper part of the flooding modulo one prime, uniform in [-B, B) times 2^flood_bits, from two words.
__device__ inline uint64_t flooding(uint64_t low, uint64_t high, uint64_t bound, const Limb &limb) {
    uint64_t upper = mul_shoup(scale_to_bound(low, high, 2 * bound), limb.flood_shift, limb.q);
    return sub_mod(upper, limb.flood_middle, limb.q);
}

// parts [rows, 2, limbs, n], results in NTT form, become results + (b*u + e1 + flooding + encoded, a*u + e2) in
// coefficient form. Row i takes 6n words of the generator from first + 6n*i on: 2n and n of the flooding, n of e1, n of
// u, n of e2. plain [rows, n] or null: zero. a, b [limbs, n], NTT form. bound: B. grid (rows, 2 * limbs).
// Floor: two transforms and up to 5n/8 keystream blocks for each part and limb, n words read and written.
extern "C" __global__ void __launch_bounds__(512, 1)
    hide(uint64_t *parts, const uint64_t *plain, const uint32_t *key, uint64_t first, const uint64_t *a,
         const uint64_t *b, uint64_t bound, const Limb *limbs, const Shoup *roots, const Encoding *encoding,
         uint32_t log_n) {
    extern __shared__ Word shared[];
    uint32_t n = 1u << log_n, limb_count = gridDim.y / 2, part = blockIdx.y / limb_count;
    uint32_t of_limb = blockIdx.y % limb_count;
    const Limb limb = limbs[of_limb];
    Stream stream = stream_of(key);
    uint64_t row = first + uint64_t(blockIdx.x) * 6 * n;
    each_word(stream, row + 4 * n, n,
              [&](uint32_t i, uint64_t word) { shared[padded_index(i)] = Word(lift(ternary(word), limb.q)); });
    forward(shared, log_n, roots_of(roots, of_limb, n, false), limb);
    uint64_t *own = parts + (size_t(blockIdx.x) * gridDim.y + blockIdx.y) * n;
    const uint64_t *factor = (part ? a : b) + size_t(of_limb) * n;
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) {
        shared[padded_index(i)] = Word(add_mod(own[i], mul_mod(shared[padded_index(i)], factor[i], limb), limb.q));
    }
    inverse(shared, log_n, roots_of(roots, of_limb, n, true), limb);
    auto add = [&](uint32_t i, uint64_t value) {
        Word &place = shared[padded_index(i)];
        place = Word(add_mod(place, value, limb.q));
    };
    auto add_error = [&](uint32_t i, uint64_t word) { add(i, lift(binomial(word), limb.q)); };
    each_word(stream, row + (part ? 5 : 3) * uint64_t(n), n, add_error);
    if (part == 0) {
        // The pair of a coefficient lies in one block as every row begins at an even word; then the fine words.
        const uint64_t start = row, last_block = (start + 2 * n - 1) / 8;
        __syncthreads();
        for (uint64_t number = start / 8 + threadIdx.x; number <= last_block; number += blockDim.x) {
            uint64_t words[8];
            keystream_block(stream, number, words);
#pragma unroll
            for (uint32_t k = 0; k < 8; k += 2) {
                uint64_t i = (number * 8 + k - start) / 2;
                if (number * 8 + k >= start && i < n) {
                    add(uint32_t(i), flooding(words[k], words[k + 1], bound, limb));
                }
            }
        }
        __syncthreads();
        each_word(stream, row + 2 * n, n, [&](uint32_t i, uint64_t word) {
            uint64_t value = reduce(word >> (64 - encoding->flood_bits), limb);
            if (plain) {
                uint64_t message = plain[size_t(blockIdx.x) * n + i];
                value = add_mod(value, encode(message, *encoding, limb), limb.q);
            }
            add(i, value);
        });
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) own[i] = shared[padded_index(i)];
}
