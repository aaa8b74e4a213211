// The table of optimizers.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "fp4lab/train/optimizer/optimizer.h"

namespace fp4lab {

// The first one is the default.
std::span<const Optimizer* const> Optimizers();

// Throws Error at `where` for an unknown name.
const Optimizer& OptimizerNamed(std::string_view name, const std::string& where);

// The row of a configuration that has been read: its name is known.
const Optimizer& OptimizerOf(const OptimizerConfig& config);

// One update of all groups.
void UpdateParameters(const OptimizerConfig& config, const UpdateStep& step,
                      std::span<const ParameterGroup> groups, const OptimizerNumbers& numbers);

}  // namespace fp4lab
