// Whether a model can have the outliers that its configuration asks for (outliers.h).
#pragma once

#include <string>
#include <vector>

#include "fp4lab/train/config.h"
#include "fp4lab/train/parts/part.h"

namespace fp4lab {

// Throws Error at a member of config.model.outliers of `where`, the place of the model, for places
// that no part of the model has, and for gains and channels that a place cannot have.
void CheckOutliers(const ModelConfig& config, const std::string& where);

// Part::outliers; none if the part has none.
std::vector<OutlierPlace> OutlierPlacesOf(const Part& part, const ModelConfig& config);
// Whether `outliers` names the place.
bool IsChosen(const OutlierConfig& outliers, const OutlierPlace& place);

}  // namespace fp4lab
