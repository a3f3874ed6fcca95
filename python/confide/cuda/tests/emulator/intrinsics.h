// CUDA's device functions, as a CPU has them: barriers, warp exchanges, atomics, integer and float intrinsics.
#pragma once

// Barriers.
static inline void __syncthreads() { confide_cpu::block_barrier(false); }
static inline int __syncthreads_count(int vote) { return int(confide_cpu::block_barrier(vote != 0)); }
static inline int __syncthreads_or(int vote) { return __syncthreads_count(vote) != 0; }
static inline int __syncthreads_and(int vote) { return __syncthreads_count(vote == 0) == 0; }
static inline void __threadfence() {}
static inline void __threadfence_block() {}
static inline void __threadfence_system() {}

// Warp exchanges.
static inline void __syncwarp(uint32_t mask = 0xffffffffu) {
    confide_cpu::warp_exchange(confide_cpu::Exchange::Sync, mask, 0, 0);
}

static inline uint32_t __ballot_sync(uint32_t mask, int predicate) {
    return uint32_t(confide_cpu::warp_exchange(confide_cpu::Exchange::Ballot, mask, predicate != 0, 0));
}
static inline int __any_sync(uint32_t mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
static inline int __all_sync(uint32_t mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }

template <class T>
static inline T confide_shuffle(uint32_t mask, T value, int source) {
    static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(T));
    bits = confide_cpu::warp_exchange(confide_cpu::Exchange::Shuffle, mask, bits, source);
    memcpy(&value, &bits, sizeof(T));
    return value;
}

template <class T>
static inline T __shfl_sync(uint32_t mask, T value, int source, int width = 32) {
    int lane = confide_cpu::now & 31;
    return confide_shuffle(mask, value, (lane & ~(width - 1)) | (source & (width - 1)));
}
template <class T>
static inline T __shfl_xor_sync(uint32_t mask, T value, int lanes, int width = 32) {
    int lane = confide_cpu::now & 31, source = lane ^ lanes;
    return confide_shuffle(mask, value, source >= (lane & ~(width - 1)) + width ? lane : source);
}
template <class T>
static inline T __shfl_down_sync(uint32_t mask, T value, unsigned lanes, int width = 32) {
    int lane = confide_cpu::now & 31, source = lane + int(lanes);
    return confide_shuffle(mask, value, (lane & (width - 1)) + int(lanes) >= width ? lane : source);
}
template <class T>
static inline T __shfl_up_sync(uint32_t mask, T value, unsigned lanes, int width = 32) {
    int lane = confide_cpu::now & 31, source = lane - int(lanes);
    return confide_shuffle(mask, value, (lane & (width - 1)) < int(lanes) ? lane : source);
}

// Atomics: threads never run at the same time here.
#define CONFIDE_ATOMIC(name, expression)                           \
    template <class T, class V>                                    \
    static inline T name(T *address, V given) {                    \
        InAtomic atomic;                                           \
        T old = *address, value = T(given);                        \
        (void)value;                                               \
        *address = expression;                                     \
        return old;                                                \
    }
CONFIDE_ATOMIC(atomicAdd, T(old + value))
CONFIDE_ATOMIC(atomicSub, T(old - value))
CONFIDE_ATOMIC(atomicMax, old < value ? value : old)
CONFIDE_ATOMIC(atomicMin, value < old ? value : old)
CONFIDE_ATOMIC(atomicExch, value)
CONFIDE_ATOMIC(atomicAnd, T(old &value))
CONFIDE_ATOMIC(atomicOr, T(old | value))
CONFIDE_ATOMIC(atomicXor, T(old ^ value))
CONFIDE_ATOMIC(atomicInc, old >= value ? T(0) : T(old + 1))
#undef CONFIDE_ATOMIC
template <class T, class C, class V>
static inline T atomicCAS(T *address, C compare, V value) {
    InAtomic atomic;
    T old = *address;
    if (old == T(compare)) *address = T(value);
    return old;
}

// Integers.
static inline uint32_t __umulhi(uint32_t a, uint32_t b) { return uint32_t(uint64_t(a) * b >> 32); }
static inline int32_t __mulhi(int32_t a, int32_t b) { return int32_t(int64_t(a) * b >> 32); }
static inline uint64_t __umul64hi(uint64_t a, uint64_t b) { return uint64_t((unsigned __int128)a * b >> 64); }
static inline int64_t __mul64hi(int64_t a, int64_t b) { return int64_t((__int128)a * b >> 64); }
static inline int __popc(uint32_t x) { return __builtin_popcount(x); }
static inline int __popcll(uint64_t x) { return __builtin_popcountll(x); }
static inline int __clz(uint32_t x) { return x ? __builtin_clz(x) : 32; }
static inline int __clzll(uint64_t x) { return x ? __builtin_clzll(x) : 64; }
static inline int __ffs(uint32_t x) { return __builtin_ffs(int(x)); }
static inline int __ffsll(uint64_t x) { return __builtin_ffsll((long long)x); }
static inline uint32_t __brev(uint32_t x) {
    uint32_t reversed = 0;
    for (int i = 0; i < 32; i++) reversed |= (x >> i & 1u) << (31 - i);
    return reversed;
}
static inline uint64_t __brevll(uint64_t x) {
    return uint64_t(__brev(uint32_t(x))) << 32 | __brev(uint32_t(x >> 32));
}
static inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t selector) {
    uint64_t bytes = uint64_t(b) << 32 | a;
    uint32_t result = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t pick = selector >> (4 * i) & 0xf, byte = uint32_t(bytes >> (8 * (pick & 7)) & 0xff);
        if (pick & 8) byte = byte & 0x80 ? 0xff : 0;
        result |= byte << (8 * i);
    }
    return result;
}
static inline uint32_t __funnelshift_l(uint32_t low, uint32_t high, uint32_t shift) {
    return uint32_t((uint64_t(high) << 32 | low) << (shift & 31) >> 32);
}
static inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t shift) {
    return uint32_t((uint64_t(high) << 32 | low) >> (shift & 31));
}
static inline int __dp4a(int a, int b, int sum) {
    for (int i = 0; i < 4; i++) sum += int(int8_t(a >> (8 * i))) * int(int8_t(b >> (8 * i)));
    return sum;
}
static inline unsigned __dp4a(unsigned a, unsigned b, unsigned sum) {
    for (int i = 0; i < 4; i++) sum += (a >> (8 * i) & 0xff) * (b >> (8 * i) & 0xff);
    return sum;
}

// Floats. The rounding suffixes name what a CPU does anyway (built with contraction off).
template <class To, class From>
static inline To confide_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "a reading of the same bits");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
static inline uint32_t __float_as_uint(float x) { return confide_bits<uint32_t>(x); }
static inline int32_t __float_as_int(float x) { return confide_bits<int32_t>(x); }
static inline float __uint_as_float(uint32_t x) { return confide_bits<float>(x); }
static inline float __int_as_float(int32_t x) { return confide_bits<float>(x); }
static inline int64_t __double_as_longlong(double x) { return confide_bits<int64_t>(x); }
static inline double __longlong_as_double(int64_t x) { return confide_bits<double>(x); }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline float __frcp_rn(float a) { return 1.0f / a; }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __ddiv_rn(double a, double b) { return a / b; }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
// glibc has functions of these names.
#define __expf(x) expf(x)
#define __logf(x) logf(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __powf(x, y) powf(x, y)
static inline float __fdividef(float a, float b) { return a / b; }
static inline int __float2int_rn(float x) { return int(rintf(x)); }
static inline int __float2int_rz(float x) { return int(x); }
static inline unsigned __float2uint_rn(float x) { return unsigned(rintf(x)); }
static inline int64_t __float2ll_rn(float x) { return int64_t(rintf(x)); }
static inline int64_t __double2ll_rn(double x) { return int64_t(rint(x)); }
static inline int __double2int_rn(double x) { return int(rint(x)); }
static inline float __int2float_rn(int x) { return float(x); }
static inline float __uint2float_rn(unsigned x) { return float(x); }
static inline float __ll2float_rn(int64_t x) { return float(x); }

#define CONFIDE_MIN_MAX(type)                                       \
    static inline type min(type a, type b) { return b < a ? b : a; } \
    static inline type max(type a, type b) { return a < b ? b : a; }
CONFIDE_MIN_MAX(int)
CONFIDE_MIN_MAX(unsigned)
CONFIDE_MIN_MAX(long)
CONFIDE_MIN_MAX(unsigned long)
CONFIDE_MIN_MAX(long long)
CONFIDE_MIN_MAX(unsigned long long)
CONFIDE_MIN_MAX(float)
CONFIDE_MIN_MAX(double)
#undef CONFIDE_MIN_MAX

// Loads and stores with a cache hint.
template <class T>
static inline T __ldg(const T *address) { return *address; }
template <class T>
static inline T __ldcg(const T *address) {
    OutsideKernel ordered;
    return *address;
}
template <class T>
static inline T __ldcs(const T *address) { return *address; }
template <class T>
static inline void __stcs(T *address, T value) { *address = value; }
template <class T>
static inline void __stcg(T *address, T value) { *address = value; }
