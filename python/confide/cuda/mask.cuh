// Masks of both ends, as crates/lora/src/mask.rs: ChaCha20 (RFC 8439) that can be read at any token. Tile i of 32
// columns is the stream of nonce i; token n has its blocks 4n to 4n + 3, each 8 words of 64 bits, cut to k bits.
#pragma once
#include "types.cuh"

constexpr uint32_t MASK_WORDS = 8;  // words of one ChaCha20 block

__device__ inline uint64_t low_mask(uint32_t bits) { return ~uint64_t(0) >> (64 - bits); }

__device__ inline uint32_t turned(uint32_t value, uint32_t count) { return value << count | value >> (32 - count); }

__device__ inline void quarter_round(uint32_t &a, uint32_t &b, uint32_t &c, uint32_t &d) {
    a += b, d = turned(d ^ a, 16);
    c += d, b = turned(b ^ c, 12);
    a += b, d = turned(d ^ a, 8);
    c += d, b = turned(b ^ c, 7);
}

// One block of the keystream: key of 8 words, block counter, the first word of a nonce that is else zero.
__device__ inline void mask_block(const uint32_t *key, uint32_t counter, uint32_t nonce, uint32_t *out) {
    uint32_t start[16] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574, key[0], key[1], key[2], key[3],
                          key[4],     key[5],     key[6],     key[7],     counter, nonce, 0,      0};
#pragma unroll
    for (int i = 0; i < 16; i++) out[i] = start[i];
#pragma unroll
    for (int round = 0; round < 10; round++) {
        quarter_round(out[0], out[4], out[8], out[12]);
        quarter_round(out[1], out[5], out[9], out[13]);
        quarter_round(out[2], out[6], out[10], out[14]);
        quarter_round(out[3], out[7], out[11], out[15]);
        quarter_round(out[0], out[5], out[10], out[15]);
        quarter_round(out[1], out[6], out[11], out[12]);
        quarter_round(out[2], out[7], out[8], out[13]);
        quarter_round(out[3], out[4], out[9], out[14]);
    }
#pragma unroll
    for (int i = 0; i < 16; i++) out[i] += start[i];
}

// The masks of columns 8·chunk to 8·chunk + 7 for a token: 8 words below 2^bits.
__device__ inline void mask_chunk(const uint32_t *key, uint32_t token, uint32_t chunk, uint32_t bits, uint64_t *out) {
    uint32_t block[16];
    mask_block(key, 4 * token + (chunk & 3), chunk >> 2, block);
#pragma unroll
    for (uint32_t i = 0; i < MASK_WORDS; i++) {
        out[i] = (block[2 * i] | uint64_t(block[2 * i + 1]) << 32) & low_mask(bits);
    }
}
