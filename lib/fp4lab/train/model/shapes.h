// What follows from a ModelConfig: the parts of its blocks, their linears, and the layout of the
// parameters.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "fp4lab/train/config.h"
#include "fp4lab/train/model/parameters.h"
#include "fp4lab/train/parts/part.h"

namespace fp4lab {

std::size_t KvHeads(const ModelConfig& config);
std::size_t HeadDim(const ModelConfig& config);
std::size_t KvWidth(const ModelConfig& config);     // KvHeads * HeadDim
std::size_t QueryWidth(const ModelConfig& config);  // heads * HeadDim
// The columns of a head that attention multiplies: HeadDim or, of latent attention, the larger of
// those of queries and of values.
std::size_t AttentionHeadDim(const ModelConfig& config);
// Whether a GPU has attention on tensor cores for the model's heads; true for a model without.
bool HasTensorCoreAttention(const ModelConfig& config);
// The keys that a query of a block sees, its own included; 0: all before it.
std::size_t WindowOf(const ModelConfig& config, int block);
// Whether a block rotates no queries and keys.
bool HasNoRope(const ModelConfig& config, int block);

// muP: d_model / base_d_model; 1 without it.
double WidthRatio(const ModelConfig& config);
// By which logits and their gradients are multiplied: 1 / WidthRatio.
float LogitMultiplier(const ModelConfig& config);
// AttentionShape::scale of heads of this size: 0, the usual one, without muP.
float ScoreScale(const ModelConfig& config, std::size_t head_dim);

// A part in its place: in one block.
struct PlacedPart {
  const Part* part = nullptr;
  int block = 0;
  std::size_t index = 0;                         // in PartsOf(config)
  std::size_t first_linear = 0, first_gain = 0;  // among ParameterLayout::block_linears and ::gains
  std::optional<std::size_t> balance = {};       // among ParameterLayout::balances
};

// The order of the parameters: all matrices, then all gains. Each block has those of its parts, in
// order.
//   matrices: embedding.weight, head.weight (unless tied), the blocks' matrices
//   gains:    the blocks' gains, then final_norm.gain
//   balances: the biases of the blocks' routers, if there are any
struct ParameterLayout {
  std::vector<ParameterSlice> slices;
  std::vector<ParameterGroup> groups;  // in the same order; all parameters
  std::size_t matrices = 0, total = 0;
  std::size_t trained = 0;                     // without balances
  ParameterSlice embedding, head, final_gain;  // head: the embedding's slice if tied
  std::vector<PlacedPart> parts;               // of all blocks, in the order of the forward pass
  std::vector<ParameterSlice> block_linears, gains, balances;  // of the parts
  std::vector<int> block_of_linear;                            // of each of block_linears

  std::span<const ParameterSlice> GainsOf(const PlacedPart& placed) const;
};
ParameterLayout MakeLayout(const ModelConfig& config);

}  // namespace fp4lab
