#include "fp4lab/train/model/outliers.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/train/model/shapes.h"
#include "fp4lab/train/parts/parts.h"

namespace fp4lab {
namespace {

bool Chosen(const OutlierConfig& outliers, const OutlierPlace& place) {
  return std::find(outliers.places.begin(), outliers.places.end(), place.name) !=
         outliers.places.end();
}

std::vector<OutlierPlace> PlacesOf(const Part& part, const ModelConfig& config) {
  return part.outliers == nullptr ? std::vector<OutlierPlace>() : part.outliers(config);
}

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

void CheckOutliers(const ModelConfig& config, const std::string& where) {
  const IeeeArithmetic ieee;
  const OutlierConfig& outliers = config.outliers;
  if (outliers.gain == 1.0f) return;
  std::vector<std::string> known;
  for (const Part* part : PartsOf(config, where)) {
    for (const OutlierPlace& place : PlacesOf(*part, config)) {
      if (std::find(known.begin(), known.end(), place.name) == known.end()) {
        known.emplace_back(place.name);
      }
      if (!Chosen(outliers, place)) continue;
      if (static_cast<std::size_t>(outliers.channels) > place.channels) {
        throw Error(where + "/outliers/channels",
                    std::to_string(outliers.channels) + " are more than the " +
                        std::to_string(place.channels) + " of \"" + std::string(place.name) + "\"");
      }
      for (const ChannelScale& scale : place.scales(config, 0)) {
        const double power = std::log2(double{outliers.gain}) * scale.power;
        if (power == std::floor(power)) continue;
        throw Error(where + "/outliers/gain",
                    "must be a power of four: the activation of \"" + std::string(place.name) +
                        "\" squares, so that its rows are multiplied by the square root");
      }
    }
  }
  for (std::size_t i = 0; i < outliers.places.size(); ++i) {
    if (std::find(known.begin(), known.end(), outliers.places[i]) != known.end()) continue;
    throw Error(where + "/outliers/places/" + std::to_string(i),
                "no part of this model can have outliers in \"" + outliers.places[i] +
                    "\" and compute the same function; " + DidYouMean(outliers.places[i], known));
  }
}

void PlantOutliers(const ModelConfig& config, std::span<float> parameters,
                   std::span<const std::span<float>> states) {
  const IeeeArithmetic ieee;
  const OutlierConfig& outliers = config.outliers;
  if (outliers.gain == 1.0f) return;
  const ParameterLayout layout = MakeLayout(config);
  const auto count = static_cast<std::size_t>(outliers.channels);
  for (const PlacedPart& placed : layout.parts) {
    for (const OutlierPlace& place : PlacesOf(*placed.part, config)) {
      if (!Chosen(outliers, place)) continue;
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
