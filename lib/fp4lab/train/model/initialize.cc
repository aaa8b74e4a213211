// Initial weights.
#include <cmath>
#include <numbers>

#include "fp4lab/base/elementary.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/random.h"
#include "fp4lab/train/model/model.h"
#include "fp4lab/train/model/nudge.h"
#include "fp4lab/train/model/outliers.h"
#include "fp4lab/train/model/streams.h"

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

// Of a matrix among the initial weights; `parts` write to the residual stream.
double DeviationOf(const ModelConfig& model, std::size_t parts, ParameterRole role) {
  const double ratio = WidthRatio(model), deviation = std::sqrt(0.4 / model.d_model);
  switch (role) {
    case ParameterRole::kEmbedding:
      return deviation * std::sqrt(ratio);
    case ParameterRole::kResidualMatrix:
      return deviation / std::sqrt(static_cast<double>(parts));
    case ParameterRole::kRouter:
      return deviation / std::sqrt(ratio);
    default:
      return deviation;
  }
}

}  // namespace

void NudgeFirstGain(const ParameterLayout& layout, int ulps, std::span<float> parameters) {
  const IeeeArithmetic ieee;
  float& gain = parameters[layout.matrices];
  for (int i = 0; i < ulps; ++i) gain = std::nextafter(gain, INFINITY);
}

void InitializeParameters(const TrainConfig& config, std::span<float> parameters) {
  const IeeeArithmetic ieee;
  const ParameterLayout layout = MakeLayout(config.model);
  Expects(parameters.size() == layout.total, "InitializeParameters: all parameters");
  for (std::size_t i = 0; i < layout.slices.size(); ++i) {
    const ParameterSlice& slice = layout.slices[i];
    const std::span<float> values = parameters.subspan(slice.offset, slice.size());
    if (slice.role == ParameterRole::kGain) {
      for (float& v : values) v = 1.0f;
      continue;
    }
    if (slice.role == ParameterRole::kBalance) {
      for (float& v : values) v = 0.0f;
      continue;
    }
    FillNormal({config.seed, static_cast<std::uint32_t>(i), kInitialWeights},
               DeviationOf(config.model, layout.parts.size(), slice.role), values);
  }
  NudgeFirstGain(layout, config.nudge_ulps, parameters);
  if (config.model.outliers.step == 0) PlantOutliers(config.model, parameters, {});
}

}  // namespace fp4lab
