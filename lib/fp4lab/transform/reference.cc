// The scalar definition of the random Hadamard transform.
#include <array>
#include <cstddef>
#include <cstdint>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/transform/exact_hadamard.h"
#include "fp4lab/transform/hadamard.h"

namespace fp4lab::reference {

void RandomHadamard(MatrixView<const float> x, const HadamardTransform& transform,
                    MatrixView<float> out) {
  const IeeeArithmetic ieee;
  CheckHadamard(x, transform.size, out);
  const auto n = static_cast<std::size_t>(transform.size);
  std::array<float, kMaxHadamardSize> group{};
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; c += n) {
      for (std::size_t k = 0; k < n; ++k) {
        group[k] = transform.signs.Negates(static_cast<int>(k)) ? -x(r, c + k) : x(r, c + k);
      }
      const auto value = [&](int k) { return group[static_cast<std::size_t>(k)]; };
      for (std::size_t j = 0; j < n; ++j) {
        out(r, c + j) =
            RoundToBf16(ExactHadamardOutput(transform.size, static_cast<int>(j), value));
      }
    }
  }
}

void RandomHadamard(MatrixView<const float> x, int size, std::uint32_t sign_mask,
                    MatrixView<float> out) {
  const IeeeArithmetic ieee;
  reference::RandomHadamard(x, MaskTransform(size, sign_mask), out);
}

}  // namespace fp4lab::reference
