// The arithmetic of the calling thread while the library computes: IEEE 754's.
//
// A thread's floating-point state belongs to the program around the library. A shared library that
// was linked with `gcc -Ofast` or `-ffast-math` makes the thread that loads it flush subnormal
// numbers to zero (FTZ, DAZ), torch.set_flush_denormal and XLA do likewise, fesetround changes the
// rounding, feenableexcept makes an inexact result a signal. No byte, verdict or text of fp4lab may
// depend on that.
//
// Who holds an object: every function that a header of the library declares, that a source file
// defines, and that computes with numbers of binary32 or binary64, reads them from text or prints
// them. Its callees find the state set. Exceptions, which expect the caller to hold one:
//  - inline, constexpr and template functions of headers: the formulas of dialect/, nn/reference.h,
//    base/elementary.h. Encode and Decode of one number are integers only (formats/format.h) and
//    need none.
//  - the parts of an operation that only the operation itself calls: block/plan.h (but for its
//    constants), transform/kernels.h, quantize/kernels/, tensor/exact_sum.h and tensor_core_pack.h,
//    the builders of cases, judge/kernels/evaluate.h, match.h and plan_edits.h, judge/explain's
//    evidence, the drawing of study/report (svg.h, plot.h, html.h).
// A program that calls those, or whose own arithmetic must be IEEE's, holds an object itself.
// Threads of the library set the state when they start (base/parallel.cc, study/run/runner.cc).
#pragma once

#include <cstdint>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <cfenv>
#endif

namespace fp4lab {

// The control state of a thread's floating-point units: on x86-64 MXCSR, and the control word of
// the x87, by which glibc rounds where it reads and prints numbers; on Arm FPCR.
struct FloatingPointState {
#if defined(__x86_64__)
  std::uint32_t vector = 0;  // MXCSR
  std::uint16_t scalar = 0;  // x87 control word
#elif defined(__aarch64__)
  std::uint64_t control = 0;  // FPCR
#else
  std::fenv_t environment = {};
#endif
};

FloatingPointState ReadFloatingPointState();
void WriteFloatingPointState(const FloatingPointState& state);

// The state of IEEE arithmetic: rounding to nearest, ties to even; subnormal numbers kept; no
// exception signals. IsIeee ignores the flags of exceptions that were raised.
void SetIeeeState();
bool IsIeee(const FloatingPointState& state);

// While an object lives, its thread computes as IEEE 754 says; afterwards the thread has the state
// that it had before. Objects nest, and belong to one thread. If the state is right already it is
// only read, a few nanoseconds; then flags of exceptions stay raised, as behind any C function.
class IeeeArithmetic {
 public:
  IeeeArithmetic();
  ~IeeeArithmetic();
  IeeeArithmetic(const IeeeArithmetic&) = delete;
  IeeeArithmetic& operator=(const IeeeArithmetic&) = delete;

 private:
  const FloatingPointState before_;
  const bool changed_;
};

}  // namespace fp4lab
