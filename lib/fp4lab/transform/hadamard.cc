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
HadamardSigns SignsOf(int size, std::uint32_t mask) {
  HadamardSigns signs{size, mask, {}};
  const float magnitude = size == 16 ? 0.25f : 1.0f;
  for (int k = 0; k < size; ++k) signs.factors[k] = (mask >> k & 1u) != 0 ? -magnitude : magnitude;
  return signs;
}

namespace {

// Bands of `size` memory rows in pieces of about 16384 elements.
void Columns(MatrixView<const float> x, const HadamardSigns& signs, MatrixView<float> out) {
  const auto size = static_cast<std::size_t>(signs.size);
  constexpr std::size_t kPiece = 1024;
  const std::size_t pieces = (x.cols + kPiece - 1) / kPiece;
  ParallelFor(x.rows / size * pieces, [&](std::size_t i) {
    const std::size_t r = i / pieces * size, c = i % pieces * kPiece;
    HadamardColumns(&x(r, c), x.row_stride, std::min(kPiece, x.cols - c), signs, &out(r, c),
                    out.row_stride);
  });
}

// Rows in parts of about 16384 elements.
void Rows(MatrixView<const float> x, const HadamardSigns& signs, MatrixView<float> out) {
  const std::size_t part = 1 + 16384 / x.cols;
  ParallelFor((x.rows + part - 1) / part, [&](std::size_t i) {
    for (std::size_t r = i * part; r < std::min((i + 1) * part, x.rows); ++r) {
      HadamardRow(&x(r, 0), x.cols / static_cast<std::size_t>(signs.size), signs, &out(r, 0));
    }
  });
}

}  // namespace

void HadamardWideGroup(MatrixView<const float> x, std::uint32_t mask, MatrixView<float> out) {
  // A BF16 term has 8 bits, a sum of 32 terms 5 more: exact in 53 bits up to this many binades.
  constexpr std::uint32_t kMaxSpan = 53 - 8 - 5;
  const std::size_t n = x.cols;
  std::uint32_t top = 0, bottom = 0xFF;
  std::array<double, 32> sums{};
  for (std::size_t k = 0; k < n; ++k) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x(0, k)), exponent = bits >> 23 & 0xFF;
    top = std::max(top, exponent);
    if ((bits & 0x7FFFFFFF) != 0) bottom = std::min(bottom, exponent);
    sums[k] = (mask >> k & 1u) != 0 ? -x(0, k) : x(0, k);
  }
  if (top == 0xFF || top > bottom + kMaxSpan) {
    return reference::RandomHadamard(x, static_cast<int>(n), mask, out);
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
  for (std::size_t k = 0; k < n; ++k) {  // adding +0 makes -0 +0
    const float y = static_cast<float>((n == 16 ? 0.25 : 1.0) * sums[k] + 0.0);
    out(0, k) = RoundToBf16(n == 16 ? y : y * kInverseSqrt32);
  }
}

void CheckHadamard(MatrixView<const float> x, int size, MatrixView<const float> out) {
  Expects(size == 16 || size == 32, "a Hadamard transform of size 16 or 32");
  Expects(x.cols % static_cast<std::size_t>(size) == 0, "columns are a multiple of the size");
  Expects(x.rows == out.rows && x.cols == out.cols, "out has the shape of x");
}

void RandomHadamard(MatrixView<const float> x, int size, std::uint32_t sign_mask,
                    MatrixView<float> out) {
  CheckHadamard(x, size, out);
  if (x.size() == 0) return;
  const HadamardSigns signs = SignsOf(size, sign_mask);
  RunInMemoryOrder(x, out, [&](MatrixView<const float> from, MatrixView<float> to, bool turned) {
    turned ? Columns(from, signs, to) : Rows(from, signs, to);
  });
}

}  // namespace fp4lab
