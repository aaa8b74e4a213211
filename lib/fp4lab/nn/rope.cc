#include "fp4lab/nn/rope.h"

#include "fp4lab/base/elementary.h"
#include "fp4lab/base/error.h"
#include "fp4lab/nn/reference.h"

namespace fp4lab {

RopeTable MakeRopeTable(std::size_t positions, std::size_t head_dim, float theta) {
  Expects(positions > 0 && head_dim >= 2 && head_dim % 2 == 0 && theta > 0,
          "positions > 0, an even head_dim and theta > 0");
  const std::size_t half = head_dim / 2;
  RopeTable table{Matrix<float>(positions, half), Matrix<float>(positions, half)};
  for (std::size_t i = 0; i < half; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
    const double frequency = Exp(exponent * Log(theta));
    for (std::size_t t = 0; t < positions; ++t) {
      const SinCos angle = SineCosine(static_cast<double>(t) * frequency);
      table.cos(t, i) = static_cast<float>(angle.cos);
      table.sin(t, i) = static_cast<float>(angle.sin);
    }
  }
  return table;
}

void Rope(const RopeTable& table, MatrixView<float> x) {
  reference::Rope<float>(table.cos.View(), table.sin.View(), 1.0f, x);
}

void RopeBackward(const RopeTable& table, MatrixView<float> dx) {
  reference::Rope<float>(table.cos.View(), table.sin.View(), -1.0f, dx);
}

}  // namespace fp4lab
