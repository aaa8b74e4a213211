#include "fp4lab/nn/optimizer.h"

#include "fp4lab/nn/reference.h"

namespace fp4lab {

void AdamWStep(const AdamW& options, std::span<const float> gradient, std::span<float> weight,
               std::span<float> m, std::span<float> v) {
  reference::AdamWStep<float>(options, gradient, weight, m, v);
}

double SumOfSquares(std::span<const float> x) {
  double sum = 0;
  for (const float v : x) sum += double{v} * double{v};
  return sum;
}

float ClipFactor(double norm, float clip) {
  return clip > 0 && norm > clip ? static_cast<float>(clip / norm) : 1.0f;
}

}  // namespace fp4lab
