#include "fp4lab/tensor/fp4_gemm.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace fp4lab {
namespace {

// The elements' values, laid out as x.codes.
struct Values {
  std::vector<float> memory;
  MatrixView<const float> view;

  Values(const Fp4Operand& x, std::size_t block) : memory(x.codes.size()) {
    const std::size_t rows = x.codes.rows, cols = x.codes.cols;
    const MatrixView<float> out = x.codes.col_stride == 1
                                      ? MatrixView<float>(memory.data(), rows, cols)
                                      : MatrixView<float>(memory.data(), cols, rows).Transposed();
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t k = 0; k < cols; ++k) {
        out(r, k) =
            0.5f * static_cast<float>(x.codes(r, k) - 12) * x.scales(r / x.block_rows, k / block);
      }
    }
    view = out;
  }
};

}  // namespace

void Fp4Gemm(const Fp4Operand& a, const Fp4Operand& b, const GemmOptions& options,
             MatrixView<float> c) {
  ExpectFp4Product(a, b, options, c);
  const auto block = static_cast<std::size_t>(options.block);
  Gemm(Values(a, block).view, Values(b, block).view, options, c);
}

}  // namespace fp4lab
