#include "fp4lab/nn/activation.h"

#include <cstddef>

#include "fp4lab/nn/reference.h"

namespace fp4lab {
namespace {

template <class Body>
void ForEach(MatrixView<float> y, Body body) {
  for (std::size_t r = 0; r < y.rows; ++r) {
    for (std::size_t c = 0; c < y.cols; ++c) body(r, c);
  }
}

}  // namespace

void SquaredRelu(MatrixView<const float> x, MatrixView<float> y) {
  ForEach(y, [&](std::size_t r, std::size_t c) { y(r, c) = reference::SquaredRelu(x(r, c)); });
}
void SquaredReluBackward(MatrixView<const float> x, MatrixView<const float> dy,
                         MatrixView<float> dx) {
  ForEach(dx, [&](std::size_t r, std::size_t c) {
    dx(r, c) = reference::SquaredReluBackward(x(r, c), dy(r, c));
  });
}

void Gelu(MatrixView<const float> x, MatrixView<float> y) {
  ForEach(y, [&](std::size_t r, std::size_t c) { y(r, c) = reference::Gelu(x(r, c)); });
}
void GeluBackward(MatrixView<const float> x, MatrixView<const float> dy, MatrixView<float> dx) {
  ForEach(dx, [&](std::size_t r, std::size_t c) {
    dx(r, c) = reference::GeluBackward(x(r, c), dy(r, c));
  });
}

void Swiglu(MatrixView<const float> gate, MatrixView<const float> up, MatrixView<float> y) {
  ForEach(y,
          [&](std::size_t r, std::size_t c) { y(r, c) = reference::Swiglu(gate(r, c), up(r, c)); });
}
void SwigluBackward(MatrixView<const float> gate, MatrixView<const float> up,
                    MatrixView<const float> dy, MatrixView<float> dgate, MatrixView<float> dup) {
  ForEach(dgate, [&](std::size_t r, std::size_t c) {
    const auto d = reference::SwigluBackward(gate(r, c), up(r, c), dy(r, c));
    dgate(r, c) = d.gate;
    dup(r, c) = d.up;
  });
}

}  // namespace fp4lab
