#include "fp4lab/nn/optimizer/optimizer.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/elementary.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp4lab/nn/optimizer/optimizer.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "fp4lab/nn/lanes/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// correction1 and correction2 are 1 / (1 - beta^step).
void AdamWElements(const AdamW& o, float correction1, float correction2, std::size_t n,
                   const float* gradient, float* weight, float* m, float* v) {
  const float new1 = 1.0f - o.beta1, new2 = 1.0f - o.beta2;
  ForElements(n, [&](auto d, std::size_t i) HWY_ATTR {
    const auto g = hn::Mul(hn::LoadU(d, gradient + i), hn::Set(d, o.gradient_scale));
    const auto m_new =
        hn::Add(hn::Mul(hn::Set(d, o.beta1), hn::LoadU(d, m + i)), hn::Mul(hn::Set(d, new1), g));
    const auto v_new = hn::Add(hn::Mul(hn::Set(d, o.beta2), hn::LoadU(d, v + i)),
                               hn::Mul(hn::Set(d, new2), hn::Mul(g, g)));
    const auto root = hn::Sqrt(hn::Mul(hn::Set(d, correction2), v_new));
    const auto update =
        hn::Div(hn::Mul(hn::Set(d, correction1), m_new), hn::Add(root, hn::Set(d, o.epsilon)));
    const auto w = hn::LoadU(d, weight + i);
    const auto change = hn::Add(update, hn::Mul(hn::Set(d, o.weight_decay), w));
    hn::StoreU(hn::Sub(w, hn::Mul(hn::Set(d, o.learning_rate), change)), d, weight + i);
    hn::StoreU(m_new, d, m + i);
    hn::StoreU(v_new, d, v + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp4lab {
namespace {

HWY_EXPORT(AdamWElements);

float BiasCorrection(float beta, std::int64_t step) {
  return static_cast<float>(1.0 / (1.0 - IntegerPower(beta, step)));
}

double ChunkSumOfSquares(std::span<const float> x) {
  std::array<double, 16> lanes{};
  std::size_t i = 0;
  for (; i + lanes.size() <= x.size(); i += lanes.size()) {
    for (std::size_t j = 0; j < lanes.size(); ++j) lanes[j] += double{x[i + j]} * double{x[i + j]};
  }
  for (; i < x.size(); ++i) lanes[i % lanes.size()] += double{x[i]} * double{x[i]};
  for (std::size_t width = lanes.size() / 2; width > 0; width /= 2) {
    for (std::size_t j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  }
  return lanes[0];
}

}  // namespace

void AdamWStep(const AdamW& options, std::span<const float> gradient, std::span<float> weight,
               std::span<float> m, std::span<float> v) {
  const IeeeArithmetic ieee;
  Expects(gradient.size() == weight.size() && m.size() == weight.size() &&
              v.size() == weight.size() && options.step >= 1,
          "gradient, weight, m and v of one size, step >= 1");
  const float correction1 = BiasCorrection(options.beta1, options.step);
  const float correction2 = BiasCorrection(options.beta2, options.step);
  const auto kernel = HWY_DYNAMIC_DISPATCH(AdamWElements);
  constexpr std::size_t kChunk = 16384;
  ParallelFor(DivideUp(weight.size(), kChunk), [&](std::size_t chunk) {
    const std::size_t i = chunk * kChunk, count = std::min(kChunk, weight.size() - i);
    kernel(options, correction1, correction2, count, &gradient[i], &weight[i], &m[i], &v[i]);
  });
}

double SumOfSquares(std::span<const float> x) {
  const IeeeArithmetic ieee;
  constexpr std::size_t kChunk = 4096;
  std::vector<double> partial(DivideUp(x.size(), kChunk));
  ParallelFor(partial.size(), [&](std::size_t i) {
    partial[i] = ChunkSumOfSquares(x.subspan(i * kChunk, std::min(kChunk, x.size() - i * kChunk)));
  });
  double sum = 0;
  for (const double p : partial) sum += p;
  return sum;
}

float ClipFactor(double norm, float clip) {
  const IeeeArithmetic ieee;
  return clip > 0 && norm > clip ? static_cast<float>(clip / norm) : 1.0f;
}

}  // namespace fp4lab
#endif  // HWY_ONCE
