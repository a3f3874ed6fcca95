// The greedy choice of a decode step in one launch: each row's first token with the greatest logit, without those that
// are forbidden.
//
// Floor: logits and the forbidden flags once (151,936 logits in float32: 0.76 MB, 0.25 us at 3.0 TB/s). Prediction:
// 4 us, nearly all of it latency and the last block's turn; torch takes a fill, a reduction in two launches and a copy,
// 12 to 15 us.
//
// compile with: LOGIT=float
// compile with: LOGIT=bf16
#include "stream.cuh"

constexpr uint32_t THREADS = 256, WARPS = THREADS / WARP, AT_ONCE = 4;

// A logit and its token. A logit that is not a number is above all others, as in torch.max: the text ends there.
struct Candidate {
    float value;
    uint32_t token;

    __device__ bool is_above(const Candidate &other) const {
        bool odd = value != value, other_odd = other.value != other.value;
        if (odd != other_odd) return odd;
        if (!odd && value != other.value) return value > other.value;
        return token < other.token;
    }

    __device__ void take(const Candidate &other) {
        if (other.is_above(*this)) *this = other;
    }
};

__device__ inline Candidate warp_best(Candidate best) {
#pragma unroll
    for (int lanes = WARP / 2; lanes > 0; lanes >>= 1) {
        float value = __shfl_xor_sync(ALL_LANES, best.value, lanes);
        best.take(Candidate{value, __shfl_xor_sync(ALL_LANES, best.token, lanes)});
    }
    return best;
}

// The best of the block's threads, in thread 0.
__device__ inline Candidate block_best(Candidate best, Candidate *of_warps) {
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    best = warp_best(best);
    __syncthreads();
    if (lane == 0) of_warps[warp] = best;
    __syncthreads();
    return warp_best(of_warps[lane % WARPS]);
}

// logits LOGIT [B, vocabulary]; forbidden bytes [B, forbidden_stride], nonzero for a token that is never chosen.
// best float32 [B]: the greatest logit, -infinity if all are forbidden, NaN if one is; token int64 [B]: its number, the
// first of equals. values float32 and tokens [B, blocks] and counters [B] (zero, and left zero) belong to one launch at
// a time. grid (blocks, B), block 256.
extern "C" __global__ void __launch_bounds__(THREADS)
    choose_greedy(const LOGIT *logits, const uint8_t *forbidden, float *best, int64_t *token, float *values,
                  uint32_t *tokens, uint32_t *counters, uint32_t vocabulary, uint32_t forbidden_stride) {
    __shared__ Candidate of_warps[WARPS];
    __shared__ uint32_t is_last;
    uint32_t row = blockIdx.y, blocks = gridDim.x, step = blocks * THREADS;
    next_may_start();
    previous_done();
    const LOGIT *line = logits + size_t(row) * vocabulary;
    const uint8_t *flags = forbidden + size_t(row) * forbidden_stride;
    Candidate own = {-INFINITY, 0};
    for (uint32_t first = blockIdx.x * THREADS + threadIdx.x; first < vocabulary; first += AT_ONCE * step) {
        // All loads of a round before the first comparison.
        float value[AT_ONCE];
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            uint32_t at = first + i * step;
            bool admitted = at < vocabulary && flags[at] == 0;
            value[i] = admitted ? to_float(line[at]) : -INFINITY;
        }
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            // -infinity is what `own` begins with, at the first token.
            if (value[i] != -INFINITY) own.take(Candidate{value[i], first + i * step});
        }
    }
    own = block_best(own, of_warps);
    if (threadIdx.x == 0) {
        values[size_t(row) * blocks + blockIdx.x] = own.value;
        tokens[size_t(row) * blocks + blockIdx.x] = own.token;
        __threadfence();
        is_last = atomicAdd(counters + row, 1u) == blocks - 1;
        if (is_last) counters[row] = 0;
    }
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    Candidate all = {-INFINITY, 0};
    for (uint32_t i = threadIdx.x; i < blocks; i += THREADS) {
        Candidate other = {__ldcg(values + size_t(row) * blocks + i), __ldcg(tokens + size_t(row) * blocks + i)};
        if (other.value != -INFINITY) all.take(other);
    }
    all = block_best(all, of_warps);
    if (threadIdx.x == 0) best[row] = all.value, token[row] = all.token;
}
