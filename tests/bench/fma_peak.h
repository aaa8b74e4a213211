// The yardstick of compute-bound benchmarks: what the active SIMD target can do at best.
#pragma once

namespace fp4lab::bench {

// GFLOP/s of one thread doing nothing but independent FP32 fused multiply-adds (2 FLOP each), for
// about `milliseconds`.
double FmaPeak(double milliseconds);

}  // namespace fp4lab::bench
