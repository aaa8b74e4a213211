#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp4lab/measure/fma_peak.cc"
#include <cstddef>

#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "fp4lab/base/simd/fma-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab::measure {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Twelve independent chains: enough for a latency of 4 cycles at two multiply-adds a cycle, and few
// enough that 16 registers hold the factors, too.
inline constexpr std::size_t kChains = 12;

// Runs `steps` multiply-adds in each chain and returns the number of floating-point operations. The
// chains start from different memory, so that no compiler can prove two of them equal.
double RunChains(float* sums, float factor, std::size_t steps) {
  const hn::CappedTag<float, 16> d;
  constexpr std::size_t kStride = 16;
  const auto x = hn::Set(d, factor);
  hn::Vec<decltype(d)> chain[kChains];
  for (std::size_t i = 0; i < kChains; ++i) chain[i] = hn::LoadU(d, sums + i * kStride);
  for (std::size_t step = 0; step < steps; ++step) {
    for (auto& sum : chain) sum = fp4lab::HWY_NAMESPACE::Fma(d, x, x, sum);
  }
  for (std::size_t i = 0; i < kChains; ++i) hn::StoreU(chain[i], d, sums + i * kStride);
  return 2.0 * kChains * static_cast<double>(hn::Lanes(d)) * static_cast<double>(steps);
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab::measure
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <numeric>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "fp4lab/measure/probes.h"

namespace fp4lab::measure {

HWY_EXPORT(RunChains);

void SpendFlop(double flop) {
  const auto threads = static_cast<std::size_t>(Threads());
  ParallelFor(threads, [&](std::size_t) {
    std::vector<float> sums(12 * 16);
    std::iota(sums.begin(), sums.end(), 1.0f);
    constexpr float kFactor = 0x1p-10f;
    const double of_a_step = HWY_DYNAMIC_DISPATCH(RunChains)(sums.data(), kFactor, 1);
    const double steps = flop / static_cast<double>(threads) / of_a_step;
    HWY_DYNAMIC_DISPATCH(RunChains)(sums.data(), kFactor, static_cast<std::size_t>(steps));
  });
}

}  // namespace fp4lab::measure
#endif  // HWY_ONCE
