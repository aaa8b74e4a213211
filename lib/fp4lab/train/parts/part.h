// What a part of a block is: a row of the table in parts.h. A part reads the residual stream x and
// adds to it. The layout of the parameters, the plan of linears, memory, initial weights, shapes
// and widths of products follow from what the rows of a model's parts state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/train/config.h"

namespace fp4lab {

// A linear of a block: y (tokens, out) = x (tokens, in) w^T.
struct LinearShape {
  std::string name;  // "attention.qkv"
  std::size_t in = 0, out = 0;
  bool to_residual = false;  // y is added to the residual stream, so initial weights are smaller
  // The rows of the matrices that stand one above the other in the weight, as queries, keys and
  // values do; empty: it is one matrix. An optimizer may treat each by itself.
  std::vector<std::size_t> stacked = {};
  bool router = false;  // its GEMMs multiply in binary32 under every recipe
  double share = 1.0;   // of the tokens that it sees, if it is an expert's: the mean of all experts
};

// The gain of a norm.
struct GainShape {
  std::string name;  // "attention_norm.gain"
  std::size_t size = 0;
};

// A width that a recipe's blocks must divide: those along the reduction axis, if `reduces`, and
// those along the other axis, if `remains`.
struct PartWidth {
  std::string_view key;   // of the model's configuration, where an error points to
  std::string_view what;  // "the width of keys and values"
  std::int64_t value = 0;
  bool reduces = true, remains = true;
  bool tokens = false;  // it is a number of tokens, which the blocks along tokens must divide
};

// A scaling of one channel of a gain, or of a weight's row or column, by gain^power.
struct ChannelScale {
  enum Kind { kGain, kRow, kColumn } kind = kGain;
  std::size_t index = 0;    // in Part::gains or Part::linears
  std::size_t channel = 0;  // of the gain; the row or the column
  double power = 1.0;
};

// A place where outliers can be planted in operands without a change of the function: what the
// part multiplies a channel by, and what divides it again.
struct OutlierPlace {
  std::string_view name;     // "norm"
  std::size_t channels = 0;  // that the place has
  std::vector<ChannelScale> (*scales)(const ModelConfig& config, std::size_t channel) = nullptr;
};

class PartRunner;  // part_runner.h

struct Part {
  std::string_view name;  // "attention"

  // Throws Error at a member of `where` for sizes that the part cannot have; null: it takes all.
  void (*check)(const ModelConfig& config, const std::string& where) = nullptr;
  std::vector<PartWidth> (*widths)(const ModelConfig& config) = nullptr;

  // In the order of the forward pass.
  std::vector<LinearShape> (*linears)(const ModelConfig& config) = nullptr;
  std::vector<GainShape> (*gains)(const ModelConfig& config) = nullptr;
  // Numbers of experts that no optimizer trains (ParameterKind::kBalance): `size` of them, 0 for
  // none; null: none.
  std::size_t (*balance)(const ModelConfig& config) = nullptr;

  // Columns of queries and of values, of all heads together: what scores and their products with
  // values multiply for each key that a query sees. Null: the part has no attention.
  std::size_t (*attention_columns)(const ModelConfig& config) = nullptr;

  // Columns of the matrices (tokens, columns) that the forward pass keeps for the backward pass, x
  // apart, and of those that the backward pass needs for the moment, which all parts share.
  std::vector<std::size_t> (*activations)(const ModelConfig& config) = nullptr;
  std::vector<std::size_t> (*gradients)(const ModelConfig& config) = nullptr;

  // Null: none.
  std::vector<OutlierPlace> (*outliers)(const ModelConfig& config) = nullptr;

  bool on_gpu = false;  // whether gpu/parts has its twin

  // What computes the part on the CPU, in all blocks.
  std::unique_ptr<PartRunner> (*make)(const ModelConfig& config) = nullptr;
};

}  // namespace fp4lab
