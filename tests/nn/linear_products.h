// The three products of a linear, for tests that compare them with a definition.
#pragma once

#include "fp4lab/base/matrix.h"
#include "fp4lab/base/random.h"
#include "fp4lab/nn/linear.h"

namespace fp4lab {

inline constexpr RandomStream kRandom{42, 7, 1000};

struct LinearData {
  Matrix<float> x, w, dy;  // (tokens, in), (out, in), (tokens, out)
};

struct Products {
  Matrix<float> y, dx, dw;
};

// Forward and backward. y and dw are added to matrices that hold `y` and `dw` everywhere.
inline Products ProductsOf(const LinearRecipe& recipe, const LinearData& data,
                           const OperandObserver* observer = nullptr, float y = 0.5f,
                           float dw = 0.25f) {
  const LinearCall call{.random = kRandom, .observer = observer};
  Products out{Matrix<float>(data.x.rows, data.w.rows, y), Matrix<float>(data.x.rows, data.x.cols),
               Matrix<float>(data.w.rows, data.w.cols, dw)};
  LinearWeight weight;
  weight.w = data.w.View();
  LinearScratch scratch;
  LinearForward(recipe, call, {data.x.View()}, &weight, &scratch, Write::kAccumulate, out.y.View());
  LinearBackward(recipe, call, {data.x.View()}, &weight, {data.dy.View()}, &scratch, out.dx.View(),
                 out.dw.View());
  return out;
}

}  // namespace fp4lab
