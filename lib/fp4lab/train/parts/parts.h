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

// The parts of all blocks, each once: in the order of config.parts, and "mlp" last where it stands
// in place of "moe" alone. Throws Error at a member of `where` for a name that is unknown or stands
// twice in a block, for a block without parts, for layers that end within a pattern, and for a
// first_k_dense_replace that leaves no block of experts.
std::vector<const Part*> PartsOf(const ModelConfig& config, const std::string& where = "model");

// The parts of one block, in the order of the forward pass.
std::vector<const Part*> PartsOfBlock(const ModelConfig& config, int block);
bool HasPart(const ModelConfig& config, int block, const Part& part);
int BlocksWith(const ModelConfig& config, const Part& part);  // how many blocks have it

}  // namespace fp4lab
