// Choosing a token from logits, the device side of sample.cu: sums over a block, keys of logits, ChaCha20.
#pragma once

#include "stream.cuh"

constexpr int CHOOSE_THREADS = 1024;
constexpr uint32_t BINS = 2048;
// A key is how far a logit lies below the best, in halvings of its weight times 2^26: smaller is better. Logits nearer
// to each other than that count as equal; 40 halvings and more weigh nothing.
constexpr float KEY_SCALE = 67108864.0f;
constexpr float KEY_END = 40.0f;
constexpr uint32_t NO_KEY = 0xffffffffu;

struct Best {
    float logit;
    uint32_t id;
};

// The larger logit; of equals the first. An id of NO_KEY is none.
__device__ inline Best better(Best left, Best right) {
    if (right.id == NO_KEY) return left;
    if (left.id == NO_KEY || right.logit > left.logit) return right;
    if (right.logit == left.logit && right.id < left.id) return right;
    return left;
}

__device__ inline Best warp_best(Best best) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes >>= 1) {
        Best other = {__shfl_xor_sync(ALL_LANES, best.logit, lanes), __shfl_xor_sync(ALL_LANES, best.id, lanes)};
        best = better(best, other);
    }
    return best;
}

__device__ inline bool admitted(float logit) { return fabsf(logit) < INFINITY; }

__device__ inline uint32_t key_of(float logit, float best, float steepness) {
    float below = (best - logit) * steepness;
    return admitted(logit) && below < KEY_END ? uint32_t(below * KEY_SCALE) : NO_KEY;
}

// In 2^-40 of the best one's weight: whole numbers, so that no order of addition changes a sum.
__device__ inline uint64_t weight_of(uint32_t key) {
    return uint64_t(exp2f(-float(key) / KEY_SCALE) * 1099511627776.0f);
}

// 64 random bits: the first words of the ChaCha20 block (RFC 8439) of a request's seed and a position.
__device__ inline uint64_t random_bits(uint64_t seed, uint64_t position) {
    uint32_t state[16] = {0x61707865u, 0x3320646eu, 0x79622d32u, 0x6b206574u, uint32_t(seed), uint32_t(seed >> 32),
                          0x666e6f63u, 0x20656469u, 0x706d6173u, 0x676e696cu, 0, 0, 0,
                          uint32_t(position), uint32_t(position >> 32), 0};
    uint32_t first = state[0], second = state[1];
    // In pairs: an index that is known only while it runs would put the state into local memory.
#pragma unroll 2
    for (int round = 0; round < 20; round++) {
#pragma unroll
        for (int column = 0; column < 4; column++) {
            int turn = round & 1;
            uint32_t &a = state[column], &b = state[4 + ((column + turn) & 3)];
            uint32_t &c = state[8 + ((column + 2 * turn) & 3)], &d = state[12 + ((column + 3 * turn) & 3)];
            a += b, d ^= a, d = d << 16 | d >> 16;
            c += d, b ^= c, b = b << 12 | b >> 20;
            a += b, d ^= a, d = d << 8 | d >> 24;
            c += d, b ^= c, b = b << 7 | b >> 25;
        }
    }
    return uint64_t(state[1] + second) << 32 | uint32_t(state[0] + first);
}

// Where a point falls among the weights of a row, best first.
struct Place {
    uint32_t key;
    uint64_t above, weight;  // of all better keys; of each logit with this key
};

// A block's work on one row of logits.
struct Row {
    const float *logits;
    uint32_t vocabulary;
    float best, steepness;
    uint64_t *bins;      // [BINS], shared
    uint64_t *of_warps;  // [32], shared
    Place *found;        // shared

    __device__ uint32_t key(uint32_t id) const { return key_of(logits[id], best, steepness); }

    // Sums the weights of keys that begin with `prefix` (above bit `shift + bits`) by their next `bits` bits.
    __device__ void fill(uint32_t prefix, int shift, int bits) const {
        for (uint32_t bin = threadIdx.x; bin < BINS; bin += blockDim.x) bins[bin] = 0;
        __syncthreads();
        for (uint32_t id = threadIdx.x; id < vocabulary; id += blockDim.x) {
            uint32_t one = key(id);
            bool inside = one != NO_KEY && (shift + bits == 32 || one >> (shift + bits) == prefix);
            // By the name that the atomics have for 64 bits: under nvcc uint64_t is another.
            auto *bin = reinterpret_cast<unsigned long long *>(&bins[one >> shift & ((1u << bits) - 1)]);
            if (inside) atomicAdd(bin, static_cast<unsigned long long>(weight_of(one)));
        }
        __syncthreads();
    }

    // The sum of the bins before this thread's two, of `own` = those two; the last thread's end is the whole.
    __device__ uint64_t before(uint64_t own) const {
        uint64_t sum = own;
        uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
#pragma unroll
        for (int lanes = 1; lanes < 32; lanes <<= 1) {
            uint64_t other = __shfl_up_sync(ALL_LANES, sum, lanes);
            if (lane >= uint32_t(lanes)) sum += other;
        }
        if (lane == 31) of_warps[warp] = sum;
        __syncthreads();
        uint64_t earlier = 0;
        for (uint32_t other = 0; other < warp; other++) earlier += of_warps[other];
        __syncthreads();
        return earlier + sum - own;
    }

    // The whole weight of the row.
    __device__ uint64_t whole() const {
        fill(0, 21, 11);
        uint64_t own = bins[2 * threadIdx.x] + bins[2 * threadIdx.x + 1], start = before(own);
        if (threadIdx.x == blockDim.x - 1) found->above = start + own;
        __syncthreads();
        uint64_t sum = found->above;
        __syncthreads();
        return sum;
    }

    // The key in whose weight `point` (below the whole weight) falls, the weights laid out best first.
    __device__ Place find(uint64_t point) const {
        uint32_t prefix = 0;
        uint64_t above = 0;
        for (int shift = 21, bits = 11; bits > 0; bits = shift < 11 ? shift : 11, shift -= bits) {
            fill(prefix, shift, bits);
            uint64_t first = bins[2 * threadIdx.x], own = first + bins[2 * threadIdx.x + 1];
            uint64_t start = above + before(own);
            if (point >= start && point < start + own) {
                bool second = point >= start + first;
                found->key = prefix << bits | (2 * threadIdx.x + second);
                found->above = second ? start + first : start;
            }
            __syncthreads();
            prefix = found->key, above = found->above;
            __syncthreads();
        }
        return {prefix, above, weight_of(prefix)};
    }

    // The id of the `nth` logit (from 0) with this key, in the order of ids.
    __device__ uint32_t nth(uint32_t wanted, uint64_t nth) const {
        uint32_t each = (vocabulary + blockDim.x - 1) / blockDim.x;
        uint32_t begin = min(vocabulary, threadIdx.x * each), end = min(vocabulary, begin + each);
        uint64_t own = 0;
        for (uint32_t id = begin; id < end; id++) own += key(id) == wanted;
        uint64_t start = before(own);
        for (uint32_t id = begin; id < end; id++) {
            if (key(id) == wanted && start++ == nth) found->key = id;
        }
        __syncthreads();
        uint32_t id = found->key;
        __syncthreads();
        return id;
    }
};
