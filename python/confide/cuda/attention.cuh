// One token's attention over the cache, the device side of attention.cu: turned queries, a stretch of positions for
// each block, a running softmax for each team of lanes, teams and then blocks put together.
#pragma once

#include "stream.cuh"

constexpr int ATTENTION_THREADS = 128;
constexpr float LOG2_E = 1.4426950408889634f;

__host__ __device__ constexpr int team_lanes(int head_dim) {
    int lanes = 1;
    while (lanes * 8 < head_dim) lanes *= 2;
    return lanes;
}

// The positions that a row attends to, and the part of them that falls to one block.
struct Stretch {
    uint32_t begin, end, active;  // of this block; blocks that have any

    // Positions `start` to `position`, over at most `splits` blocks of at least `least` positions each.
    __device__ Stretch(uint32_t start, uint32_t position, uint32_t splits, uint32_t least, uint32_t split) {
        uint32_t count = position + 1 - start;
        uint32_t each = max(least, (count + splits - 1) / splits);
        active = (count + each - 1) / each;
        begin = start + min(count, split * each);
        end = start + min(count, (split + 1) * each);
    }
};

// Element `d` of a head after its turn: pairs (d, d + half) turn together, elements from 2·half on stay.
__device__ inline float rotate(const float *head, const float *cosines, const float *sines, int half, int d) {
    if (d >= 2 * half) return head[d];
    int pair = d < half ? d : d - half;
    float other = d < half ? -head[d + half] : head[d - half];
    return head[d] * cosines[pair] + other * sines[pair];
}

// A softmax under way over some positions: the largest score (base 2), the sum of weights, the weighted values.
template <int GROUP_HEADS, int HEAD>
struct Running {
    static constexpr int LANES = team_lanes(HEAD), TEAMS = ATTENTION_THREADS / LANES, DEEP = GROUP_HEADS > 4 ? 2 : 4;
    static constexpr int LINE = HEAD + 2;

    float most[GROUP_HEADS], weight[GROUP_HEADS], content[GROUP_HEADS][8];

    __device__ void clear() {
#pragma unroll
        for (int g = 0; g < GROUP_HEADS; g++) {
            most[g] = -INFINITY, weight[g] = 0;
#pragma unroll
            for (int i = 0; i < 8; i++) content[g][i] = 0;
        }
    }

    // DEEP positions of each team at a time, all their keys and values asked for at once. `queries` [GROUP_HEADS][HEAD]
    // in shared memory, scaled by log2(e) too; `keys`, `values` [positions, HEAD] of this row and key head.
    template <class Element>
    __device__ void add(const float *queries, const Element *keys, const Element *values, uint32_t first,
                        uint32_t end) {
        uint32_t lane = threadIdx.x % LANES, team = threadIdx.x / LANES;
        bool carries = lane * 8 < HEAD;
        float scores[GROUP_HEADS][DEEP], held[DEEP][8];
#pragma unroll
        for (int u = 0; u < DEEP; u++) {
            uint32_t position = first + u * TEAMS + team;
            float key[8] = {0, 0, 0, 0, 0, 0, 0, 0};
#pragma unroll
            for (int i = 0; i < 8; i++) held[u][i] = 0;
            if (position < end && carries) {
                load_eight(keys + size_t(position) * HEAD + lane * 8, key);
                load_eight(values + size_t(position) * HEAD + lane * 8, held[u]);
            }
#pragma unroll
            for (int g = 0; g < GROUP_HEADS; g++) {
                float score = 0;
                if (carries) {
                    float query[8];
                    load_eight(queries + g * HEAD + lane * 8, query);
#pragma unroll
                    for (int i = 0; i < 8; i++) score = fmaf(query[i], key[i], score);
                }
#pragma unroll
                for (int lanes = LANES / 2; lanes > 0; lanes >>= 1) score += __shfl_xor_sync(ALL_LANES, score, lanes);
                scores[g][u] = position < end ? score : -INFINITY;
            }
        }
#pragma unroll
        for (int g = 0; g < GROUP_HEADS; g++) {
            float now = most[g];
#pragma unroll
            for (int u = 0; u < DEEP; u++) now = fmaxf(now, scores[g][u]);
            // A team that has seen nothing yet keeps its zeros.
            if (now == -INFINITY) continue;
            float keep = exp2f(most[g] - now);
            most[g] = now, weight[g] *= keep;
#pragma unroll
            for (int i = 0; i < 8; i++) content[g][i] *= keep;
#pragma unroll
            for (int u = 0; u < DEEP; u++) {
                float share = exp2f(scores[g][u] - now);
                weight[g] += share;
#pragma unroll
                for (int i = 0; i < 8; i++) content[g][i] = fmaf(share, held[u][i], content[g][i]);
            }
        }
    }

    // Puts this thread's part where `together` finds it: lines [TEAMS][GROUP_HEADS][HEAD + 2].
    __device__ void leave(float *lines) const {
        uint32_t lane = threadIdx.x % LANES, team = threadIdx.x / LANES;
#pragma unroll
        for (int g = 0; g < GROUP_HEADS; g++) {
            float *line = lines + (team * GROUP_HEADS + g) * LINE;
            if (lane == 0) line[HEAD] = most[g], line[HEAD + 1] = weight[g];
            if (lane * 8 >= HEAD) continue;
#pragma unroll
            for (int i = 0; i < 8; i++) line[lane * 8 + i] = content[g][i];
        }
    }

    // Element `d` of head `g` over `count` lines `stride` floats apart; also their largest score and whole weight.
    // What other blocks wrote is read past L1.
    template <bool OTHERS>
    __device__ static float together(const float *lines, uint32_t count, size_t stride, int g, int d, float &most,
                                     float &weight) {
        most = -INFINITY, weight = 0;
        float content = 0;
        const float *line = lines + g * LINE;
        auto read = [](const float *address) { return OTHERS ? __ldcg(address) : *address; };
        for (uint32_t i = 0; i < count; i++) most = fmaxf(most, read(line + i * stride + HEAD));
        for (uint32_t i = 0; i < count; i++) {
            float share = exp2f(read(line + i * stride + HEAD) - most);
            weight += read(line + i * stride + HEAD + 1) * share;
            content += read(line + i * stride + d) * share;
        }
        return content;
    }
};
