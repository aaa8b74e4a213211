#include "fp4lab/train/model/outliers.h"

#include <cmath>
#include <vector>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/train/model/outlier_fit.h"
#include "fp4lab/train/model/shapes.h"

namespace fp4lab {
namespace {

// Channel i of `count` among `all`, evenly spaced.
std::size_t ChannelOf(std::size_t i, std::size_t count, std::size_t all) {
  return (2 * i + 1) * all / (2 * count);
}

struct Target {
  std::span<float> parameters;
  std::span<const std::span<float>> states;
};

void Multiply(const Target& to, std::size_t at, float factor) {
  to.parameters[at] *= factor;
  float moment = 1.0f;
  for (const std::span<float>& state : to.states) {
    moment /= factor;
    state[at] *= moment;
  }
}

void Apply(const ParameterLayout& layout, const PlacedPart& placed, const ChannelScale& scale,
           float gain, const Target& to) {
  const auto factor = static_cast<float>(std::pow(double{gain}, scale.power));
  if (scale.kind == ChannelScale::kGain) {
    const ParameterSlice& slice = layout.gains[placed.first_gain + scale.index];
    return Multiply(to, slice.offset + scale.channel, factor);
  }
  const ParameterSlice& slice = layout.block_linears[placed.first_linear + scale.index];
  if (scale.kind == ChannelScale::kRow) {
    for (std::size_t c = 0; c < slice.cols; ++c) {
      Multiply(to, slice.offset + scale.channel * slice.cols + c, factor);
    }
    return;
  }
  for (std::size_t r = 0; r < slice.rows; ++r) {
    Multiply(to, slice.offset + r * slice.cols + scale.channel, factor);
  }
}

}  // namespace

void PlantOutliers(const ModelConfig& config, std::span<float> parameters,
                   std::span<const std::span<float>> states) {
  const IeeeArithmetic ieee;
  const OutlierConfig& outliers = config.outliers;
  if (outliers.gain == 1.0f) return;
  const ParameterLayout layout = MakeLayout(config);
  const auto count = static_cast<std::size_t>(outliers.channels);
  for (const PlacedPart& placed : layout.parts) {
    for (const OutlierPlace& place : OutlierPlacesOf(*placed.part, config)) {
      if (!IsChosen(outliers, place)) continue;
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t channel = ChannelOf(i, count, place.channels);
        for (const ChannelScale& scale : place.scales(config, channel)) {
          Apply(layout, placed, scale, outliers.gain, {parameters, states});
        }
      }
    }
  }
}

}  // namespace fp4lab
