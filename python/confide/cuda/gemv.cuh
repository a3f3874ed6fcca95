// A matrix times a few vectors, the matrix streamed once: the device side of gemv.cu.
//
// A warp takes Rows rows of the matrix whole (or, with Split > 1, a part of their columns: Split warps of the block
// share them). Each lane asks for Rows x Unroll words of 16 bytes before it uses the first, and before it waits for
// the kernel that makes the vector. Sums are float32. An RMS norm in front costs no pass of its own:
// W·(h·g·s) = s·(W·(h·g)), and s, one number for each vector, comes from squares summed next to the product.
// STAGED: each block first lays its vectors, times the norm's gains, into shared memory. That pays where warps share
// them and rows are short; long ones are read through L1.
#pragma once

#include "stream.cuh"

// How 16 bytes hold weights.
template <class Weight>
struct Packing;
template <>
struct Packing<float> {
    static constexpr int QUADS = 1;
    __device__ static float4 quad(uint4 words, int) {
        return make_float4(__uint_as_float(words.x), __uint_as_float(words.y), __uint_as_float(words.z),
                           __uint_as_float(words.w));
    }
};
template <>
struct Packing<bf16> {
    static constexpr int QUADS = 2;
    __device__ static float4 quad(uint4 words, int at) {
        uint32_t low = at ? words.z : words.x, high = at ? words.w : words.y;
        return make_float4(bf16_low(low), bf16_high(low), bf16_low(high), bf16_high(high));
    }
};
enum Output { STORE, ADD, SWIGLU };

// weights [out, packs x 16 bytes]; bias [out] or null.
template <class Element>
struct Matrix {
    const uint4 *weights;
    const Element *bias;
    uint32_t out, columns;
};

// input [Batch, columns]; norm [columns] where the input is normed.
template <class Element>
struct Vectors {
    const float *input;
    const Element *norm;
    float epsilon;
};

template <class Weight, class Element, int Rows, int Split, int Unroll, int Batch, int Warps, bool Normed, int Result,
          bool Staged>
struct Gemv {
    using Packed = Packing<Weight>;
    static constexpr int QUADS = Packed::QUADS;
    static constexpr int GROUPS = Warps / Split;  // row groups at work in a block
    static constexpr int HELD = Result == SWIGLU ? Rows / 2 : Rows;  // results of a row group for each vector
    static constexpr int STEP = Warps * WARP * 4, AT_ONCE = 3;  // columns that a block stages at a time, and how often
    static_assert(HELD * Batch <= 32, "each result has a lane of its own");
    static_assert(Warps % Split == 0 && (Result != SWIGLU || Rows % 2 == 0), "whole row groups");

    float sums[Rows][Batch], squares[Batch];
    float *staged;  // shared, [Batch, columns], where STAGED
    bool begun = false;

    __device__ explicit Gemv(float *shared) : staged(shared) {}

    // The row in place `r` of group `group`: pairs of gate and up stand `half` rows apart.
    __device__ static uint32_t row_at(uint32_t group, int r, uint32_t out) {
        uint32_t half = out / 2;
        uint32_t row = group * HELD + r;
        if (Result == SWIGLU && r >= HELD) row += half - HELD;
        uint32_t end = Result == SWIGLU && r < HELD ? half : out;
        // Past the end: read the last row, store nothing.
        return row < end ? row : end - 1;
    }

    // Where a vector's columns from `column` on, a multiple of 4, lie: so that lanes read neighbouring 16 bytes.
    __device__ static uint32_t staged_at(uint32_t column, uint32_t columns) {
        if (QUADS == 1) return column;
        return column / 4 % QUADS * (columns / QUADS) + column / (4 * QUADS) * 4;
    }

    // Once, by all threads of the block at one place, after their first loads of weights: waits for the vectors, and
    // stages them.
    __device__ void begin(const Vectors<Element> &vectors, uint32_t columns) {
        previous_done();
        if constexpr (Staged) stage(vectors, columns);
    }

    __device__ void stage(const Vectors<Element> &vectors, uint32_t columns) {
        __shared__ float of_warps[Batch][Warps];
#pragma unroll
        for (int b = 0; b < Batch; b++) {
            float sum = 0;
            const float *input = vectors.input + size_t(b) * columns;
            for (uint32_t first = threadIdx.x * 4; first < columns; first += AT_ONCE * STEP) {
                // All loads before the first store: the compiler cannot know that they do not meet.
                float4 x[AT_ONCE], gain[AT_ONCE];
#pragma unroll
                for (int i = 0; i < AT_ONCE; i++) {
                    uint32_t column = first + i * STEP;
                    x[i] = gain[i] = make_float4(0, 0, 0, 0);
                    if (column < columns) x[i] = load_four(input + column);
                    if (Normed && column < columns) gain[i] = load_four(vectors.norm + column);
                }
#pragma unroll
                for (int i = 0; i < AT_ONCE; i++) {
                    uint32_t column = first + i * STEP;
                    if (Normed) {
                        sum += x[i].x * x[i].x + x[i].y * x[i].y + x[i].z * x[i].z + x[i].w * x[i].w;
                        x[i].x *= gain[i].x, x[i].y *= gain[i].y, x[i].z *= gain[i].z, x[i].w *= gain[i].w;
                    }
                    float *place = staged + b * columns + staged_at(column, columns);
                    if (column < columns) *reinterpret_cast<float4 *>(place) = x[i];
                }
            }
            if (!Normed) continue;
            sum = warp_sum(sum);
            if (threadIdx.x % WARP == 0) of_warps[b][threadIdx.x / WARP] = sum;
        }
        __syncthreads();
#pragma unroll
        for (int b = 0; b < Batch; b++) {
            squares[b] = 0;
            for (int warp = 0; Normed && warp < Warps; warp++) squares[b] += of_warps[b][warp];
        }
    }

    __device__ void clear() {
#pragma unroll
        for (int b = 0; b < Batch; b++) {
            if (!Staged) squares[b] = 0;
#pragma unroll
            for (int r = 0; r < Rows; r++) sums[r][b] = 0;
        }
    }

    // The products of one chunk: 16 bytes of each row with the columns they stand for. INSIDE: none is past the end.
    template <bool INSIDE>
    __device__ void add_chunk(const uint4 words[Rows], const Vectors<Element> &vectors, uint32_t chunk, uint32_t lane,
                              uint32_t columns) {
#pragma unroll
        for (int q = 0; q < QUADS; q++) {
            uint32_t column = ((chunk * WARP + lane) * QUADS + q) * 4;
            bool inside = INSIDE || column < columns;
            float4 gain = make_float4(1, 1, 1, 1);
            if (Normed && !Staged && inside) gain = load_four(vectors.norm + column);
#pragma unroll
            for (int b = 0; b < Batch; b++) {
                float4 x = make_float4(0, 0, 0, 0);
                if (Staged) {
                    if (inside) x = load_four(staged + b * columns + staged_at(column, columns));
                } else if (inside) {
                    x = load_four(vectors.input + size_t(b) * columns + column);
                }
                if (Normed && !Staged) {
                    squares[b] += x.x * x.x + x.y * x.y + x.z * x.z + x.w * x.w;
                    x.x *= gain.x, x.y *= gain.y, x.z *= gain.z, x.w *= gain.w;
                }
#pragma unroll
                for (int r = 0; r < Rows; r++) {
                    float4 w = Packed::quad(words[r], q);
                    sums[r][b] = fmaf(w.x, x.x, sums[r][b]);
                    sums[r][b] = fmaf(w.y, x.y, sums[r][b]);
                    sums[r][b] = fmaf(w.z, x.z, sums[r][b]);
                    sums[r][b] = fmaf(w.w, x.w, sums[r][b]);
                }
            }
        }
    }

    // Asks for Unroll chunks of this warp's part of a row group. WHOLE: all of them are there, so that nothing is
    // compared and all loads, those of the vectors too, can go ahead of the sums.
    template <bool WHOLE>
    __device__ void load_chunks(uint4 words[Unroll][Rows], const Matrix<Element> &matrix, uint32_t group,
                                uint32_t first, uint32_t lane, uint32_t packs) {
#pragma unroll
        for (int r = 0; r < Rows; r++) {
            size_t row = row_at(group, r, matrix.out);
            const uint4 *packed = matrix.weights + row * packs + lane;
#pragma unroll
            for (int u = 0; u < Unroll; u++) {
                uint32_t chunk = first + u * Split;
                words[u][r] = make_uint4(0, 0, 0, 0);
                if (WHOLE || chunk * WARP + lane < packs) words[u][r] = load_stream(packed + chunk * WARP);
            }
        }
    }

    template <bool WHOLE>
    __device__ void add_chunks(const uint4 words[Unroll][Rows], const Vectors<Element> &vectors, uint32_t first,
                               uint32_t lane, uint32_t columns, uint32_t packs) {
        uint32_t chunks = (packs + WARP - 1) / WARP;
#pragma unroll
        for (int u = 0; u < Unroll; u++) {
            uint32_t chunk = first + u * Split;
            if (WHOLE || chunk < chunks) add_chunk<WHOLE>(words[u], vectors, chunk, lane, columns);
        }
    }

    // This warp's part of a row group; past the last group nothing, but its threads still begin with the others.
    __device__ void accumulate(const Matrix<Element> &matrix, const Vectors<Element> &vectors, uint32_t group,
                               uint32_t groups, uint32_t part, uint32_t lane) {
        uint32_t packs = group < groups ? matrix.columns / (QUADS * 4) : 0;
        uint32_t whole = packs / WARP, first = part;
        do {
            bool here = first * WARP < packs, all = first + (Unroll - 1) * Split < whole;
            uint4 words[Unroll][Rows];
            if (all) load_chunks<true>(words, matrix, group, first, lane, packs);
            else if (here) load_chunks<false>(words, matrix, group, first, lane, packs);
            // The first time round, where all threads of the block are: a barrier is in it.
            if (!begun) begin(vectors, matrix.columns);
            begun = true;
            if (all) add_chunks<true>(words, vectors, first, lane, matrix.columns, packs);
            else if (here) add_chunks<false>(words, vectors, first, lane, matrix.columns, packs);
            first += Split * Unroll;
        } while (first * WARP < packs);
    }

    // Sums over the lanes, and over the warps that share the rows. Only warps with part 0 hold them afterwards.
    __device__ void reduce(uint32_t warp, uint32_t lane) {
#pragma unroll
        for (int b = 0; b < Batch; b++) {
            if (Normed && !Staged) squares[b] = warp_sum(squares[b]);
#pragma unroll
            for (int r = 0; r < Rows; r++) sums[r][b] = warp_sum(sums[r][b]);
        }
        if (Split == 1) return;
        __shared__ float of_warps[Warps][Rows + 1][Batch];
        if (lane == 0) {
            for (int b = 0; b < Batch; b++) {
                of_warps[warp][Rows][b] = squares[b];
                for (int r = 0; r < Rows; r++) of_warps[warp][r][b] = sums[r][b];
            }
        }
        __syncthreads();
        if (warp % Split == 0) {
#pragma unroll
            for (int other = 1; other < Split; other++) {
#pragma unroll
                for (int b = 0; b < Batch; b++) {
                    if (!Staged) squares[b] += of_warps[warp + other][Rows][b];
#pragma unroll
                    for (int r = 0; r < Rows; r++) sums[r][b] += of_warps[warp + other][r][b];
                }
            }
        }
        __syncthreads();
    }

    // Lane `held * Batch + b` stores one result.
    __device__ void store(const Matrix<Element> &matrix, const Vectors<Element> &vectors, float *output,
                          uint32_t group, uint32_t lane) {
        float value = 0, gate = 0;
        uint32_t held = lane / Batch, b = lane % Batch;
#pragma unroll
        for (int i = 0; i < Batch; i++) {
            float norm = Normed ? rsqrtf(squares[i] / float(matrix.columns) + vectors.epsilon) : 1.0f;
#pragma unroll
            for (int r = 0; r < HELD; r++) {
                if (lane != uint32_t(r * Batch + i)) continue;
                value = sums[Result == SWIGLU ? HELD + r : r][i] * norm;
                gate = sums[r][i] * norm;
            }
        }
        uint32_t width = Result == SWIGLU ? matrix.out / 2 : matrix.out;
        uint32_t row = group * HELD + held;
        if (lane >= uint32_t(HELD * Batch) || row >= width) return;
        if (Result == SWIGLU) value *= gate / (1.0f + __expf(-gate));
        if (matrix.bias != nullptr) value += to_float(matrix.bias[row]);
        float *place = output + size_t(b) * width + row;
        *place = Result == ADD ? *place + value : value;
    }

    __device__ void run(const Matrix<Element> &matrix, const Vectors<Element> &vectors, float *output) {
        uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
        uint32_t width = Result == SWIGLU ? matrix.out / 2 : matrix.out;
        uint32_t groups = (width + HELD - 1) / HELD;
        next_may_start();
        for (uint32_t first = blockIdx.x * GROUPS; first < groups; first += gridDim.x * GROUPS) {
            uint32_t group = first + warp / Split;
            clear();
            accumulate(matrix, vectors, group, groups, warp % Split, lane);
            reduce(warp, lane);
            if (group < groups && warp % Split == 0) store(matrix, vectors, output, group, lane);
        }
    }
};
