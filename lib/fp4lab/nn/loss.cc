#include "fp4lab/nn/loss.h"

#include "fp4lab/nn/reference.h"

namespace fp4lab {

double CrossEntropy(MatrixView<const float> logits, std::span<const std::uint16_t> targets,
                    std::span<double> row_loss) {
  return reference::CrossEntropy<float>(logits, targets, 1.0f, row_loss, {});
}

double CrossEntropyGradient(MatrixView<const float> logits, std::span<const std::uint16_t> targets,
                            float scale, std::span<double> row_loss, MatrixView<float> dlogits) {
  return reference::CrossEntropy<float>(logits, targets, scale, row_loss, dlogits);
}

}  // namespace fp4lab
