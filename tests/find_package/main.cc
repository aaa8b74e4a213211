#include <cstdio>
#include <vector>

#include "fp4lab/block/quantize.h"
#include "fp4lab/formats/format.h"

// Quantizes one NVFP4 block and checks its largest element, which is exact.
int main() {
  std::vector<float> x(16, 0.25f), y(16);
  x[3] = -6.0f;
  const fp4lab::MatrixView<const float> view(x.data(), 1, 16);
  const auto q = fp4lab::Quantize(
      view, {.format = *fp4lab::FindBlockFormat("nvfp4"), .amax = fp4lab::TensorAmax(view)});
  fp4lab::Dequantize(q, {y.data(), 1, 16});
  std::printf("%g\n", y[3]);
  return y[3] == -6.0f ? 0 : 1;
}
