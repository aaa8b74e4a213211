// Initial weights.
#include <cmath>
#include <numbers>

#include "fp4lab/base/elementary.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/random.h"
#include "fp4lab/train/model.h"
#include "fp4lab/train/streams.h"

namespace fp4lab {
namespace {

void FillNormal(const RandomStream& stream, double deviation, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); i += 2) {
    const double radius = deviation * std::sqrt(-2.0 * Log(UniformOpen(stream.Bits32(i))));
    const double angle = 2.0 * std::numbers::pi * UniformOpen(stream.Bits32(i + 1));
    const SinCos point = SineCosine(angle);
    out[i] = static_cast<float>(radius * point.cos);
    if (i + 1 < out.size()) out[i + 1] = static_cast<float>(radius * point.sin);
  }
}

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

}  // namespace

void InitializeParameters(const ModelConfig& config, std::uint64_t seed,
                          std::span<float> parameters) {
  const double deviation = std::sqrt(0.4 / config.d_model);
  const ParameterLayout layout = MakeLayout(config);
  Expects(parameters.size() == layout.total, "InitializeParameters: all parameters");
  const double residual = deviation / std::sqrt(2.0 * config.layers);
  for (std::size_t i = 0; i < layout.slices.size(); ++i) {
    const ParameterSlice& slice = layout.slices[i];
    const std::span<float> values = parameters.subspan(slice.offset, slice.size());
    if (EndsWith(slice.name, ".gain")) {
      for (float& v : values) v = 1.0f;
      continue;
    }
    const bool to_residual =
        EndsWith(slice.name, "attention.out.weight") || EndsWith(slice.name, "mlp.down.weight");
    FillNormal({seed, static_cast<std::uint32_t>(i), kInitialWeights},
               to_residual ? residual : deviation, values);
  }
}

}  // namespace fp4lab
