// The last two kernels of a decode step: the best logit of each row, then the next token, its place, and the end of a
// generation, all in device memory, so that a recorded step follows the one before without the host.
//
// Floor: logits read once (batch 1, 151,936 float32: 0.6 MB from L2). Prediction: 3 us each when greedy; with a
// temperature the second reads the row 4 to 8 more times from one multiprocessor, about 6 us each time.
// compile with:
#include "sample.cuh"

// logits float32 [B, stride], of which the first `vocabulary` are tokens; banned ids become -infinity. banned int32
// [B, banned_most], of which banned_count[b] count. bests [B, gridDim.x]. grid (any, B), block 256.
extern "C" __global__ void __launch_bounds__(256)
    best(float *logits, const int32_t *banned, const int32_t *banned_count, float *best_logits, uint32_t *best_ids,
         uint32_t stride, uint32_t vocabulary, uint32_t banned_most) {
    __shared__ float warp_logits[8];
    __shared__ uint32_t warp_ids[8];
    uint32_t each = (vocabulary + gridDim.x - 1) / gridDim.x, row = blockIdx.y;
    uint32_t begin = min(vocabulary, blockIdx.x * each), end = min(vocabulary, begin + each);
    float *of_row = logits + size_t(row) * stride;
    next_may_start();
    previous_done();
    for (int i = threadIdx.x; i < banned_count[row]; i += blockDim.x) {
        uint32_t id = uint32_t(banned[row * banned_most + i]);
        if (id >= begin && id < end) of_row[id] = -INFINITY;
    }
    __syncthreads();
    Best found = {0, NO_KEY};
    for (uint32_t id = begin + threadIdx.x; id < end; id += blockDim.x) {
        if (admitted(of_row[id])) found = better(found, {of_row[id], id});
    }
    found = warp_best(found);
    uint32_t warp = threadIdx.x / WARP;
    if (threadIdx.x % WARP == 0) warp_logits[warp] = found.logit, warp_ids[warp] = found.id;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (warp = 1; warp < blockDim.x / WARP; warp++) found = better(found, {warp_logits[warp], warp_ids[warp]});
    best_logits[row * gridDim.x + blockIdx.x] = found.logit;
    best_ids[row * gridDim.x + blockIdx.x] = found.id;
}

// Chooses each row's next token as crates/native/src/sample.rs does: the first of the best where the temperature is 0;
// else a point in the weights of the smallest set of best tokens that has the share top_p of the whole. The point
// comes from ChaCha20 of seeds[b] and the position.
// A row whose position is not below `limit` is idle. ended[b]: 0 goes on, 1 a stop id, 2 no tokens remain (`remaining`
// counts down; a full cache too), 3 no admitted logit. An ended row's position becomes `limit`.
// tokens, positions int64 [B], both updated; emitted int32 [ring, B] gets the token at steps[b] modulo ring, or -1 for
// an idle row; steps uint32 [B] counts. grid (B), block 1024.
extern "C" __global__ void __launch_bounds__(1024)
    choose(const float *logits, const float *best_logits, const uint32_t *best_ids, const float *temperatures,
           const float *top_ps, const uint64_t *seeds, const int32_t *stops, const int32_t *stops_count,
           int32_t *remaining, int64_t *tokens, int64_t *positions, int32_t *ended, int32_t *emitted, uint32_t *steps,
           uint32_t stride, uint32_t vocabulary, uint32_t parts, uint32_t stops_most, uint32_t limit, uint32_t ring) {
    __shared__ uint64_t bins[BINS];
    __shared__ uint64_t of_warps[32];
    __shared__ Place found;
    uint32_t row = blockIdx.x;
    next_may_start();
    previous_done();
    int64_t position = positions[row];
    bool idle = position < 0 || position >= int64_t(limit);
    float temperature = temperatures[row];
    Best best = {0, NO_KEY};
    for (uint32_t part = 0; part < parts; part++) {
        best = better(best, {best_logits[row * parts + part], best_ids[row * parts + part]});
    }
    uint32_t token = best.id;
    if (!idle && token != NO_KEY && temperature > 0) {
        Row whole_row = {logits + size_t(row) * stride, vocabulary, best.logit, 1.44269504f / temperature, bins,
                         of_warps, &found};
        uint64_t sum = whole_row.whole();
        if (top_ps[row] < 1) {
            uint64_t wanted = uint64_t(double(sum) * double(fmaxf(top_ps[row], 0.0f)));
            Place end = whole_row.find(wanted == 0 ? 0 : wanted - 1);
            // The last token that is needed stays in.
            uint64_t needed = ((wanted == 0 ? 0 : wanted - 1) - end.above) / end.weight + 1;
            sum = end.above + needed * end.weight;
        }
        uint64_t point = __umul64hi(random_bits(seeds[row], uint64_t(position)), sum);
        Place place = whole_row.find(point);
        token = whole_row.nth(place.key, (point - place.above) / place.weight);
    }
    // Others may not have read the position yet, which changes here.
    __syncthreads();
    if (threadIdx.x != 0) return;
    uint32_t step = steps[row]++;
    int32_t *place = emitted + size_t(step % ring) * gridDim.x + row;
    *place = idle || token == NO_KEY ? -1 : int32_t(token);
    if (idle) return;
    int32_t end = token == NO_KEY ? 3 : 0;
    for (int i = 0; i < stops_count[row]; i++) {
        if (uint32_t(stops[row * stops_most + i]) == token) end = 1;
    }
    remaining[row]--;
    if (end == 0 && (remaining[row] <= 0 || position + 1 >= int64_t(limit))) end = 2;
    ended[row] = end;
    tokens[row] = token == NO_KEY ? 0 : int64_t(token);
    positions[row] = end == 0 ? position + 1 : int64_t(limit);
}
