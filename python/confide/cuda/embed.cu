// The first kernel of a decode step: each row's token picks its row of the embedding.
// Floor: rows x width elements read and written once (batch 1, width 1536, bf16: 9 KiB); the launch is all its time.
// compile with: WEIGHT=bf16
// compile with: WEIGHT=float
#include "stream.cuh"

#ifndef WEIGHT
#define WEIGHT bf16
#endif

// table [vocabulary, width]; tokens int64 [rows]; hidden float32 [rows, width], the residual stream.
// grid (rows), any block. A token outside the vocabulary reads row 0: the sampler never makes one.
extern "C" __global__ void embed(const WEIGHT *table, const int64_t *tokens, float *hidden, uint32_t width,
                                 uint32_t vocabulary) {
    uint32_t row = blockIdx.x;
    next_may_start();
    previous_done();
    int64_t token = tokens[row];
    if (token < 0 || token >= int64_t(vocabulary)) token = 0;
    for (uint32_t i = threadIdx.x; i < width; i += blockDim.x) {
        hidden[size_t(row) * width + i] = to_float(table[size_t(token) * width + i]);
    }
}
