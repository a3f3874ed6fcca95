// Sums of products with what the adapter host knows: crates/rlwe/src/products.rs.
//
// Floor of the scalar products of rows x columns, 2 parts and L limbs of degree n: each word of a ciphertext read once
// for each tile of rows, 2 multiply-adds of 32 x 32 + 64 bits for each word and row (one at 32 bits).
// 32 x 1536, 2 limbs, n = 4096: 0.2 GB read once by each of the 2 tiles, 1.6 G multiply-adds.
// compile with: RING_WORD=uint64_t
// compile with: RING_WORD=uint32_t
#include "modulus.cuh"

#ifndef RING_WORD
#define RING_WORD uint64_t
#endif

// Rows whose sums one thread holds, and columns whose weights a block holds at a time.
constexpr uint32_t ROW_TILE = 16, COLUMN_TILE = 64;
// Loads that a thread has under way: 8 warps of an SM then ask for 16 KiB at a time.
constexpr uint32_t UNDER_WAY = 8;
// The lower part has 31 bits, so that both parts of a word times 16 bits fit 47: 2^16 of them fit a signed word.
constexpr uint32_t CUT = 31;

// weights [columns, rows] int16; c0, c1 [count, limbs, n], the columns from `first` on; sums [rows, 2, limbs, n] +=.
// grid (n / block, 2 * limbs, rows / ROW_TILE rounded up).
extern "C" __global__ void __launch_bounds__(128)
    scalar_products(const int16_t *weights, const uint64_t *c0, const uint64_t *c1, uint64_t *sums, const Limb *limbs,
                    uint32_t first, uint32_t count, uint32_t rows, uint32_t n) {
    __shared__ int32_t tile[COLUMN_TILE * ROW_TILE];
    uint32_t limb_count = gridDim.y / 2, of_limb = blockIdx.y % limb_count, first_row = blockIdx.z * ROW_TILE;
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    const uint64_t *source = (blockIdx.y < limb_count ? c0 : c1) + size_t(of_limb) * n + i;
    int64_t low[ROW_TILE] = {}, high[ROW_TILE] = {};
    for (uint32_t start = 0; start < count; start += COLUMN_TILE) {
        uint32_t width = min(COLUMN_TILE, count - start);
        __syncthreads();
        for (uint32_t k = threadIdx.x; k < COLUMN_TILE * ROW_TILE; k += blockDim.x) {
            uint32_t row = first_row + k % ROW_TILE, j = k / ROW_TILE;
            tile[k] = row < rows && j < width ? weights[size_t(first + start + j) * rows + row] : 0;
        }
        __syncthreads();
        const uint64_t *words = source + size_t(start) * limb_count * n;
        for (uint32_t j = 0; j < width; j += UNDER_WAY) {
            uint64_t batch[UNDER_WAY];
#pragma unroll
            for (uint32_t k = 0; k < UNDER_WAY; k++) {
                batch[k] = j + k < width ? words[size_t(j + k) * limb_count * n] : 0;
            }
#pragma unroll
            for (uint32_t k = 0; k < UNDER_WAY; k++) {
                int32_t lower = int32_t(batch[k] & ((1u << CUT) - 1)), upper = int32_t(batch[k] >> CUT);
#pragma unroll
                for (uint32_t row = 0; row < ROW_TILE; row++) {
                    int32_t weight = tile[(j + k) * ROW_TILE + row];
                    low[row] += int64_t(weight) * lower;
                    if (sizeof(RING_WORD) == 8) high[row] += int64_t(weight) * upper;
                }
            }
        }
    }
    const Limb limb = limbs[of_limb];
#pragma unroll
    for (uint32_t row = 0; row < ROW_TILE; row++) {
        if (first_row + row >= rows) break;
        uint64_t *sum = sums + (size_t(first_row + row) * gridDim.y + blockIdx.y) * n + i;
        uint64_t value = add_mod(*sum, reduce_signed(low[row], limb), limb.q);
        if (sizeof(RING_WORD) == 8) {
            uint64_t shifted = mul_mod(reduce_signed(high[row], limb), uint64_t(1) << CUT, limb);
            value = add_mod(value, shifted, limb.q);
        }
        *sum = value;
    }
}
