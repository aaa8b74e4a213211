// The flat parameters of a model: named pieces, and the groups in which an optimizer updates them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace fp4lab {

// What a piece of the parameters is.
enum class ParameterRole {
  kEmbedding,       // the embedding and the head
  kMatrix,          // a linear's weight (out, in)
  kResidualMatrix,  // the weight of a linear that writes to the residual stream
  kRouter,          // a router's weight (experts, in)
  kGain,            // of a norm
  kBalance          // the biases of a router's choice
};

// A named piece of the flat parameter buffer.
struct ParameterSlice {
  std::string name;  // "blocks.0.attention.qkv.weight"
  std::size_t offset = 0, rows = 0, cols = 0;
  ParameterRole role = ParameterRole::kMatrix;
  std::vector<std::size_t> stacked = {};  // LinearShape::stacked
  std::size_t size() const { return rows * cols; }
};

// Parameters that an optimizer treats alike, one after the other in the buffer.
enum class ParameterKind {
  kEmbeddings,  // the embedding and the head
  kMatrices,    // of the blocks' linears
  kGains,       // of all norms; weights do not decay
  // Biases of routers, which are not trained: their "gradient" is by how many tokens an expert had
  // more than the mean, and a step moves each by balance_rate against the sign. It is no part of
  // the gradient's norm.
  kBalance
};
struct ParameterGroup {
  ParameterKind kind = ParameterKind::kMatrices;
  std::size_t first = 0, size = 0;
  std::vector<ParameterSlice> slices = {};  // all of the group
  float balance_rate = 0.0f;                // kBalance
  float rate = 1.0f, decay = 1.0f;          // multiples of learning rate and weight decay (muP)
};

}  // namespace fp4lab
