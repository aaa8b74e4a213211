#include "fp4lab/transform/hadamard.h"

#include <algorithm>
#include <array>
#include <bit>

#include "fp4lab/base/error.h"
#include "fp4lab/base/memory_order.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/transform/kernels.h"

namespace fp4lab {
HadamardFactors FactorsOf(const HadamardTransform& transform) {
  HadamardFactors factors{transform, {}};
  const int n = transform.size;
  const float magnitude = HasExactHadamardFactor(n) ? HadamardFactor(n) : 1.0f;
  for (int k = 0; k < n; ++k) {
    factors.of_elements[k] = transform.signs.Negates(k) ? -magnitude : magnitude;
  }
  return factors;
}

namespace {

// Bands of `size` memory rows in pieces of about 16384 elements.
void Columns(MatrixView<const float> x, const HadamardFactors& factors, MatrixView<float> out) {
  const std::size_t size = factors.size();
  constexpr std::size_t kPiece = 1024;
  const std::size_t pieces = (x.cols + kPiece - 1) / kPiece;
  ParallelFor(x.rows / size * pieces, [&](std::size_t i) {
    const std::size_t r = i / pieces * size, c = i % pieces * kPiece;
    HadamardColumns(&x(r, c), x.row_stride, std::min(kPiece, x.cols - c), factors, &out(r, c),
                    out.row_stride);
  });
}

// Rows in parts of about 16384 elements; rows without gaps are one long row.
void Rows(MatrixView<const float> x, const HadamardFactors& factors, MatrixView<float> out) {
  constexpr std::size_t kPart = 16384;
  if (x.IsRowMajor() && out.IsRowMajor()) {
    ParallelFor((x.size() + kPart - 1) / kPart, [&](std::size_t i) {
      const std::size_t at = i * kPart, count = std::min(kPart, x.size() - at);
      HadamardRow(x.data + at, count / factors.size(), factors, out.data + at);
    });
    return;
  }
  const std::size_t part = 1 + kPart / x.cols;
  ParallelFor((x.rows + part - 1) / part, [&](std::size_t i) {
    for (std::size_t r = i * part; r < std::min((i + 1) * part, x.rows); ++r) {
      HadamardRow(&x(r, 0), x.cols / factors.size(), factors, &out(r, 0));
    }
  });
}

}  // namespace

void HadamardWideGroup(MatrixView<const float> x, const HadamardSigns& signs,
                       MatrixView<float> out) {
  const std::size_t n = x.cols;
  const int size = static_cast<int>(n);
  const auto max_span = static_cast<std::uint32_t>(ExactSpan(53, size));
  std::uint32_t top = 0, bottom = 0xFF;
  std::array<double, kMaxHadamardSize> sums{};
  for (std::size_t k = 0; k < n; ++k) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x(0, k)), exponent = bits >> 23 & 0xFF;
    top = std::max(top, exponent);
    if ((bits & 0x7FFFFFFF) != 0) bottom = std::min(bottom, exponent);
    sums[k] = signs.Negates(static_cast<int>(k)) ? -x(0, k) : x(0, k);
  }
  if (top == 0xFF || top > bottom + max_span) {
    return reference::RandomHadamard(x, {size, signs}, out);
  }
  for (std::size_t stride = 1; stride < n; stride *= 2) {
    for (std::size_t k = 0; k < n; k += 2 * stride) {
      for (std::size_t i = k; i < k + stride; ++i) {
        const double a = sums[i], b = sums[i + stride];
        sums[i] = a + b;
        sums[i + stride] = a - b;
      }
    }
  }
  const bool exact = HasExactHadamardFactor(size);
  const float factor = HadamardFactor(size);
  for (std::size_t k = 0; k < n; ++k) {  // adding +0 makes -0 +0
    const auto y = static_cast<float>((exact ? double{factor} : 1.0) * sums[k] + 0.0);
    out(0, k) = RoundToBf16(exact ? y : y * factor);
  }
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
  CheckHadamard(x, transform.size, out);
  if (x.size() == 0) return;
  const HadamardFactors factors = FactorsOf(transform);
  RunInMemoryOrder(x, out, [&](MatrixView<const float> from, MatrixView<float> to, bool turned) {
    turned ? Columns(from, factors, to) : Rows(from, factors, to);
  });
}

void RandomHadamard(MatrixView<const float> x, int size, std::uint32_t sign_mask,
                    MatrixView<float> out) {
  RandomHadamard(x, MaskTransform(size, sign_mask), out);
}

}  // namespace fp4lab
