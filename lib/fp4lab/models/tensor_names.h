// The tensors of transformers that stand one above the other in a weight of fp4lab.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "fp4lab/models/family.h"
#include "fp4lab/train/model/parameters.h"

namespace fp4lab {

struct TensorPart {
  std::string name;      // "model.layers.0.self_attn.q_proj.weight"
  std::size_t rows = 0;  // of the weight, in order
  std::vector<std::size_t> shape;
};

// The parts of a weight or gain of a model that the family states.
std::vector<TensorPart> TensorPartsOf(const Family& family, const ParameterSlice& slice);

}  // namespace fp4lab
