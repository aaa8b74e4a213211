#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp4lab/measure/vector_additions.cc"
#include <cstddef>
#include <cstdint>

#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fp4lab::measure {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Independent chains of latency 1: more than the arithmetic units of a core, and few enough that 16
// registers hold the operands, too.
inline constexpr std::size_t kAdditionChains = 12;

// Executes `count` instructions, rounded down to whole turns over all chains. An addition and an
// exclusive or follow each other, which no compiler joins.
template <std::size_t kLanes>
void RunAdditions(std::int32_t* words, std::size_t count) {
  const hn::CappedTag<std::int32_t, kLanes> d;
  constexpr std::size_t kStride = 16;
  const auto addend = hn::LoadU(d, words), mask = hn::LoadU(d, words + kStride);
  hn::Vec<decltype(d)> chain[kAdditionChains];
  for (std::size_t i = 0; i < kAdditionChains; ++i) chain[i] = hn::LoadU(d, words + i * kStride);
  for (std::size_t done = 0; done + 2 * kAdditionChains <= count; done += 2 * kAdditionChains) {
    for (auto& x : chain) x = hn::Add(x, addend);
    for (auto& x : chain) x = hn::Xor(x, mask);
  }
  for (std::size_t i = 0; i < kAdditionChains; ++i) hn::StoreU(chain[i], d, words + i * kStride);
}

void RunWideAdditions(std::int32_t* words, std::size_t count) { RunAdditions<16>(words, count); }
void RunNarrowAdditions(std::int32_t* words, std::size_t count) { RunAdditions<8>(words, count); }

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab::measure
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <numeric>
#include <vector>

#include "fp4lab/measure/vector_instructions.h"

namespace fp4lab::measure {

HWY_EXPORT(RunWideAdditions);
HWY_EXPORT(RunNarrowAdditions);

void SpendVectorInstructions(const VectorInstructions& count) {
  std::vector<std::int32_t> words(12 * 16);
  std::iota(words.begin(), words.end(), 1);
  HWY_DYNAMIC_DISPATCH(RunWideAdditions)(words.data(), static_cast<std::size_t>(count.wide));
  HWY_DYNAMIC_DISPATCH(RunNarrowAdditions)(words.data(), static_cast<std::size_t>(count.narrow));
}

}  // namespace fp4lab::measure
#endif  // HWY_ONCE
