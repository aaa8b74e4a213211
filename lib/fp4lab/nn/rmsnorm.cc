#include "fp4lab/nn/rmsnorm.h"

#include "fp4lab/nn/reference.h"

namespace fp4lab {

void RmsNorm(MatrixView<const float> x, std::span<const float> gain, float epsilon,
             MatrixView<float> y, std::span<float> inverse_rms) {
  reference::RmsNorm<float>(x, gain, epsilon, y, inverse_rms);
}

void RmsNormBackward(MatrixView<const float> x, std::span<const float> gain,
                     std::span<const float> inverse_rms, MatrixView<const float> dy, Write write,
                     MatrixView<float> dx, std::span<float> dgain) {
  reference::RmsNormBackward<float>(x, gain, inverse_rms, dy, write, dx, dgain);
}

}  // namespace fp4lab
