// Masks of both ends, as crates/lora/src/mask.rs: ChaCha20 (RFC 8439) that can be read at any token. Tile i of 32
// columns is the stream of nonce i; token n has its blocks 4n to 4n + 3, each 8 words of 64 bits, cut to k bits.
#pragma once
#include "rng.cuh"

constexpr uint32_t MASK_WORDS = 8;  // words of one ChaCha20 block

__device__ inline uint64_t low_mask(uint32_t bits) { return ~uint64_t(0) >> (64 - bits); }

// The masks of columns 8·chunk to 8·chunk + 7 for a token: 8 words below 2^bits.
__device__ inline void mask_chunk(const uint32_t *key, uint32_t token, uint32_t chunk, uint32_t bits, uint64_t *out) {
    keystream_block(Stream{key, {chunk >> 2, 0, 0}}, 4 * token + (chunk & 3), out);
#pragma unroll
    for (uint32_t i = 0; i < MASK_WORDS; i++) out[i] &= low_mask(bits);
}
