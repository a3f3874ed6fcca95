// Rotary positions, the append to the cache and one token's attention over it, in one launch.
//
// Floor: 2 x kv_heads x head_dim elements for each position, once (Qwen2.5-1.5B in bf16: 1 KiB for each position and
// layer, so at 1,000 positions 1 MB or 0.35 us at 3.0 TB/s, 28 launches a step). Prediction: 3 to 4 us, nearly all of
// it the latency of load, barrier, load; more splits than positions / `least` are not started.
//
// compile with: ELEMENT=bf16 GROUP=6 HEAD_DIM=128
// compile with: ELEMENT=bf16 GROUP=8 HEAD_DIM=128
// compile with: ELEMENT=bf16 GROUP=4 HEAD_DIM=128
// compile with: ELEMENT=bf16 GROUP=5 HEAD_DIM=128
// compile with: ELEMENT=bf16 GROUP=1 HEAD_DIM=96
// compile with: ELEMENT=float GROUP=6 HEAD_DIM=128
// compile with: ELEMENT=float GROUP=2 HEAD_DIM=16
#include "attention.cuh"

using Softmax = Running<GROUP, HEAD_DIM>;

// Appends one token's key, turned to its position, and its value to one head's cache, keys and values
// [length, HEAD_DIM]. key: float32 [HEAD_DIM]; its value stands kv_heads heads behind it.
__device__ inline void append_token(ELEMENT *keys, ELEMENT *values, const float *key, const float *cosine,
                                    const float *sine, uint32_t half, uint32_t at, uint32_t kv_heads) {
    const float *value = key + kv_heads * HEAD_DIM;
    for (int d = threadIdx.x; d < HEAD_DIM; d += blockDim.x) {
        keys[size_t(at) * HEAD_DIM + d] = from_float<ELEMENT>(rotate(key, cosine, sine, int(half), d));
        values[size_t(at) * HEAD_DIM + d] = from_float<ELEMENT>(value[d]);
    }
}

// Whether this block is the last of `active` to count itself; the counter is zero again for the next launch.
// Every thread of the block calls it.
__device__ inline bool is_last_block(uint32_t *counter, uint32_t active) {
    __shared__ uint32_t last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(counter, 1u) == active - 1;
        if (last) *counter = 0;
    }
    __syncthreads();
    return last;
}

// qkv float32 [B, (GROUP + 2) x kv_heads, HEAD_DIM], heads of q, then k, then v. keys, values: one layer's cache
// [slots, kv_heads, length, HEAD_DIM]; row b is slot b. positions int64 [B]: the place of this token, and one less than
// what it attends to; a row whose position is not below `limit` is idle and gives zeros. cosines, sines float32
// [positions, half]. attended float32 [B, GROUP x kv_heads, HEAD_DIM].
// partials float32 [B, kv_heads, splits, GROUP, HEAD_DIM + 2] and counters [B, kv_heads] (zero, and left zero) belong
// to one launch at a time. window: how many positions count, 0 for all. grid (splits, kv_heads, B), block 128.
extern "C" __global__ void __launch_bounds__(128)
    attention(const float *qkv, ELEMENT *keys, ELEMENT *values, const int64_t *positions, const float *cosines,
              const float *sines, float *attended, float *partials, uint32_t *counters, uint32_t length,
              uint32_t limit, uint32_t half, uint32_t window, uint32_t least, float scale) {
    __shared__ __align__(16) float lines[Softmax::TEAMS * GROUP * Softmax::LINE];
    __shared__ __align__(16) float queries[GROUP * HEAD_DIM];
    uint32_t split = blockIdx.x, head = blockIdx.y, row = blockIdx.z, kv_heads = gridDim.y;
    float *result = attended + (size_t(row) * kv_heads + head) * GROUP * HEAD_DIM;
    next_may_start();
    previous_done();

    int64_t position = positions[row];
    if (position < 0 || position >= int64_t(limit)) {
        for (int i = threadIdx.x; split == 0 && i < GROUP * HEAD_DIM; i += blockDim.x) result[i] = 0;
        return;
    }
    uint32_t at = uint32_t(position);
    Stretch stretch(window != 0 && at + 1 > window ? at + 1 - window : 0, at, gridDim.x, least, split);
    if (split >= stretch.active) return;

    const float *token = qkv + size_t(row) * (GROUP + 2) * kv_heads * HEAD_DIM;
    const float *cosine = cosines + size_t(at) * half, *sine = sines + size_t(at) * half;
    for (int i = threadIdx.x; i < GROUP * HEAD_DIM; i += blockDim.x) {
        const float *query = token + (head * GROUP + i / HEAD_DIM) * HEAD_DIM;
        queries[i] = rotate(query, cosine, sine, int(half), i % HEAD_DIM) * (scale * LOG2_E);
    }
    size_t base = (size_t(row) * kv_heads + head) * length * HEAD_DIM;
    keys += base, values += base;
    if (split == stretch.active - 1) {
        // The block that comes to this token's own position appends it, and reads it after the barrier like any other.
        const float *key = token + (GROUP * kv_heads + head) * HEAD_DIM;
        append_token(keys, values, key, cosine, sine, half, at, kv_heads);
    }
    __syncthreads();

    Softmax running;
    running.clear();
    for (uint32_t first = stretch.begin; first < stretch.end; first += Softmax::TEAMS * Softmax::DEEP) {
        running.add(queries, keys, values, first, stretch.end);
    }
    running.leave(lines);
    __syncthreads();

    bool alone = stretch.active == 1;
    size_t part = size_t(GROUP) * Softmax::LINE;
    float *parts = partials + (size_t(row) * kv_heads + head) * gridDim.x * part;
    for (int i = threadIdx.x; i < GROUP * HEAD_DIM; i += blockDim.x) {
        int g = i / HEAD_DIM, d = i % HEAD_DIM;
        float most, weight;
        float content = Softmax::together<false>(lines, Softmax::TEAMS, part, g, d, most, weight);
        if (alone) {
            result[i] = content / weight;
            continue;
        }
        float *line = parts + split * part + g * Softmax::LINE;
        line[d] = content;
        if (d == 0) line[HEAD_DIM] = most, line[HEAD_DIM + 1] = weight;
    }
    if (alone) return;

    // The block that ends last puts the parts together.
    if (!is_last_block(counters + row * kv_heads + head, stretch.active)) return;
    __threadfence();
    for (int i = threadIdx.x; i < GROUP * HEAD_DIM; i += blockDim.x) {
        float most, weight;
        float content = Softmax::together<true>(parts, stretch.active, part, i / HEAD_DIM, i % HEAD_DIM, most,
                                                     weight);
        result[i] = content / weight;
    }
}
