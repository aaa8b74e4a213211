#include "fp4lab/transform/hadamard.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/memory/memory_order.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/transform/kernels.h"

namespace fp4lab {

HadamardFactors FactorsOf(const HadamardTransform& transform) {
  const IeeeArithmetic ieee;
  HadamardFactors factors{transform, {}};
  const int n = transform.size;
  const float magnitude = HasExactHadamardFactor(n) ? HadamardFactor(n) : 1.0f;
  for (int k = 0; k < n; ++k) {
    factors.of_elements[k] = transform.signs.Negates(k) ? -magnitude : magnitude;
  }
  return factors;
}

namespace {

// Transforms groups down the columns of x: bands of `size` memory rows, in pieces of 1024 columns.
void Columns(MatrixView<const float> x, const HadamardFactors& factors, MatrixView<float> out) {
  const std::size_t size = factors.size();
  constexpr std::size_t kPiece = 1024;
  const std::size_t pieces = DivideUp(x.cols, kPiece);
  ParallelFor(x.rows / size * pieces, [&](std::size_t i) {
    const std::size_t r = i / pieces * size, c = i % pieces * kPiece;
    HadamardColumns(&x(r, c), x.row_stride, std::min(kPiece, x.cols - c), factors, &out(r, c),
                    out.row_stride);
  });
}

// Transforms groups along the rows of x, in parts of about 16384 elements; rows without gaps
// between them are treated as one long row.
void Rows(MatrixView<const float> x, const HadamardFactors& factors, MatrixView<float> out) {
  constexpr std::size_t kPart = 16384;
  if (x.IsRowMajor() && out.IsRowMajor()) {
    ParallelFor(DivideUp(x.size(), kPart), [&](std::size_t i) {
      const std::size_t at = i * kPart, count = std::min(kPart, x.size() - at);
      HadamardRow(x.data + at, count / factors.size(), factors, out.data + at);
    });
    return;
  }
  const std::size_t part = 1 + kPart / x.cols;
  ParallelFor(DivideUp(x.rows, part), [&](std::size_t i) {
    for (std::size_t r = i * part; r < std::min((i + 1) * part, x.rows); ++r) {
      HadamardRow(&x(r, 0), x.cols / factors.size(), factors, &out(r, 0));
    }
  });
}

// The functions below take the terms of one group, with their signs applied; out is
// (1, terms.size()).

// The roundings of one output. `sum` includes the factor if the factor is exact; zero becomes +0.
float RoundedOutput(double sum, int size) {
  const auto y = static_cast<float>(sum + 0.0);
  return RoundToBf16(HasExactHadamardFactor(size) ? y : y * HadamardFactor(size));
}

double ExactFactor(int size) { return HasExactHadamardFactor(size) ? HadamardFactor(size) : 1.0; }

// Transforms terms with NaN or Inf: no output is finite, and finite terms do not matter.
void TransformNonfinite(std::span<const float> terms, MatrixView<float> out) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (std::size_t j = 0; j < terms.size(); ++j) {
    float sum = 0.0f;
    for (std::size_t k = 0; k < terms.size(); ++k) {
      if (std::isfinite(terms[k])) continue;
      sum += std::popcount(j & k) % 2 != 0 ? -terms[k] : terms[k];
    }
    out(0, j) = std::isnan(sum) ? RoundToBf16(std::numeric_limits<float>::quiet_NaN())
                                : std::copysign(kInf, sum);
  }
}

// Transforms terms whose sums are exact in binary64.
void TransformInBinary64(std::span<const float> terms, MatrixView<float> out) {
  const std::size_t n = terms.size();
  const auto size = static_cast<int>(n);
  std::array<double, kMaxHadamardSize> sums{};
  std::copy(terms.begin(), terms.end(), sums.begin());
  for (std::size_t stride = 1; stride < n; stride *= 2) {
    for (std::size_t k = 0; k < n; k += 2 * stride) {
      for (std::size_t i = k; i < k + stride; ++i) {
        const double a = sums[i], b = sums[i + stride];
        sums[i] = a + b;
        sums[i + stride] = a - b;
      }
    }
  }
  for (std::size_t k = 0; k < n; ++k) out(0, k) = RoundedOutput(ExactFactor(size) * sums[k], size);
}

// A sum of finite BF16 values: digits in base 2^32, unit 2^-133, without carry propagation. A term
// is below 2^40 in units of its digit. The last digit has room for a carry.
constexpr std::size_t kWideDigits = 10;
using WideSum = std::array<std::int64_t, kWideDigits>;

// Propagates the carries, which gives the digits of a two's complement number; returns -1 if the
// number is negative, else 0.
std::int64_t Carry(WideSum* sum) {
  std::int64_t from_below = 0;
  for (std::int64_t& digit : *sum) {
    digit += from_below;
    from_below = digit >> 32;
    digit &= 0xFFFFFFFF;
  }
  return from_below;
}

// The sum rounded to odd in binary64 (52 bits and a sticky bit for all bits below them), which
// rounds to binary32 as the exact sum does.
double RoundedToOdd(WideSum sum) {
  const bool negative = Carry(&sum) < 0;
  if (negative) {
    for (std::int64_t& digit : sum) digit = -digit;
    Carry(&sum);
  }
  std::size_t top = kWideDigits;
  while (top > 0 && sum[top - 1] == 0) --top;
  if (top == 0) return 0.0;
  const auto digit = [&](std::size_t below_top) {
    return below_top < top ? static_cast<std::uint64_t>(sum[top - 1 - below_top]) : 0u;
  };
  const int shift = std::countl_zero(static_cast<std::uint32_t>(digit(0)));
  const std::uint64_t below = digit(2) << shift;  // its upper half completes the leading bits
  const std::uint64_t lead = (digit(0) << 32 | digit(1)) << shift | below >> 32;
  bool sticky = (lead & 0xFFF) != 0 || (below & 0xFFFFFFFF) != 0;
  for (std::size_t i = 3; i < top; ++i) sticky = sticky || digit(i) != 0;
  const auto odd = static_cast<double>(lead >> 12 << 1 | (sticky ? 1u : 0u));
  const int exponent = 32 * static_cast<int>(top) - 64 - shift + 11 - 133;
  return std::ldexp(negative ? -odd : odd, exponent);
}

// Transforms any finite terms, in integers.
void TransformDigits(std::span<const float> terms, MatrixView<float> out) {
  const std::size_t n = terms.size();
  const auto size = static_cast<int>(n);
  std::array<WideSum, kMaxHadamardSize> sums;
  std::size_t first = kWideDigits, last = 0;  // range of the terms' digits
  for (std::size_t k = 0; k < n; ++k) {
    const std::uint32_t u = std::bit_cast<std::uint32_t>(terms[k]);
    const std::uint32_t exponent = u >> 23 & 0xFF, shift = std::max(exponent, 1u) - 1;
    const std::int64_t significand = (u >> 16 & 0x7F) | (exponent > 0 ? 0x80 : 0);
    const std::int64_t term = significand << shift % 32;
    sums[k].fill(0);
    sums[k][shift / 32] = (u >> 31) != 0 ? -term : term;
    first = std::min<std::size_t>(first, shift / 32);
    last = std::max<std::size_t>(last, shift / 32);
  }
  for (std::size_t stride = 1; stride < n; stride *= 2) {
    for (std::size_t k = 0; k < n; k += 2 * stride) {
      for (std::size_t i = k; i < k + stride; ++i) {
        for (std::size_t digit = first; digit <= last; ++digit) {
          const std::int64_t a = sums[i][digit], b = sums[i + stride][digit];
          sums[i][digit] = a + b;
          sums[i + stride][digit] = a - b;
        }
      }
    }
  }
  for (std::size_t k = 0; k < n; ++k) {
    out(0, k) = RoundedOutput(ExactFactor(size) * RoundedToOdd(sums[k]), size);
  }
}

}  // namespace

void HadamardWideGroup(MatrixView<const float> x, const HadamardSigns& signs,
                       MatrixView<float> out) {
  const auto size = static_cast<int>(x.cols);
  std::array<float, kMaxHadamardSize> group{};
  const std::span<float> terms = std::span(group).first(x.cols);
  std::uint32_t top = 0, bottom = 0xFF;
  for (std::size_t k = 0; k < terms.size(); ++k) {
    terms[k] = signs.Negates(static_cast<int>(k)) ? -x(0, k) : x(0, k);
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(terms[k]), exponent = bits >> 23 & 0xFF;
    top = std::max(top, exponent);
    if ((bits & 0x7FFFFFFF) != 0) bottom = std::min(bottom, exponent);
  }
  if (top == 0xFF) return TransformNonfinite(terms, out);
  if (top <= bottom + static_cast<std::uint32_t>(ExactSpan(53, size))) {
    return TransformInBinary64(terms, out);
  }
  TransformDigits(terms, out);
}

void CheckHadamard(MatrixView<const float> x, int size, MatrixView<const float> out) {
  Expects(std::find(kHadamardSizes.begin(), kHadamardSizes.end(), size) != kHadamardSizes.end(),
          "a Hadamard transform of size 2, 4, 8, 16, 32, 64 or 128");
  Expects(x.cols % static_cast<std::size_t>(size) == 0, "columns are a multiple of the size");
  Expects(x.rows == out.rows && x.cols == out.cols, "out has the shape of x");
}

HadamardTransform MaskTransform(int size, std::uint32_t sign_mask) {
  Expects(size == 16 || size == 32, "a mask of signs is for a Hadamard transform of 16 or 32");
  return {size, MaskHadamardSigns(sign_mask)};
}

void RandomHadamard(MatrixView<const float> x, const HadamardTransform& transform,
                    MatrixView<float> out) {
  const IeeeArithmetic ieee;
  CheckHadamard(x, transform.size, out);
  if (x.size() == 0) return;
  const HadamardFactors factors = FactorsOf(transform);
  RunInMemoryOrder(x, out, [&](MatrixView<const float> from, MatrixView<float> to, bool turned) {
    turned ? Columns(from, factors, to) : Rows(from, factors, to);
  });
}

void RandomHadamard(MatrixView<const float> x, int size, std::uint32_t sign_mask,
                    MatrixView<float> out) {
  const IeeeArithmetic ieee;
  RandomHadamard(x, MaskTransform(size, sign_mask), out);
}

}  // namespace fp4lab
