// The online step of the masked scheme (crates/lora/src/masked.rs): quantise, mask, multiply, unmask, scale, B.
//
// One process, two launches for one input of one layer, any number of rows of any adapters, recorded in a CUDA graph:
// `masked_products` (one block for 8 rows of A and one vector; it quantises and masks the vector itself, since that is
// cheaper than a launch) and `add_outputs`. Counters are in device memory: `masked_products` reads them, `add_outputs`
// moves them on. Two processes: `mask_vectors` | `answer_vectors` | `unmask_products`, then `add_outputs`.
//
// Floor of one vector: A is rows x columns x 2 bytes and B outputs x rank x 4 bytes, from L2 once they fit (q, k, v of
// Qwen2.5-1.5B at rank 32: 295 KB + 262 KB), 3 multiply-adds for each entry of A (442 thousand), ChaCha20 of
// columns + rows words for each block of 8 rows. Each is below a microsecond; two launches in a graph are the floor,
// and with programmatic launch the masks are made while the kernel ahead still runs.
//
// compile with: INPUT=float OUTPUT=float
// compile with: INPUT=bf16 OUTPUT=bf16
#include "stream.cuh"
#include "int_matrix.cuh"
#include "mask.cuh"
#include "quantise.cuh"

#ifndef INPUT
#define INPUT float
#endif
#ifndef OUTPUT
#define OUTPUT float
#endif

constexpr uint32_t THREADS = 256;
constexpr uint32_t ROWS_AT_ONCE = THREADS / WARP;
constexpr uint32_t LISTENERS = THREADS - WARP;  // the threads that make masks
static_assert(TILE_COLUMNS == LISTENERS * 8, "one chunk of columns for each thread but those of warp 0");

// A table of 64-bit words says what an adapter is at this input; online.py writes it.
constexpr uint32_t INPUT_WORDS = 32;
enum InputWord { MATRIX, ROWS, COLUMNS, STRIDE, BITS, NORM_LIMIT, TOKENS, POOL, PARTS };
constexpr uint32_t PART_WORDS = 6, PARTS_MAX = 3;
static_assert(PARTS + PARTS_MAX * PART_WORDS <= INPUT_WORDS, "a line holds its parts");
enum PartWord { PART_KIND, PART_FIRST, PART_ROWS, PART_FACTOR, PART_SCALE, PART_WIDTH };
enum PartKind { NO_PART, FACTOR_PART, SCALE_PART };

// A pool: the next counter, then slots that hold the batches that are ready.
constexpr uint32_t POOL_HEAD = 4, SLOT_WORDS = 12;
enum PoolWord { NEXT, SLOTS };
enum SlotWord { BATCH_AND_ONE, PREPARED, MASK_KEY, SHARE_KEY = 6 };

static_assert(THREADS == QUANTISE_LANES && ROWS_AT_ONCE == 8, "the order of the sum of squares");

// What a block learns of its vector, in shared memory; a value of each warp.
struct VectorScan {
    double scale, square[ROWS_AT_ONCE], error[ROWS_AT_ONCE];
    uint64_t norm[ROWS_AT_ONCE];
    float greatest[ROWS_AT_ONCE];
    uint32_t status;
};

// Each warp's sum of squares and greatest magnitude; finish_scan puts them together after a barrier.
template <class Element>
__device__ inline void begin_scan(VectorScan &scan, const Element *x, uint32_t columns) {
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    double square = lane_sum(x, columns);
    float greatest = warp_greatest(x, columns, threadIdx.x, THREADS);
    if (lane == 0) scan.square[warp] = square, scan.greatest[warp] = greatest;
}

// The whole block, after begin_scan: the vector's status; its scale is in `scan`.
template <class Element>
__device__ inline uint32_t finish_scan(VectorScan &scan, const Element *x, uint32_t columns, uint64_t norm_limit) {
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    __syncthreads();
    if (threadIdx.x == 0) {
        float greatest = 0.0f;
        for (uint32_t i = 0; i < ROWS_AT_ONCE; i++) greatest = max(greatest, scan.greatest[i]);
        scan.status = 0;
        scan.square[0] = tree_of_warps(scan.square);
        scan.scale = vector_scale(scan.square[0], greatest, columns, norm_limit, &scan.status);
    }
    __syncthreads();
    double scale = scan.scale, factor = 1.0 / scale, error = 0.0;
    uint64_t norm = 0;
    for (uint32_t i = threadIdx.x; i < columns && scan.status == 0; i += THREADS) {
        float value = to_float(x[i]);
        int32_t rounded = quantise(value, factor);
        double left = double(value) - scale * double(rounded);
        norm += uint64_t(int64_t(rounded) * rounded);
        error += left * left;
    }
    norm = warp_sum(norm);
    for (int lanes = 16; lanes > 0; lanes >>= 1) error += __shfl_xor_sync(ALL_LANES, error, lanes);
    if (lane == 0) scan.norm[warp] = norm, scan.error[warp] = error;
    __syncthreads();
    if (threadIdx.x == 0 && scan.status == 0) {
        for (uint32_t i = 1; i < ROWS_AT_ONCE; i++) scan.norm[0] += scan.norm[i], scan.error[0] += scan.error[i];
        scan.status = rounded_status(scan.norm[0], scan.error[0], scan.square[0], columns, norm_limit);
    }
    __syncthreads();
    return scan.status;
}

// The 8 words of a chunk: x − r mod 2^bits; beyond the columns zero.
template <class Element>
__device__ inline void masked_chunk(uint64_t *words, const Element *x, uint32_t columns, uint32_t chunk, double factor,
                                    const uint64_t *masks, uint32_t bits) {
#pragma unroll
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t column = chunk * 8 + i;
        uint64_t value = column < columns ? uint64_t(int64_t(quantise(to_float(x[column]), factor))) : 0;
        words[i] = column < columns ? (value - masks[i]) & low_mask(bits) : 0;
    }
}

// A counter's place, or null if its batch is not there: then nothing may be masked.
__device__ inline uint64_t *slot_of(uint64_t *pool, uint64_t counter, uint32_t tokens) {
    uint64_t batch = counter / tokens;
    uint64_t *slot = pool + POOL_HEAD + batch % pool[SLOTS] * SLOT_WORDS;
    return slot[BATCH_AND_ONE] == batch + 1 ? slot : nullptr;
}

// One thread of the grid writes a vector's word; a later refusal takes the place of an earlier one.
__device__ inline void refuse(uint64_t status, uint32_t vector, uint32_t reason) {
    reinterpret_cast<volatile uint32_t *>(status)[vector] = reason;
}

// What the host answers, A·y + s, and what the key holder adds, A·r − s, which is used once and then wiped.
__device__ inline uint64_t unmasked_product(uint64_t answer, uint64_t *prepared, uint32_t bits) {
    uint64_t product = (answer + *prepared) & low_mask(bits);
    *prepared = 0;
    return product;
}

// x: the address of INPUT [vectors, x_stride], a part of a wider array or a whole one; inputs [adapters, INPUT_WORDS];
// adapter_of and offset_of [vectors]: which adapter a vector meets, -1 for none, and how many of that adapter's vectors
// stand before it. real [vectors, real_stride] float32 and used [vectors] are what add_outputs takes. status: the
// address of a word for each vector, in the host's pinned memory, so that only a refusal is ever written there.
// grid (rows of the tallest adapter / 8, vectors), block 256.
extern "C" __global__ void __launch_bounds__(THREADS)
    masked_products(const uint64_t *inputs, const int32_t *adapter_of, const uint32_t *offset_of, uint64_t x,
                    uint32_t x_stride, float *real, uint32_t real_stride, uint32_t *used, uint64_t status) {
    __shared__ VectorScan scan;
    __shared__ Digits digits;
    __shared__ uint64_t shares[MASK_WORDS];
    uint32_t vector = blockIdx.y, warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    next_may_start();
    // Until `previous_done` only what no kernel of the same step writes is read, and nothing is written: the adapter's
    // line, the counter, its keys. So the masks are made while the kernel that makes x still runs.
    int32_t adapter = adapter_of[vector];
    const uint64_t *input = inputs + size_t(adapter < 0 ? 0 : adapter) * INPUT_WORDS;
    uint32_t rows = adapter < 0 ? 0 : uint32_t(input[ROWS]), columns = uint32_t(input[COLUMNS]);
    uint32_t bits = uint32_t(input[BITS]), tokens = uint32_t(input[TOKENS]), chunks = (columns + 7) / 8;
    uint64_t *pool = reinterpret_cast<uint64_t *>(input[POOL]);
    uint64_t counter = rows == 0 ? 0 : pool[NEXT] + offset_of[vector];
    uint32_t token = rows == 0 ? 0 : uint32_t(counter % tokens);
    const uint64_t *slot = rows == 0 ? nullptr : slot_of(pool, counter, tokens);
    const uint32_t *mask_key = nullptr;
    uint32_t listener = threadIdx.x - WARP;
    // The masks of the first tile, in registers, and the host's shares of these 8 rows.
    uint64_t masks[MASK_WORDS], words[MASK_WORDS];
    if (slot != nullptr && blockIdx.x * ROWS_AT_ONCE < rows) {
        mask_key = reinterpret_cast<const uint32_t *>(slot + MASK_KEY);
        if (warp > 0 && listener < chunks) mask_chunk(mask_key, token, listener, bits, masks);
        const uint32_t *share_key = reinterpret_cast<const uint32_t *>(slot + SHARE_KEY);
        if (threadIdx.x == THREADS - WARP) mask_chunk(share_key, token, blockIdx.x, bits, shares);
    }
    // No block ends without this: a later kernel that waits for this one has waited for those before it.
    previous_done();
    if (slot == nullptr) {
        if (blockIdx.x == 0 && threadIdx.x == 0) {
            used[vector] = 0;
            if (rows != 0) refuse(status, vector, NO_MASK);
        }
        return;
    }
    if (blockIdx.x * ROWS_AT_ONCE >= rows) return;
    const INPUT *row_of_x = reinterpret_cast<const INPUT *>(x) + size_t(vector) * x_stride;
    begin_scan(scan, row_of_x, columns);
    uint32_t refused = finish_scan(scan, row_of_x, columns, input[NORM_LIMIT]);
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        // A counter is spent even where its vector is refused.
        used[vector] = refused ? 2 : 1;
        if (refused) refuse(status, vector, refused);
    }
    if (refused) return;
    double factor = 1.0 / scan.scale;
    uint32_t row = blockIdx.x * ROWS_AT_ONCE + warp;
    const int16_t *entries = reinterpret_cast<const int16_t *>(input[MATRIX]) + size_t(row) * input[STRIDE];
    uint64_t sum = 0;
    for (uint32_t first = 0; first < chunks; first += LISTENERS) {
        uint32_t chunk = first + listener, here = min(LISTENERS, chunks - first);
        if (warp > 0 && chunk < chunks) {
            if (first > 0) mask_chunk(mask_key, token, chunk, bits, masks);
            masked_chunk(words, row_of_x, columns, chunk, factor, masks, bits);
            store_digits(digits, listener, words);
        }
        __syncthreads();
        if (row < rows) add_product(sum, entries + size_t(first) * 8, digits, here, lane);
        __syncthreads();
    }
    sum = warp_sum(sum);
    if (lane != 0 || row >= rows) return;
    uint64_t *prepared = reinterpret_cast<uint64_t *>(slot[PREPARED]) + size_t(token) * rows + row;
    uint64_t product = unmasked_product(sum + shares[warp], prepared, bits);
    real[size_t(vector) * real_stride + row] = float(double(centre(product, bits)) * scan.scale);
}

// The value that an adapter's part adds to output `column`; `real` are the products of the part's rows.
__device__ inline float output_delta(const uint64_t *part, const float *real, uint32_t column) {
    if (part[PART_KIND] == SCALE_PART) {
        return float(double(real[column]) * __longlong_as_double(int64_t(part[PART_SCALE])));
    }
    // [rows, width]: neighbours read neighbours.
    const float *factor = reinterpret_cast<const float *>(part[PART_FACTOR]) + column;
    uint32_t rows = uint32_t(part[PART_ROWS]);
    size_t width = part[PART_WIDTH];
    float sum = 0.0f;
#pragma unroll 8
    for (uint32_t row = 0; row < rows; row++) sum += factor[row * width] * real[row];
    return sum;
}

// Adds to column `column` of output `place`, if it has one; whether it has.
__device__ inline bool add_to(uint64_t output, uint32_t width, uint32_t stride, const uint64_t *input, uint32_t place,
                              uint32_t vector, const float *products, uint32_t column) {
    if (column >= width) return false;
    const uint64_t *part = input + PARTS + place * PART_WORDS;
    if (part[PART_KIND] == NO_PART || column >= part[PART_WIDTH]) return true;
    OUTPUT *target = reinterpret_cast<OUTPUT *>(output) + size_t(vector) * stride + column;
    *target = from_float<OUTPUT>(to_float(*target) + output_delta(part, products + part[PART_FIRST], column));
    return true;
}

// outputs: the addresses of OUTPUT [vectors, stride] of which the first width columns are an output, 0 if there is
// none. Adds onto them and moves the counters on. grid (columns of all outputs / 256, vectors), block 256.
extern "C" __global__ void __launch_bounds__(THREADS)
    add_outputs(const uint64_t *inputs, const int32_t *adapter_of, const float *real, uint32_t real_stride,
                const uint32_t *used, uint64_t first, uint32_t first_width, uint32_t first_stride, uint64_t second,
                uint32_t second_width, uint32_t second_stride, uint64_t third, uint32_t third_width,
                uint32_t third_stride, uint32_t advance) {
    uint32_t vector = blockIdx.y;
    next_may_start();
    int32_t adapter = adapter_of[vector];
    previous_done();
    if (adapter < 0 || used[vector] == 0) return;
    const uint64_t *input = inputs + size_t(adapter) * INPUT_WORDS;
    if (advance && blockIdx.x == 0 && threadIdx.x == 0) {
        atomicAdd(reinterpret_cast<unsigned long long *>(input[POOL]) + NEXT, 1ull);
    }
    if (used[vector] != 1) return;
    const float *products = real + size_t(vector) * real_stride;
    uint32_t column = blockIdx.x * THREADS + threadIdx.x;
    if (add_to(first, first_width, first_stride, input, 0, vector, products, column)) return;
    column -= first_width;
    if (add_to(second, second_width, second_stride, input, 1, vector, products, column)) return;
    column -= second_width;
    add_to(third, third_width, third_stride, input, 2, vector, products, column);
}

__device__ inline uint64_t unpack_word(const uint8_t *packed, uint32_t index, uint32_t bits) {
    uint64_t at = uint64_t(index) * bits, word = 0;
    uint32_t shift = uint32_t(at & 7), bytes = (shift + bits + 7) / 8;
    for (uint32_t i = 0; i < bytes && i < 8; i++) word |= uint64_t(packed[(at >> 3) + i]) << (8 * i);
    word >>= shift;
    if (bytes > 8) word |= uint64_t(packed[(at >> 3) + 8]) << (64 - shift);
    return word & low_mask(bits);
}

// The byte `index` of words of `bits` bits, at least 8, least significant bit first.
__device__ inline uint8_t packed_byte(const uint64_t *words, uint32_t count, uint32_t index, uint32_t bits) {
    uint64_t at = uint64_t(index) * 8;
    uint32_t word = uint32_t(at / bits), shift = uint32_t(at % bits);
    uint64_t value = words[word] >> shift;
    if (shift + 8 > bits && word + 1 < count) value |= words[word + 1] << (bits - shift);
    return uint8_t(value);
}

// The key holder's half: x, the address of INPUT [vectors, x_stride] -> masked words [vectors, columns] and scales
// [vectors] on the device; the same words packed, [vectors, packed_stride] bytes, and status [vectors] at addresses
// that may be the host's pinned memory: what is sent needs no copy. No packed bytes where `packed` is 0.
// tokens [vectors, 5]: a mask key (4 words) and the token in its batch. grid (vectors), block 256.
extern "C" __global__ void __launch_bounds__(THREADS)
    mask_vectors(const uint64_t *tokens, uint64_t x, uint32_t x_stride, uint32_t columns, uint32_t bits,
                 uint64_t norm_limit, uint64_t *masked, uint64_t packed, uint32_t packed_stride, double *scales,
                 uint64_t status) {
    __shared__ VectorScan scan;
    uint32_t vector = blockIdx.x, chunks = (columns + 7) / 8;
    const uint32_t *key = reinterpret_cast<const uint32_t *>(tokens + size_t(vector) * 5);
    uint32_t token = uint32_t(tokens[size_t(vector) * 5 + 4]);
    const INPUT *row = reinterpret_cast<const INPUT *>(x) + size_t(vector) * x_stride;
    uint64_t *words = masked + size_t(vector) * columns;
    begin_scan(scan, row, columns);
    uint32_t refused = finish_scan(scan, row, columns, norm_limit);
    if (threadIdx.x == 0) refuse(status, vector, refused), scales[vector] = scan.scale;
    double factor = 1.0 / scan.scale;
    for (uint32_t chunk = threadIdx.x; chunk < chunks; chunk += THREADS) {
        uint64_t masks[MASK_WORDS], out[MASK_WORDS];
        mask_chunk(key, token, chunk, bits, masks);
        masked_chunk(out, row, columns, chunk, factor, masks, bits);
        // A refused vector leaves this block as zeroes: neither it nor its mask is shown.
        for (uint32_t i = 0; i < 8 && chunk * 8 + i < columns; i++) words[chunk * 8 + i] = refused ? 0 : out[i];
    }
    if (packed == 0) return;
    __syncthreads();
    uint8_t *bytes = reinterpret_cast<uint8_t *>(packed) + size_t(vector) * packed_stride;
    uint32_t count = uint32_t((uint64_t(columns) * bits + 7) / 8);
    for (uint32_t i = threadIdx.x; i < count; i += THREADS) bytes[i] = packed_byte(words, columns, i, bits);
}

// The host's half, for all who wait: answers [vectors, answer_stride] = A·y + s mod 2^k. y are words [vectors,
// y_stride] or, where `words` is null, packed bytes [vectors, y_stride]. jobs [vectors, 6]: adapter, share key
// (4 words), token. grid (rows of the tallest adapter / 8, vectors), block 256.
extern "C" __global__ void __launch_bounds__(THREADS)
    answer_vectors(const uint64_t *inputs, const uint64_t *jobs, const uint64_t *words, const uint8_t *packed,
                   uint32_t y_stride, uint64_t *answers, uint32_t answer_stride) {
    __shared__ Digits digits;
    __shared__ uint64_t shares[MASK_WORDS];
    uint32_t vector = blockIdx.y, warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const uint64_t *job = jobs + size_t(vector) * 6;
    const uint64_t *input = inputs + job[0] * INPUT_WORDS;
    uint32_t rows = uint32_t(input[ROWS]), columns = uint32_t(input[COLUMNS]), bits = uint32_t(input[BITS]);
    if (blockIdx.x * ROWS_AT_ONCE >= rows) return;
    uint32_t chunks = (columns + 7) / 8, row = blockIdx.x * ROWS_AT_ONCE + warp, listener = threadIdx.x - WARP;
    const int16_t *entries = reinterpret_cast<const int16_t *>(input[MATRIX]) + size_t(row) * input[STRIDE];
    if (threadIdx.x == 0) {
        mask_chunk(reinterpret_cast<const uint32_t *>(job + 1), uint32_t(job[5]), blockIdx.x, bits, shares);
    }
    uint64_t sum = 0;
    for (uint32_t first = 0; first < chunks; first += LISTENERS) {
        uint32_t chunk = first + listener, here = min(LISTENERS, chunks - first);
        if (warp > 0 && chunk < chunks) {
            uint64_t out[8];
            for (uint32_t i = 0; i < 8; i++) {
                uint32_t column = chunk * 8 + i;
                if (column >= columns) out[i] = 0;
                else if (words != nullptr) out[i] = words[size_t(vector) * y_stride + column] & low_mask(bits);
                else out[i] = unpack_word(packed + size_t(vector) * y_stride, column, bits);
            }
            store_digits(digits, listener, out);
        }
        __syncthreads();
        if (row < rows) add_product(sum, entries + size_t(first) * 8, digits, here, lane);
        __syncthreads();
    }
    sum = warp_sum(sum);
    if (lane == 0 && row < rows) {
        answers[size_t(vector) * answer_stride + row] = (sum + shares[warp]) & low_mask(bits);
    }
}

// The key holder again: answers are words [vectors, answer_stride] or, where `words` is null, bytes [vectors,
// answer_stride] at the address `packed`, which may be the host's pinned memory. prepared [vectors]: addresses of
// `rows` words each, which are wiped. real and used as in masked_products. grid (vectors), any block.
extern "C" __global__ void unmask_products(const uint64_t *prepared, const uint64_t *words, uint64_t packed,
                                           uint32_t answer_stride, uint32_t rows, uint32_t bits, const double *scales,
                                           float *real, uint32_t real_stride, uint32_t *used) {
    uint32_t vector = blockIdx.x;
    uint64_t *own = reinterpret_cast<uint64_t *>(prepared[vector]);
    for (uint32_t row = threadIdx.x; row < rows; row += blockDim.x) {
        const uint8_t *bytes = reinterpret_cast<const uint8_t *>(packed) + size_t(vector) * answer_stride;
        uint64_t answer = words != nullptr ? words[size_t(vector) * answer_stride + row] & low_mask(bits)
                                           : unpack_word(bytes, row, bits);
        uint64_t product = (answer + own[row]) & low_mask(bits);
        own[row] = 0;
        real[size_t(vector) * real_stride + row] = float(double(centre(product, bits)) * scales[vector]);
    }
    if (threadIdx.x == 0) used[vector] = 1;
}
