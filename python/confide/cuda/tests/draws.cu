// The sampler by itself, for vectors/rlwe/sampler.json.
#include "sampler.cuh"

// values [count] below the prime of `limb` from word `first` on; after [1]: the word that follows. grid (1).
extern "C" __global__ void draw_uniform(const uint32_t *key, uint64_t first, const Limb *limb, uint64_t *values,
                                        uint64_t *after, uint32_t count) {
    __shared__ Scan scan;
    uint64_t next = fill_uniform(stream_of(key), first, *limb, count, scan,
                                 [&](uint32_t i, uint64_t value) { values[i] = value; });
    if (threadIdx.x == 0) *after = next;
}

// kind 0: ternary, 1: errors. grid (1).
extern "C" __global__ void draw_signed(const uint32_t *key, uint64_t first, int64_t *values, uint32_t kind,
                                       uint32_t count) {
    each_word(stream_of(key), first, count,
              [&](uint32_t i, uint64_t word) { values[i] = kind ? binomial(word) : ternary(word); });
}

// Blocks `number` and following of the stream of a key and a nonce [3], words [blocks, 8]. grid (1).
extern "C" __global__ void draw_blocks(const uint32_t *key, const uint32_t *nonce, uint64_t number, uint64_t *words,
                                       uint32_t blocks) {
    Stream stream{key, {nonce[0], nonce[1], nonce[2]}};
    if (threadIdx.x < blocks) keystream_block(stream, number + threadIdx.x, words + 8 * threadIdx.x);
}
