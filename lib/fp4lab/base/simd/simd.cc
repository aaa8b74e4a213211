#include "fp4lab/base/simd/simd.h"

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <iterator>

#include "fp4lab/base/error.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/base/text/text.h"

#include <hwy/targets.h>

namespace fp4lab {
namespace {

std::string LowerName(std::int64_t target) { return LowerCase(hwy::TargetName(target)); }

// Targets compiled in, as one bit each. A lower bit is a better target.
std::int64_t BuiltTargets() { return HWY_TARGETS; }

void Choose(std::int64_t targets) {
  hwy::SetSupportedTargetsForTest(targets);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

// The compiled targets that the CPU runs, determined once before any target is pinned.
std::int64_t RunnableTargets() {
  static const std::int64_t runnable = hwy::SupportedTargets() & BuiltTargets();
  return runnable;
}

std::vector<std::int64_t> BitsOf(std::int64_t targets) {
  std::vector<std::int64_t> bits;
  for (auto left = static_cast<std::uint64_t>(targets); left != 0; left &= left - 1) {
    bits.push_back(std::int64_t{1} << std::countr_zero(left));
  }
  return bits;
}

std::vector<std::string> NamesOfTargets(std::int64_t targets) {
  std::vector<std::string> names;
  for (const std::int64_t bit : BitsOf(targets)) names.push_back(LowerName(bit));
  return names;
}

}  // namespace

std::vector<std::string> SimdTargets() { return NamesOfTargets(RunnableTargets()); }

std::vector<std::string> CompiledSimdTargets() { return NamesOfTargets(BuiltTargets()); }

std::string ActiveSimdTarget() {
  RunnableTargets();
  return LowerName(BitsOf(hwy::SupportedTargets() & BuiltTargets()).front());
}

bool HasFusedMultiplyAdd() {
#if defined(__aarch64__)
  return true;  // every 64-bit Arm has it, in scalar registers, too
#else
  constexpr std::string_view kWithout[] = {"sse4", "ssse3", "sse2", "scalar", "emu128"};
  return std::find(std::begin(kWithout), std::end(kWithout), ActiveSimdTarget()) ==
         std::end(kWithout);
#endif
}

bool HasDotProduct() {
#if defined(__ARM_FEATURE_DOTPROD)
  return true;  // the compiler was told so
#elif defined(__aarch64__) && defined(__linux__)
  return (::getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#else
  return false;
#endif
}

bool HasMatrixMultiply() {
#if defined(__ARM_FEATURE_MATMUL_INT8)
  return true;
#elif defined(__aarch64__) && defined(__linux__)
  return HasDotProduct() && (::getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
#else
  return false;
#endif
}

void PinSimdTarget(std::string_view name) {
  const std::int64_t runnable = RunnableTargets();
  if (name == "best") return Choose(0);
  std::vector<std::string> known = {"best"};
  for (const std::int64_t bit : BitsOf(runnable)) {
    if (LowerName(bit) == name) return Choose(bit);
    known.push_back(LowerName(bit));
  }
  throw Error("SIMD target " + std::string(name), "unknown here; " + DidYouMean(name, known));
}

void PinSimdTargetFromEnvironment() {
  const char* name = std::getenv("FP4LAB_TARGET");
  if (name != nullptr && *name != '\0') PinSimdTarget(name);
}

}  // namespace fp4lab
