#include "fp4lab/train/model/outlier_fit.h"

#include <algorithm>
#include <cmath>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/train/parts/parts.h"

namespace fp4lab {

bool IsChosen(const OutlierConfig& outliers, const OutlierPlace& place) {
  return std::find(outliers.places.begin(), outliers.places.end(), place.name) !=
         outliers.places.end();
}

std::vector<OutlierPlace> OutlierPlacesOf(const Part& part, const ModelConfig& config) {
  return part.outliers == nullptr ? std::vector<OutlierPlace>() : part.outliers(config);
}

void CheckOutliers(const ModelConfig& config, const std::string& where) {
  const IeeeArithmetic ieee;
  const OutlierConfig& outliers = config.outliers;
  if (outliers.gain == 1.0f) return;
  std::vector<std::string> known;
  for (const Part* part : PartsOf(config, where)) {
    for (const OutlierPlace& place : OutlierPlacesOf(*part, config)) {
      if (std::find(known.begin(), known.end(), place.name) == known.end()) {
        known.emplace_back(place.name);
      }
      if (!IsChosen(outliers, place)) continue;
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

}  // namespace fp4lab
