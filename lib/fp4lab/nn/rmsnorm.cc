#include "fp4lab/nn/rmsnorm.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/nn/lanes/row_chunks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp4lab/nn/rmsnorm.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "fp4lab/base/simd/reduce-inl.h"
#include "fp4lab/nn/lanes/math-inl.h"
#include "fp4lab/nn/lanes/store-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class Store>
HWY_INLINE float RmsNormTo(MatrixView<const float> x, const float* gain, float epsilon,
                           MatrixView<float> y, float* inverse_rms) {
  Store store;
  const auto columns = static_cast<float>(x.cols);
  for (std::size_t i = 0; i < x.rows; ++i) {
    const float* in = RowOf(x, i);
    float* out = RowOf(y, i);
    const float squares = Sum(
        x.cols, [](auto v) HWY_ATTR { return hn::Mul(v, v); }, in);
    const float r = 1.0f / std::sqrt(squares / columns + epsilon);
    ForElements(x.cols, [&store, in, out, gain, r](auto d, std::size_t c) HWY_ATTR {
      const auto n = hn::Mul(hn::LoadU(d, in + c), hn::Set(d, r));
      store(d, hn::Mul(n, hn::LoadU(d, gain + c)), out + c);
    });
    inverse_rms[i] = r;
  }
  return store.Amax();
}

void RmsNormRows(MatrixView<const float> x, const float* gain, float epsilon, MatrixView<float> y,
                 float* inverse_rms) {
  RmsNormTo<StoreAsIs>(x, gain, epsilon, y, inverse_rms);
}
float RmsNormBf16Rows(MatrixView<const float> x, const float* gain, float epsilon,
                      MatrixView<float> y, float* inverse_rms) {
  return RmsNormTo<StoreBf16>(x, gain, epsilon, y, inverse_rms);
}

// dgain is this chunk's own sum.
void RmsNormBackwardRows(MatrixView<const float> x, const float* gain, const float* inverse_rms,
                         MatrixView<const float> dy, bool accumulate, MatrixView<float> dx,
                         float* dgain) {
  const auto columns = static_cast<float>(x.cols);
  for (std::size_t i = 0; i < x.rows; ++i) {
    const float *in = RowOf(x, i), *grad = RowOf(dy, i);
    float* out = RowOf(dx, i);
    const float r = inverse_rms[i];
    const float dot = Sum(
        x.cols,
        [r](auto v, auto g, auto k)
            HWY_ATTR { return hn::Mul(hn::Mul(g, k), hn::Mul(v, hn::Set(ReduceTag(), r))); },
        in, grad, gain);
    const float mean = dot / columns;
    ForElements(x.cols, [=](auto d, std::size_t c) HWY_ATTR {
      const auto g = hn::LoadU(d, grad + c);
      const auto n = hn::Mul(hn::LoadU(d, in + c), hn::Set(d, r));
      const auto e = hn::Mul(g, hn::LoadU(d, gain + c));
      const auto change = hn::Mul(hn::Set(d, r), hn::Sub(e, hn::Mul(n, hn::Set(d, mean))));
      hn::StoreU(hn::Add(hn::LoadU(d, dgain + c), hn::Mul(g, n)), d, dgain + c);
      hn::StoreU(accumulate ? hn::Add(hn::LoadU(d, out + c), change) : change, d, out + c);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp4lab {
namespace {

HWY_EXPORT(RmsNormRows);
HWY_EXPORT(RmsNormBf16Rows);
HWY_EXPORT(RmsNormBackwardRows);

void CheckNorm(MatrixView<const float> x, std::span<const float> gain, MatrixView<float> y,
               std::span<float> inverse_rms) {
  Expects(HasShape(x, x.rows, gain.size()) && HasShape(y, x.rows, x.cols) &&
              inverse_rms.size() == x.rows,
          "x, y (R, C), gain (C), inverse_rms (R)");
}

}  // namespace

float RmsNormToBf16(MatrixView<const float> x, std::span<const float> gain, float epsilon,
                    MatrixView<float> y, std::span<float> inverse_rms) {
  const IeeeArithmetic ieee;
  CheckNorm(x, gain, y, inverse_rms);
  const auto kernel = HWY_DYNAMIC_DISPATCH(RmsNormBf16Rows);
  return LargestOfRowChunks(x.rows, x.cols, [&](std::size_t r, std::size_t count) {
    return kernel(RowsOf(x, r, count), gain.data(), epsilon, RowsOf(y, r, count),
                  inverse_rms.data() + r);
  });
}

void RmsNorm(MatrixView<const float> x, std::span<const float> gain, float epsilon,
             MatrixView<float> y, std::span<float> inverse_rms) {
  const IeeeArithmetic ieee;
  CheckNorm(x, gain, y, inverse_rms);
  const auto kernel = HWY_DYNAMIC_DISPATCH(RmsNormRows);
  ParallelRowChunks(x.rows, x.cols, [&](std::size_t r, std::size_t count) {
    kernel(RowsOf(x, r, count), gain.data(), epsilon, RowsOf(y, r, count), &inverse_rms[r]);
  });
}

void RmsNormBackward(MatrixView<const float> x, std::span<const float> gain,
                     std::span<const float> inverse_rms, MatrixView<const float> dy, Write write,
                     MatrixView<float> dx, std::span<float> dgain) {
  const IeeeArithmetic ieee;
  Expects(HasShape(x, inverse_rms.size(), gain.size()) && HasShape(dy, x.rows, x.cols) &&
              HasShape(dx, x.rows, x.cols) && dgain.size() == x.cols,
          "x, dy, dx (R, C), gain, dgain (C), inverse_rms (R)");
  constexpr std::size_t kChunk = 64;
  const std::size_t chunks = DivideUp(x.rows, kChunk);
  std::vector<float> partial(chunks * x.cols);
  const auto kernel = HWY_DYNAMIC_DISPATCH(RmsNormBackwardRows);
  ParallelFor(chunks, [&](std::size_t i) {
    const std::size_t r = i * kChunk, count = std::min(kChunk, x.rows - r);
    kernel(RowsOf(x, r, count), gain.data(), &inverse_rms[r], RowsOf(dy, r, count),
           write == Write::kAccumulate, RowsOf(dx, r, count), &partial[i * x.cols]);
  });
  for (std::size_t i = 0; i < chunks; ++i) {
    for (std::size_t c = 0; c < x.cols; ++c) dgain[c] += partial[i * x.cols + c];
  }
}

}  // namespace fp4lab
#endif  // HWY_ONCE
