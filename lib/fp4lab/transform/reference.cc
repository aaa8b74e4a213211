// The scalar definition of the random Hadamard transform.
#include <array>
#include <cstddef>
#include <cstdint>

#include "fp4lab/formats/format.h"
#include "fp4lab/transform/exact_hadamard.h"
#include "fp4lab/transform/hadamard.h"

namespace fp4lab::reference {

void RandomHadamard(MatrixView<const float> x, int size, std::uint32_t sign_mask,
                    MatrixView<float> out) {
  CheckHadamard(x, size, out);
  const std::size_t n = static_cast<std::size_t>(size);
  std::array<float, 32> group{};
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; c += n) {
      for (std::size_t k = 0; k < n; ++k) group[k] = x(r, c + k);
      for (std::size_t j = 0; j < n; ++j) {
        out(r, c + j) =
            RoundToBf16(ExactHadamardOutput(group.data(), size, sign_mask, static_cast<int>(j)));
      }
    }
  }
}

}  // namespace fp4lab::reference
