// Rows that an adapter reads or changes, made on their own where the products would keep them inside: the normed rows,
// and the gated product. Launched only at such points.
// Floor: rows x width floats read and written once; the launch is all their time.
// compile with: ELEMENT=bf16
// compile with: ELEMENT=float
#include "stream.cuh"

// input float32 [B, width], norm [width], output float32 [B, width]: input · norm / sqrt(mean of squares + epsilon).
// grid (B), block 256.
extern "C" __global__ void __launch_bounds__(256)
    rms_norm(const float *input, const ELEMENT *norm, float *output, uint32_t width, float epsilon) {
    __shared__ float of_warps[8];
    const float *row = input + size_t(blockIdx.x) * width;
    float *result = output + size_t(blockIdx.x) * width;
    next_may_start();
    previous_done();
    float squares = 0;
    for (uint32_t i = threadIdx.x; i < width; i += blockDim.x) squares += row[i] * row[i];
    squares = warp_sum(squares);
    if (threadIdx.x % WARP == 0) of_warps[threadIdx.x / WARP] = squares;
    __syncthreads();
    squares = 0;
    for (uint32_t i = 0; i < blockDim.x / WARP; i++) squares += of_warps[i];
    float factor = rsqrtf(squares / float(width) + epsilon);
    for (uint32_t i = threadIdx.x; i < width; i += blockDim.x) result[i] = row[i] * factor * to_float(norm[i]);
}

// both float32 [B, 2, width], gate then up; inner float32 [B, width]: silu(gate) · up. grid (any, B), block any.
extern "C" __global__ void swiglu(const float *both, float *inner, uint32_t width) {
    const float *gate = both + size_t(blockIdx.y) * 2 * width, *up = gate + width;
    next_may_start();
    previous_done();
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < width; i += gridDim.x * blockDim.x) {
        inner[size_t(blockIdx.y) * width + i] = up[i] * gate[i] / (1.0f + __expf(-gate[i]));
    }
}
