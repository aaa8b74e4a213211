#include <cstdio>

#include "fp4lab/quantize/quantize.h"

// Quantizes one block as Transformer Engine does and checks its largest element, which is exact.
int main() {
  fp4lab::Matrix<float> x(1, 16, 0.25f);
  x(0, 3) = -6.0f;
  const fp4lab::Dialect& te = *fp4lab::FindDialect("nvfp4.te");
  const fp4lab::Quantized q = fp4lab::QuantizeAs(te, x.View());
  const fp4lab::Matrix<float> y = fp4lab::DequantizeAs(te, q);
  std::printf("code %d, scale byte 0x%02x, %g\n", int{q.codes[3]}, q.scales[0], y(0, 3));
  return y(0, 3) == -6.0f ? 0 : 1;
}
