// One step of report 003's layout under CKKS (crates/report-003/src/ckks_slots.rs): a vector several times in one
// ciphertext, as many rows of A in a factor, terms summed after decryption. Everything in one process: it protects
// nobody.
//
// A transform of n = 16384 by one block would take one SM 3.2 M instructions; here three stages run in registers over
// the whole device (`…_head`) and the other eleven in eight parts, a block each (`…_tail`). So do the embeddings.
// Floor of a step at 3 limbs, 1536 -> 32 (7 factors): 24 transforms, 2.8 M butterflies of 28 instructions; 16 M
// instructions of keystream; 2.8 MB of factors read, 5.5 MB of products and 2.8 MB of phases written and read.
//
// Randomness comes from a place in device memory that the last kernel of a step moves on, so that a step can be
// replayed as a CUDA graph and never draws the same words twice.
#include "embedding.cuh"
#include "ntt.cuh"
#include "sampler.cuh"

constexpr uint32_t HEAD_LOG = 3, HEAD = 1u << HEAD_LOG;

__device__ inline Folded folded_view(double *shared, uint32_t n) { return Folded{shared, shared + padded_double(n)}; }

// To an integer, halves away from zero. A value that is not below 2^62 sets the status; one that is not finite too, as
// it makes the comparison false.
__device__ inline int64_t round_checked(double value, uint32_t *status) {
    if (!(fabs(value) < 4611686018427387904.0)) {
        atomicOr(status, 1u);
        value = 0.0;
    }
    return int64_t(__dadd_rn(value, copysign(0.5, value)));
}

// Weights, before any step: slots [messages, given], the rest of the n/2 slots zero; coefficients [messages, n] = the
// embedding times factor, rounded; status [messages]. grid (messages), block 512, shared 2 * padded_double(n/2)
// doubles.
extern "C" __global__ void __launch_bounds__(512, 1)
    ckks_encode(const double *slots, uint32_t given, const uint32_t *slot_of_leaf, const Complex *roots, double factor,
                int64_t *coefficients, uint32_t *status, uint32_t log_n) {
    extern __shared__ double shared_doubles[];
    uint32_t n = 1u << log_n, half = n / 2;
    Folded x = folded_view(shared_doubles, half);
    for (uint32_t i = threadIdx.x; i < half; i += blockDim.x) {
        uint32_t slot = slot_of_leaf[i];
        x.set(i, {slot < given ? __dmul_rn(slots[size_t(blockIdx.x) * given + slot], factor) : 0.0, 0.0});
    }
    embed_inverse(x, log_n - 1, Turns{roots, roots + half});
    int64_t *own = coefficients + size_t(blockIdx.x) * n;
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) {
        own[i] = round_checked(i < half ? x.re[padded_double(i)] : x.im[padded_double(i - half)], &status[blockIdx.x]);
    }
}

// A step begins: the vector [width] `copies` times in the slots, times factor, through the embedding's stages of each
// part; waves [2, n/2], real and imaginary. The step's public seed [8] is drawn too: words place + n to + 4 of the
// generator. n = 4 * 4^k. grid (8), shared 2 * padded_double(n/16) doubles.
extern "C" __global__ void __launch_bounds__(256)
    ckks_encode_tail(const double *vector, uint32_t width, uint32_t copies, const uint32_t *slot_of_leaf,
                     const Complex *roots, double factor, double *waves, const uint32_t *key, const uint64_t *place,
                     uint32_t *seed, uint32_t log_n) {
    extern __shared__ double shared_doubles[];
    uint32_t n = 1u << log_n, half = n / 2, part = half / HEAD, start = blockIdx.x * part;
    Folded x = folded_view(shared_doubles, part);
    for (uint32_t i = threadIdx.x; i < part; i += blockDim.x) {
        uint32_t slot = slot_of_leaf[start + i];
        x.set(i, {slot < width * copies ? __dmul_rn(vector[slot % width], factor) : 0.0, 0.0});
    }
    embed_part_inverse(x, log_n - 1 - HEAD_LOG, HEAD + blockIdx.x, Turns{roots, roots + half});
    for (uint32_t i = threadIdx.x; i < part; i += blockDim.x) {
        waves[start + i] = x.re[padded_double(i)];
        waves[half + start + i] = x.im[padded_double(i)];
    }
    if (blockIdx.x == 0) {
        each_word(stream_of(key), *place + n, 4, [&](uint32_t i, uint64_t word) {
            seed[2 * i] = uint32_t(word);
            seed[2 * i + 1] = uint32_t(word >> 32);
        });
    }
}

// Signed coefficients [count, n] to residues [count, limbs, n]. grid (n / block, limbs, count).
extern "C" __global__ void ckks_residues(const int64_t *coefficients, uint64_t *residues, const Limb *limbs,
                                         uint32_t n) {
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int64_t value = coefficients[size_t(blockIdx.z) * n + i];
    residues[(size_t(blockIdx.z) * gridDim.y + blockIdx.y) * n + i] = reduce_signed(value, limbs[blockIdx.y]);
}

// c1 [limbs, n] from a seed as if no word of its one stream were skipped; rejected [1] counts those that are.
// grid (limbs * n / 8 / block).
extern "C" __global__ void ckks_public(const uint32_t *seed, const Limb *limbs, uint64_t *c1, uint32_t *rejected,
                                       uint32_t limb_count, uint32_t log_n) {
    uint32_t number = blockIdx.x * blockDim.x + threadIdx.x, of_limb = number >> (log_n - 3);
    if (of_limb >= limb_count) return;
    uint64_t mask = ~uint64_t(0) >> (64 - limbs[of_limb].bits), words[8];
    keystream_block(stream_of(seed), number, words);
    bool skipped = false;
    for (uint32_t k = 0; k < 8; k++) {
        c1[size_t(number) * 8 + k] = words[k] & mask;
        skipped |= (words[k] & mask) >= limbs[of_limb].q;
    }
    if (skipped) atomicAdd(rejected, 1u);
}

// c1 again, word after word, where one was skipped: one step in ten at n = 16384. grid (1).
extern "C" __global__ void __launch_bounds__(512, 1)
    ckks_public_exact(const uint32_t *seed, const Limb *limbs, uint64_t *c1, uint32_t *rejected, uint32_t limb_count,
                      uint32_t log_n) {
    __shared__ Scan scan;
    uint32_t n = 1u << log_n, found = *rejected;
    __syncthreads();
    if (threadIdx.x == 0) *rejected = 0;
    if (found == 0) return;
    uint64_t next = 0;
    for (uint32_t of_limb = 0; of_limb < limb_count; of_limb++) {
        uint64_t *own = c1 + size_t(of_limb) * n;
        auto emit = [&](uint32_t i, uint64_t value) { own[i] = value; };
        next = fill_uniform(stream_of(seed), next, limbs[of_limb], n, scan, emit);
    }
}

// Coefficients that a block of a head has: 64 neighbours at 16 places, n/16 apart.
constexpr uint32_t SIDE = 64, PLACES = 2 * HEAD, ENCRYPT_THREADS = 160;

// The embedding's last levels, rounded, plus errors (words place to + n of the generator), through the first three
// stages of the transform; c0 [limbs, n] below 4q. The 9 keystream blocks of each of the 16 runs are made at once.
// grid (n / 1024, limbs), block ENCRYPT_THREADS.
extern "C" __global__ void __launch_bounds__(ENCRYPT_THREADS)
    ckks_encrypt_head(const double *waves, const Complex *turns, const uint32_t *key, const uint64_t *place,
                      const Limb *limbs, const Shoup *roots, uint64_t *c0, uint32_t *status, uint32_t log_n) {
    __shared__ int8_t errors[PLACES][SIDE];
    uint32_t n = 1u << log_n, half = n / 2, apart = n / PLACES, of_limb = blockIdx.y, first = blockIdx.x * SIDE;
    Stream stream = stream_of(key);
    for (uint32_t task = threadIdx.x; task < PLACES * (SIDE / 8 + 1); task += blockDim.x) {
        uint32_t run = task % PLACES;
        uint64_t start = *place + run * apart + first, number = start / 8 + task / PLACES, words[8];
        keystream_block(stream, number, words);
#pragma unroll
        for (uint32_t k = 0; k < 8; k++) {
            uint64_t i = number * 8 + k - start;
            if (i < SIDE) errors[run][i] = int8_t(binomial(words[k]));
        }
    }
    __syncthreads();
    if (threadIdx.x >= SIDE) return;
    const Limb &limb = limbs[of_limb];
    uint32_t i = first + threadIdx.x;
    Complex wave[HEAD];
#pragma unroll
    for (uint32_t k = 0; k < HEAD; k++) wave[k] = {waves[k * apart + i], waves[half + k * apart + i]};
    embed_head_inverse(wave, Turns{turns, turns + half});
    // Even and odd places are an eighth of n apart each: two groups of the transform's first stages.
    for (uint32_t odd = 0; odd < 2; odd++) {
        uint64_t x[HEAD];
#pragma unroll
        for (uint32_t k = 0; k < HEAD; k++) {
            const Complex &of = wave[(2 * k) % HEAD + odd];
            int64_t message = round_checked(k < HEAD / 2 ? of.re : of.im, status);
            x[k] = reduce_signed(message + errors[2 * k + odd][threadIdx.x], limb);
        }
        forward_butterflies<HEAD_LOG>(x, roots_of(roots, of_limb, n, false), 1, limb.q);
        uint64_t *own = c0 + size_t(of_limb) * n + odd * apart + i;
#pragma unroll
        for (uint32_t k = 0; k < HEAD; k++) own[size_t(2 * k) * apart] = x[k];
    }
}

// The other stages of each part, then c0 - c1*s. grid (8, limbs), shared padded_index(n/8) words.
extern "C" __global__ void __launch_bounds__(256)
    ckks_encrypt_tail(uint64_t *c0, const uint64_t *c1, const uint64_t *secret, const Limb *limbs, const Shoup *roots,
                      uint32_t log_n) {
    extern __shared__ Word shared[];
    uint32_t n = 1u << log_n, part = n / HEAD, of_limb = blockIdx.y;
    const Limb limb = limbs[of_limb];
    size_t start = size_t(of_limb) * n + blockIdx.x * part;
    for (uint32_t i = threadIdx.x; i < part; i += blockDim.x) shared[padded_index(i)] = c0[start + i];
    forward(shared, log_n - HEAD_LOG, roots_of(roots, of_limb, n, false), limb, HEAD + blockIdx.x);
    for (uint32_t i = threadIdx.x; i < part; i += blockDim.x) {
        uint64_t product = mul_mod(c1[start + i], secret[start + i], limb);
        c0[start + i] = sub_mod(shared[padded_index(i)], product, limb.q);
    }
}

// products [packs, 2, limbs, n] = (c0, c1) [limbs, n] times factors [packs, limbs, n], NTT form.
// grid (n / block, limbs, packs).
extern "C" __global__ void ckks_products(const uint64_t *c0, const uint64_t *c1, const uint64_t *factors,
                                         uint64_t *products, const Limb *limbs, uint32_t n) {
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const Limb limb = limbs[blockIdx.y];
    size_t place = size_t(blockIdx.y) * n + i, whole = size_t(gridDim.y) * n;
    uint64_t factor = factors[blockIdx.z * whole + place];
    uint64_t *own = products + 2 * blockIdx.z * whole + place;
    own[0] = mul_mod(c0[place], factor, limb);
    own[whole] = mul_mod(c1[place], factor, limb);
}

// phases [packs, limbs, n] = products' c0 + c1*s through all but the last three stages of the inverse transform, below
// 2q. grid (8, limbs, packs), shared padded_index(n/8) words.
extern "C" __global__ void __launch_bounds__(256)
    ckks_decrypt_tail(const uint64_t *products, const uint64_t *secret, uint64_t *phases, const Limb *limbs,
                      const Shoup *roots, uint32_t log_n) {
    extern __shared__ Word shared[];
    uint32_t n = 1u << log_n, part = n / HEAD, of_limb = blockIdx.y;
    const Limb limb = limbs[of_limb];
    size_t whole = size_t(gridDim.y) * n, start = size_t(of_limb) * n + blockIdx.x * part;
    const uint64_t *own = products + 2 * blockIdx.z * whole + start;
    for (uint32_t i = threadIdx.x; i < part; i += blockDim.x) {
        shared[padded_index(i)] = add_mod(own[i], mul_mod(own[whole + i], secret[start + i], limb), limb.q);
    }
    inverse<false>(shared, log_n - HEAD_LOG, roots_of(roots, of_limb, n, true), limb, HEAD + blockIdx.x);
    uint64_t *phase = phases + blockIdx.z * whole + start;
    for (uint32_t i = threadIdx.x; i < part; i += blockDim.x) phase[i] = shared[padded_index(i)];
}

// The last three stages, in place, the residues' real numbers and the embedding's first levels: waves
// [packs, 2, n/2]. grid (n / 16 / block, packs).
extern "C" __global__ void __launch_bounds__(64)
    ckks_decrypt_head(uint64_t *phases, double *waves, const Complex *turns, const Limb *limbs, const Shoup *roots,
                      const GarnerStep *steps, uint32_t limb_count, uint32_t log_n) {
    uint32_t n = 1u << log_n, half = n / 2, apart = n / PLACES, i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= apart) return;
    uint64_t *own = phases + size_t(blockIdx.y) * limb_count * n + i;
#pragma unroll 1
    for (uint32_t group = 0; group < 2 * limb_count; group++) {
        uint32_t of_limb = group / 2;
        uint64_t *values = own + size_t(of_limb) * n + (group % 2) * apart, x[HEAD];
#pragma unroll
        for (uint32_t k = 0; k < HEAD; k++) x[k] = values[size_t(2 * k) * apart];
        inverse_butterflies<HEAD_LOG, true>(x, roots_of(roots, of_limb, n, true), 1, limbs[of_limb]);
#pragma unroll
        for (uint32_t k = 0; k < HEAD; k++) values[size_t(2 * k) * apart] = x[k];
    }
    const uint64_t p0 = limbs[0].q;
    auto number = [&](uint32_t k) {
        const uint64_t *residue = own + size_t(k) * apart;
        uint64_t y = limb_count > 1 ? residue[n] : 0, z = limb_count > 2 ? residue[2 * size_t(n)] : 0;
        return recombine(centre(residue[0], p0), y, z, double(p0), steps, limb_count);
    };
    Complex wave[HEAD];
#pragma unroll
    for (uint32_t k = 0; k < HEAD; k++) wave[k] = {number(k), number(k + HEAD)};
    embed_head_forward(wave, Turns{turns, turns + half});
    double *out = waves + size_t(blockIdx.y) * n + i;
#pragma unroll
    for (uint32_t k = 0; k < HEAD; k++) {
        out[k * apart] = wave[k].re;
        out[half + k * apart] = wave[k].im;
    }
}

// The embedding's other stages of each part; slots [packs, n/2] (or null), times factor, and partial
// [packs, rows, 8]: the part's share of the sums of `rows` segments of `width` slots. grid (8, packs), shared
// 2 * padded_double(n/16) doubles.
extern "C" __global__ void __launch_bounds__(256)
    ckks_decode_tail(const double *waves, const uint32_t *slot_of_leaf, const Complex *roots, double factor,
                     double *slots, double *partial, uint32_t rows, uint32_t width, uint32_t log_n) {
    extern __shared__ double shared_doubles[];
    __shared__ double sums[256 / WARP];
    uint32_t n = 1u << log_n, half = n / 2, part = half / HEAD, start = blockIdx.x * part;
    Folded x = folded_view(shared_doubles, part);
    const double *own = waves + size_t(blockIdx.y) * n + start;
    for (uint32_t i = threadIdx.x; i < part; i += blockDim.x) x.set(i, {own[i], own[half + i]});
    embed_part_forward(x, log_n - 1 - HEAD_LOG, HEAD + blockIdx.x, Turns{roots, roots + half});
    for (uint32_t i = threadIdx.x; slots && i < part; i += blockDim.x) {
        slots[size_t(blockIdx.y) * half + slot_of_leaf[start + i]] = __dmul_rn(x.re[padded_double(i)], factor);
    }
    for (uint32_t row = 0; row < rows; row++) {
        double sum = 0.0;
        for (uint32_t i = threadIdx.x; i < part; i += blockDim.x) {
            if (slot_of_leaf[start + i] / width == row) sum += x.re[padded_double(i)];
        }
        for (uint32_t lanes = WARP / 2; lanes > 0; lanes /= 2) sum += __shfl_down_sync(ALL_LANES, sum, lanes);
        if (threadIdx.x % WARP == 0) sums[threadIdx.x / WARP] = sum;
        __syncthreads();
        if (threadIdx.x == 0) {
            for (uint32_t warp = 1; warp < blockDim.x / WARP; warp++) sum += sums[warp];
            partial[(size_t(blockIdx.y) * rows + row) * HEAD + blockIdx.x] = sum * factor;
        }
        __syncthreads();
    }
}

// A step ends: dots [count] from the parts' shares [count, 8], in their order; the generator's place moves on.
// grid (1).
extern "C" __global__ void ckks_dots(const double *partial, double *dots, uint32_t count, uint64_t *place,
                                     uint32_t words) {
    for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
        double sum = 0.0;
        for (uint32_t k = 0; k < HEAD; k++) sum += partial[size_t(i) * HEAD + k];
        dots[i] = sum;
    }
    if (threadIdx.x == 0) *place += words;
}
