// Masks of both ends: crates/lora/src/mask.rs. Tile i of 32 columns is the keystream of nonce i; token n has its 256
// bytes from 256*n on, 4 blocks.
// Floor: 1,000 instructions and 64 bytes written for each keystream block, 8 words.
#include "rng.cuh"

constexpr uint32_t TILE = 32, BLOCKS_A_TOKEN = 4;

// The 8 words of quarter `part` of a token in a tile, cut to `bits`, or 2^bits minus them.
__device__ inline void mask_words(const uint32_t *key, uint32_t tile, uint32_t token, uint32_t part, uint32_t bits,
                                  uint32_t negated, uint64_t words[8]) {
    keystream_block(Stream{key, {tile, 0, 0}}, token * BLOCKS_A_TOKEN + part, words);
    uint64_t mask = ~uint64_t(0) >> (64 - bits), sign = uint64_t(0) - (negated & 1);
    for (uint32_t k = 0; k < 8; k++) words[k] = ((words[k] ^ sign) - sign) & mask;
}

// rows [tokens, columns]. grid over 4 * tiles * tokens blocks of the keystream, one a thread.
extern "C" __global__ void mask_rows(const uint32_t *key, uint32_t first_token, uint32_t tokens, uint32_t columns,
                                     uint32_t bits, uint32_t negated, uint64_t *rows) {
    uint32_t tiles = (columns + TILE - 1) / TILE;
    uint64_t index = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (index >= uint64_t(tokens) * tiles * BLOCKS_A_TOKEN) return;
    uint32_t quarter = uint32_t(index % (tiles * BLOCKS_A_TOKEN)), token = uint32_t(index / (tiles * BLOCKS_A_TOKEN));
    uint64_t words[8];
    mask_words(key, quarter / BLOCKS_A_TOKEN, first_token + token, quarter % BLOCKS_A_TOKEN, bits, negated, words);
    for (uint32_t k = 0; k < 8; k++) {
        uint32_t column = quarter * 8 + k;
        if (column < columns) rows[size_t(token) * columns + column] = words[k];
    }
}

// out [tiles, 32, tokens]: the columns of tiles first_tile and following. grid (tokens / block, 4, tiles).
extern "C" __global__ void mask_columns(const uint32_t *key, uint32_t first_tile, uint32_t first_token,
                                        uint32_t tokens, uint32_t bits, uint32_t negated, uint64_t *out) {
    uint32_t token = blockIdx.x * blockDim.x + threadIdx.x;
    if (token >= tokens) return;
    uint64_t words[8];
    mask_words(key, first_tile + blockIdx.z, first_token + token, blockIdx.y, bits, negated, words);
    uint64_t *own = out + (size_t(blockIdx.z) * TILE + blockIdx.y * 8) * tokens + token;
    for (uint32_t k = 0; k < 8; k++) own[size_t(k) * tokens] = words[k];
}
