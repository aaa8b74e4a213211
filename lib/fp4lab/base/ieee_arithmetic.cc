#include "fp4lab/base/ieee_arithmetic.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

// The functions stay out of line: a compiler moves arithmetic past an intrinsic that it sees, but
// not past a call.
namespace fp4lab {

#if defined(__x86_64__)

namespace {

constexpr std::uint32_t kVectorIeee = 0x1F80, kVectorFlags = 0x3F;  // all exceptions masked
// All exceptions masked, 64 bits of precision, to nearest; bits 6, 7 and 13 to 15 mean nothing.
constexpr std::uint16_t kScalarIeee = 0x037F, kScalarFields = 0x0F3F;

}  // namespace

FloatingPointState ReadFloatingPointState() {
  FloatingPointState state;
  state.vector = _mm_getcsr();
  asm volatile("fnstcw %0" : "=m"(state.scalar));
  return state;
}

void WriteFloatingPointState(const FloatingPointState& state) {
  // An exception that is pending in the x87 would signal at its next instruction if `state` unmasks
  // it: fnclex forgets the ones that were raised meanwhile.
  asm volatile("fnclex\n\tfldcw %0" : : "m"(state.scalar) : "memory");
  _mm_setcsr(state.vector);
}

bool IsIeee(const FloatingPointState& state) {
  return (state.vector & ~kVectorFlags) == kVectorIeee &&
         ((state.scalar ^ kScalarIeee) & kScalarFields) == 0;
}

#elif defined(__aarch64__)

FloatingPointState ReadFloatingPointState() {
  FloatingPointState state;
  asm volatile("mrs %0, fpcr" : "=r"(state.control));
  return state;
}

void WriteFloatingPointState(const FloatingPointState& state) {
  asm volatile("msr fpcr, %0" : : "r"(state.control) : "memory");
}

// FPCR 0: to nearest, no flushing, NaN payloads kept, no traps, the base behaviours of Armv8.0.
bool IsIeee(const FloatingPointState& state) { return state.control == 0; }

#else

FloatingPointState ReadFloatingPointState() {
  FloatingPointState state;
  std::fegetenv(&state.environment);
  return state;
}

void WriteFloatingPointState(const FloatingPointState& state) { std::fesetenv(&state.environment); }

// What fenv_t holds is the system's: the state is always written.
bool IsIeee(const FloatingPointState& /*state*/) { return false; }

#endif

void SetIeeeState() {
#if defined(__x86_64__)
  WriteFloatingPointState({.vector = kVectorIeee, .scalar = kScalarIeee});
#elif defined(__aarch64__)
  WriteFloatingPointState({});
#else
  std::fesetenv(FE_DFL_ENV);
#endif
}

IeeeArithmetic::IeeeArithmetic() : before_(ReadFloatingPointState()), changed_(!IsIeee(before_)) {
  if (changed_) SetIeeeState();
}

IeeeArithmetic::~IeeeArithmetic() {
  if (changed_) WriteFloatingPointState(before_);
}

}  // namespace fp4lab
