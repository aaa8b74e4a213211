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

}  // namespace

void NudgeFirstGain(const ParameterLayout& layout, int ulps, std::span<float> parameters) {
  const IeeeArithmetic ieee;
  float& gain = parameters[layout.matrices];
  for (int i = 0; i < ulps; ++i) gain = std::nextafter(gain, INFINITY);
}

void InitializeParameters(const TrainConfig& config, std::span<float> parameters) {
  const IeeeArithmetic ieee;
  const double deviation = std::sqrt(0.4 / config.model.d_model);
  const ParameterLayout layout = MakeLayout(config.model);
  Expects(parameters.size() == layout.total, "InitializeParameters: all parameters");
  const double residual = deviation / std::sqrt(static_cast<double>(layout.parts.size()));
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
    const bool to_residual = slice.role == ParameterRole::kResidualMatrix;
    FillNormal({config.seed, static_cast<std::uint32_t>(i), kInitialWeights},
               to_residual ? residual : deviation, values);
  }
  NudgeFirstGain(layout, config.nudge_ulps, parameters);
  if (config.model.outliers.step == 0) PlantOutliers(config.model, parameters, {});
}

}  // namespace fp4lab
