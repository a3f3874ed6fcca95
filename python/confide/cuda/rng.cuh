// ChaCha20 (RFC 8439) as a generator, as crates/rlwe/src/rng.rs reads it: words of 64 bits, little-endian, in order
// from block 0 of a key and a nonce. Any word can be made without those before it. No branch and no address depends on
// a key.
//
// Floor: a block of 64 bytes takes 320 additions, 320 exclusive ors, 320 rotations and a few more: 1,000 instructions.
#pragma once
#include "types.cuh"

// A keystream: 8 words of key in memory, 3 of nonce.
struct Stream {
    const uint32_t *key;
    uint32_t nonce[3];
};

// The stream of a seed itself (nonce zero), and of a seed for one purpose.
__device__ inline Stream stream_of(const uint32_t *key) { return Stream{key, {0, 0, 0}}; }

__device__ inline uint32_t rotate_left(uint32_t x, int by) { return x << by | x >> (32 - by); }

__device__ inline void quarter_round(uint32_t &a, uint32_t &b, uint32_t &c, uint32_t &d) {
    a += b, d = rotate_left(d ^ a, 16);
    c += d, b = rotate_left(b ^ c, 12);
    a += b, d = rotate_left(d ^ a, 8);
    c += d, b = rotate_left(b ^ c, 7);
}

// Block `number` of the stream as 8 words of 64 bits. Past 2^32 blocks, where crates/rlwe gives no more, the first word
// of the nonce counts on: no two numbers share a block (labels that separate purposes are four letters, far above).
__device__ inline void keystream_block(const Stream &stream, uint64_t number, uint64_t words[8]) {
    uint32_t start[16] = {0x61707865u, 0x3320646eu, 0x79622d32u, 0x6b206574u};
#pragma unroll
    for (int i = 0; i < 8; i++) start[4 + i] = stream.key[i];
    start[12] = uint32_t(number);
    start[13] = stream.nonce[0] + uint32_t(number >> 32);
    start[14] = stream.nonce[1];
    start[15] = stream.nonce[2];
    uint32_t x[16];
#pragma unroll
    for (int i = 0; i < 16; i++) x[i] = start[i];
    for (int round = 0; round < 10; round++) {
        quarter_round(x[0], x[4], x[8], x[12]);
        quarter_round(x[1], x[5], x[9], x[13]);
        quarter_round(x[2], x[6], x[10], x[14]);
        quarter_round(x[3], x[7], x[11], x[15]);
        quarter_round(x[0], x[5], x[10], x[15]);
        quarter_round(x[1], x[6], x[11], x[12]);
        quarter_round(x[2], x[7], x[8], x[13]);
        quarter_round(x[3], x[4], x[9], x[14]);
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        words[i] = uint64_t(x[2 * i] + start[2 * i]) | uint64_t(x[2 * i + 1] + start[2 * i + 1]) << 32;
    }
}

// Calls each(i, word) for words `first` to `first + count` of the stream, i from 0, by the threads of the block. Which
// thread has which word depends on the positions alone.
template <class Each>
__device__ inline void each_word(const Stream &stream, uint64_t first, uint32_t count, Each each) {
    uint64_t last_block = (first + count - 1) / 8;
    for (uint64_t number = first / 8 + threadIdx.x; number <= last_block; number += blockDim.x) {
        uint64_t words[8];
        keystream_block(stream, number, words);
#pragma unroll
        for (uint32_t k = 0; k < 8; k++) {
            uint64_t i = number * 8 + k - first;
            if (i < count) each(uint32_t(i), words[k]);
        }
    }
}
