#include "fp4lab/transform/hadamard.h"

#include "fp4lab/base/error.h"

namespace fp4lab {

void CheckHadamard(MatrixView<const float> x, int size, MatrixView<const float> out) {
  Expects(size == 16 || size == 32, "a Hadamard transform of size 16 or 32");
  Expects(x.cols % static_cast<std::size_t>(size) == 0, "columns are a multiple of the size");
  Expects(x.rows == out.rows && x.cols == out.cols, "out has the shape of x");
}

void RandomHadamard(MatrixView<const float> x, int size, std::uint32_t sign_mask,
                    MatrixView<float> out) {
  reference::RandomHadamard(x, size, sign_mask, out);
}

}  // namespace fp4lab
