#include "fp4lab/transform/hadamard.h"

#include <algorithm>

#include "fp4lab/base/error.h"
#include "fp4lab/base/memory_order.h"
#include "fp4lab/base/parallel.h"
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
