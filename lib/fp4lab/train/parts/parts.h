// The table of parts, and the parts of a model.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/train/parts/part.h"

namespace fp4lab {

std::span<const Part* const> Parts();

// Throws Error at `where` for an unknown name.
const Part& PartNamed(std::string_view name, const std::string& where);

// The parts of each block, in the order of the forward pass. Throws Error at a member of `where`
// for a name that is unknown or stands twice, and for no parts.
std::vector<const Part*> PartsOf(const ModelConfig& config, const std::string& where = "model");

}  // namespace fp4lab
