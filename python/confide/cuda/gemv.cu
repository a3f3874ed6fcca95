// A matrix times 1 to 8 vectors: every product of a decode step.
//
// Floor at batch 1 (bytes of weights over the memory's rate; vectors are thousands of times smaller). Prediction, not a
// measurement, for Qwen2.5-1.5B in bf16 at 3.0 TB/s: qkv 6.3 MB 2.1 us, o 4.7 MB 1.6 us, gate and up 55.1 MB 18.4 us,
// down 27.5 MB 9.2 us, head 466.7 MB 156 us; one launch each, 113 of a step's 143.
// In flight: a warp asks for ROWS x UNROLL x 512 bytes at once; 3 TB/s at 800 ns need 18 KiB on each of 132
// multiprocessors, which 6 warps with 6 words a lane have. decode.py holds the choice of ROWS, SPLIT, UNROLL and WARPS
// for each matrix, tune.py measures it on the device at hand.
//
// compile with: WEIGHT=bf16 NORMED=true OUTPUT=STORE ROWS=1 UNROLL=6 WARPS=4 BATCH=1 STAGED=true
// compile with: WEIGHT=bf16 NORMED=false OUTPUT=ADD ROWS=1 SPLIT=5 UNROLL=7 WARPS=5 BATCH=1
// compile with: WEIGHT=bf16 NORMED=true OUTPUT=SWIGLU ROWS=2 UNROLL=6 WARPS=4 BATCH=1 STAGED=true
// compile with: WEIGHT=bf16 NORMED=true OUTPUT=STORE ROWS=4 UNROLL=3 WARPS=8 BATCH=1 STAGED=true
// compile with: WEIGHT=bf16 NORMED=true OUTPUT=SWIGLU ROWS=4 UNROLL=2 WARPS=4 BATCH=8 STAGED=true RESIDENT=2
// compile with: WEIGHT=float ELEMENT=float NORMED=true OUTPUT=SWIGLU ROWS=2 UNROLL=4 WARPS=4 BATCH=1 STAGED=true
#include "gemv.cuh"

#ifndef ELEMENT
#define ELEMENT bf16
#endif
#ifndef SPLIT
#define SPLIT 1
#endif
// Blocks that a multiprocessor should hold: fewer leave ptxas more registers, so more loads under way in each thread.
#ifndef RESIDENT
#define RESIDENT (512 / (WARPS * 32))
#endif
#ifndef STAGED
#define STAGED false
#endif

// weights: float or bf16 [out, columns]. bias [out] or null.
// input float32 [BATCH, columns]; norm [columns] (null unless NORMED). output float32 [BATCH, out]: stored, added to,
// or with SWIGLU silu(gate)·up [BATCH, out / 2] of a matrix that stacks gate on up. block WARPS x 32, any grid;
// shared BATCH x columns x 4 bytes where STAGED.
extern "C" __global__ void __launch_bounds__(WARPS * 32, RESIDENT)
    gemv(const void *weights, const ELEMENT *bias, const float *input, const ELEMENT *norm, float *output, uint32_t out,
         uint32_t columns, float epsilon) {
    Matrix<ELEMENT> matrix = {static_cast<const uint4 *>(weights), bias, out, columns};
    Vectors<ELEMENT> vectors = {input, norm, epsilon};
    extern __shared__ __align__(16) float staged[];
    using Product = Gemv<WEIGHT, ELEMENT, ROWS, SPLIT, UNROLL, BATCH, WARPS, NORMED, OUTPUT, STAGED>;
    Product(staged).run(matrix, vectors, output);
}
