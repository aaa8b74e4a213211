// Initial weights.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "fp4lab/base/elementary.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
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

void Nudge(const ParameterLayout& layout, int ulps, std::span<float> parameters) {
  const auto gains =
      std::find_if(layout.slices.begin(), layout.slices.end(), [](const ParameterSlice& slice) {
        return slice.name.starts_with("blocks.0.") && EndsWith(slice.name, ".gain");
      });
  float& gain = parameters[gains->offset];
  for (int i = 0; i < ulps; ++i) gain = std::nextafter(gain, INFINITY);
}

}  // namespace

void InitializeParameters(const TrainConfig& config, std::span<float> parameters) {
  const IeeeArithmetic ieee;
  const double deviation = std::sqrt(0.4 / config.model.d_model);
  const ParameterLayout layout = MakeLayout(config.model);
  Expects(parameters.size() == layout.total, "InitializeParameters: all parameters");
  const double residual = deviation / std::sqrt(2.0 * config.model.layers);
  for (std::size_t i = 0; i < layout.slices.size(); ++i) {
    const ParameterSlice& slice = layout.slices[i];
    const std::span<float> values = parameters.subspan(slice.offset, slice.size());
    if (EndsWith(slice.name, ".gain")) {
      for (float& v : values) v = 1.0f;
      continue;
    }
    const bool to_residual =
        EndsWith(slice.name, "attention.out.weight") || EndsWith(slice.name, "mlp.down.weight");
    FillNormal({config.seed, static_cast<std::uint32_t>(i), kInitialWeights},
               to_residual ? residual : deviation, values);
  }
  Nudge(layout, config.nudge_ulps, parameters);
}

}  // namespace fp4lab
