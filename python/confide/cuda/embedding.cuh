// The canonical embedding of CKKS and the recombination of residues, operation by operation as
// crates/report-003/src/ckks/{embedding,crt}.rs has them: nothing is contracted, so the values are the same to the
// last bit.
//
// Floor of one transform of n complex numbers (n = 8192): 6 stages of radix 4 and one of radix 2, 0.5 M operations in
// float64, of which an SM does 64 a cycle: in a step eight parts are transformed by a block each.
#pragma once
#include "types.cuh"

// One double of padding after 16, as in ntt.cuh.
__device__ inline uint32_t padded_double(uint32_t i) { return i + (i >> 4); }

struct alignas(16) Complex {
    double re, im;
};

__device__ inline double minus(double a, double b) { return __dadd_rn(a, -b); }
__device__ inline Complex plus(Complex a, Complex b) { return {__dadd_rn(a.re, b.re), __dadd_rn(a.im, b.im)}; }
__device__ inline Complex minus(Complex a, Complex b) { return {minus(a.re, b.re), minus(a.im, b.im)}; }
__device__ inline Complex times(Complex a, Complex b) {
    double re = minus(__dmul_rn(a.re, b.re), __dmul_rn(a.im, b.im));
    return {re, __dadd_rn(__dmul_rn(a.re, b.im), __dmul_rn(a.im, b.re))};
}
// a times the conjugate of b.
__device__ inline Complex times_conjugate(Complex a, Complex b) {
    double re = __dadd_rn(__dmul_rn(a.re, b.re), __dmul_rn(a.im, b.im));
    return {re, minus(__dmul_rn(a.im, b.re), __dmul_rn(a.re, b.im))};
}

// The complex numbers that a block holds: real parts, then imaginary parts, each n padded.
struct Folded {
    double *re, *im;
    __device__ Complex get(uint32_t i) const { return {re[padded_double(i)], im[padded_double(i)]}; }
    __device__ void set(uint32_t i, Complex x) const { re[padded_double(i)] = x.re, im[padded_double(i)] = x.im; }
};

// roots [n] of the nodes, then products [n/2] of a node's with its left child's.
struct Turns {
    const Complex *roots;
    const Complex *products;
};

__device__ inline void split(Complex x[4], const Turns &turns, uint32_t node) {
    Complex b = times(x[1], turns.roots[2 * node]), c = times(x[2], turns.roots[node]);
    Complex d = times(x[3], turns.products[node]);
    Complex sum = plus(x[0], c), difference = minus(x[0], c), odd = plus(b, d), rest = minus(b, d);
    Complex turned = {-rest.im, rest.re};
    x[0] = plus(sum, odd);
    x[1] = minus(sum, odd);
    x[2] = plus(difference, turned);
    x[3] = minus(difference, turned);
}

__device__ inline void join(Complex x[4], const Turns &turns, uint32_t node) {
    Complex a = plus(x[0], x[1]), b = plus(x[2], x[3]), c = minus(x[0], x[1]), d = minus(x[2], x[3]);
    Complex turned = {d.im, -d.re};
    x[0] = plus(a, b);
    x[1] = times_conjugate(plus(c, turned), turns.roots[2 * node]);
    x[2] = times_conjugate(minus(a, b), turns.roots[node]);
    x[3] = times_conjugate(minus(c, turned), turns.products[node]);
}

// One stage of radix 4 on blocks of 4 * 2^log_quarter numbers; the first block is node `first`.
template <class Butterfly>
__device__ inline void radix4(Folded x, uint32_t n, uint32_t log_quarter, uint32_t first, Butterfly butterfly) {
    for (uint32_t item = threadIdx.x; item < n / 4; item += blockDim.x) {
        uint32_t block = item >> log_quarter;
        uint32_t base = (block << (log_quarter + 2)) + (item & ((1u << log_quarter) - 1));
        Complex values[4];
#pragma unroll
        for (uint32_t k = 0; k < 4; k++) values[k] = x.get(base + (k << log_quarter));
        butterfly(values, first + block);
#pragma unroll
        for (uint32_t k = 0; k < 4; k++) x.set(base + (k << log_quarter), values[k]);
    }
    __syncthreads();
}

// The stages of a part of 4^k numbers, group `node` of the tree: to values at the leaves. Threads have met before and
// after it.
__device__ inline void embed_part_forward(Folded x, uint32_t log_n, uint32_t node, Turns turns) {
    __syncthreads();
    for (uint32_t left = log_n; left > 0; left -= 2, node *= 4) {
        radix4(x, 1u << log_n, left - 2, node, [&](Complex *values, uint32_t at) { split(values, turns, at); });
    }
}

// The same back, 4^k-fold.
__device__ inline void embed_part_inverse(Folded x, uint32_t log_n, uint32_t node, Turns turns) {
    __syncthreads();
    node <<= log_n - 2;
    for (uint32_t log_quarter = 0; log_quarter < log_n; log_quarter += 2, node /= 4) {
        radix4(x, 1u << log_n, log_quarter, node, [&](Complex *values, uint32_t at) { join(values, turns, at); });
    }
}

// Folded coefficients, n-fold, from the values at the leaves, by one block; n = 2^log_n from 4.
__device__ inline void embed_inverse(Folded x, uint32_t log_n, Turns turns) {
    uint32_t n = 1u << log_n;
    if (log_n % 2 == 0) return embed_part_inverse(x, log_n, 1, turns);
    __syncthreads();
    for (uint32_t node = n / 4, log_quarter = 0; node >= 2; node /= 4, log_quarter += 2) {
        radix4(x, n, log_quarter, node, [&](Complex *values, uint32_t at) { join(values, turns, at); });
    }
    for (uint32_t i = threadIdx.x; i < n / 2; i += blockDim.x) {
        Complex a = x.get(i), b = x.get(i + n / 2);
        x.set(i, plus(a, b));
        x.set(i + n / 2, times_conjugate(minus(a, b), turns.roots[1]));
    }
    __syncthreads();
}

// The first three levels, of radix 2 and 4, on numbers an eighth of the whole apart, and the last three back: what is
// left are the parts of nodes 8 to 15. For a whole of 2 * 4^k numbers.
__device__ inline void embed_head_forward(Complex x[8], const Turns &turns) {
#pragma unroll
    for (uint32_t k = 0; k < 4; k++) {
        Complex a = x[k], turned = times(x[k + 4], turns.roots[1]);
        x[k] = plus(a, turned);
        x[k + 4] = minus(a, turned);
    }
    split(x, turns, 2);
    split(x + 4, turns, 3);
}

__device__ inline void embed_head_inverse(Complex x[8], const Turns &turns) {
    join(x, turns, 2);
    join(x + 4, turns, 3);
#pragma unroll
    for (uint32_t k = 0; k < 4; k++) {
        Complex a = x[k], b = x[k + 4];
        x[k] = plus(a, b);
        x[k + 4] = times_conjugate(minus(a, b), turns.roots[1]);
    }
}

// One later prime in Garner's recombination: q, 1/q, then 1/p0 and 1/p1 modulo q, each with its ratio to q.
struct GarnerStep {
    double q, inverse_q, value0, ratio0, value1, ratio1;
};

// 1.5 * 2^52: added to a number of magnitude below 2^51, it leaves the nearest integer in the lower bits.
constexpr double SHIFT = 6755399441055744.0;

__device__ inline int64_t nearest(double x) {
    return __double_as_longlong(__dadd_rn(x, SHIFT)) - __double_as_longlong(SHIFT);
}
__device__ inline double real(int64_t x) { return minus(__longlong_as_double(__double_as_longlong(SHIFT) + x), SHIFT); }

// x - digit modulo q, of magnitude below 2q.
__device__ inline int64_t subtract_digit(const GarnerStep &step, uint64_t x, int64_t digit) {
    int64_t quotient = nearest(__dmul_rn(double(digit), step.inverse_q));
    return int64_t(x) - (digit - quotient * int64_t(step.q));
}

// x times a factor modulo q, centred, for |x| below 4q.
__device__ inline int64_t scale_mod(const GarnerStep &step, int64_t x, double value, double ratio) {
    int64_t quotient = nearest(__dmul_rn(real(x), ratio));
    return int64_t(uint64_t(x) * uint64_t(int64_t(value)) - uint64_t(quotient) * uint64_t(int64_t(step.q)));
}

// The real number in (-Q/2, Q/2) of a coefficient's residues, the first one centred already.
__device__ inline double recombine(int64_t d0, uint64_t y, uint64_t z, double p0, const GarnerStep *steps,
                                    uint32_t limb_count) {
    if (limb_count == 1) return double(d0);
    const GarnerStep &b = steps[0], &c = steps[1];
    int64_t d1 = scale_mod(b, subtract_digit(b, y, d0), b.value0, b.ratio0);
    if (limb_count == 2) return __dadd_rn(__dmul_rn(real(d1), p0), double(d0));
    int64_t d2 = scale_mod(c, scale_mod(c, subtract_digit(c, z, d0), c.value0, c.ratio0) - d1, c.value1, c.ratio1);
    return __dadd_rn(__dmul_rn(__dadd_rn(__dmul_rn(real(d2), b.q), real(d1)), p0), double(d0));
}
