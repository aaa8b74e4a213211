// Shapes that follow from a ModelConfig: the linears of a decoder, and the layout of the
// parameters.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "fp4lab/train/config.h"

namespace fp4lab {

// One linear of a block: y (tokens, out) = x (tokens, in) w^T.
struct LinearShape {
  std::string name;  // "attention.qkv"
  std::size_t in = 0, out = 0;
};

// The linears of a block in the order of the forward pass: attention.qkv (rows: queries, keys,
// values), attention.out, mlp.up (SwiGLU: gate rows, then up rows), mlp.down.
enum BlockLinear { kQkv, kOut, kUp, kDown, kLinearsPerBlock };
std::vector<LinearShape> BlockLinears(const ModelConfig& config);

std::size_t KvHeads(const ModelConfig& config);
std::size_t HeadDim(const ModelConfig& config);
std::size_t KvWidth(const ModelConfig& config);  // KvHeads * HeadDim

// A named piece of the flat parameter buffer.
struct ParameterSlice {
  std::string name;  // "blocks.0.attention.qkv.weight"
  std::size_t offset = 0, rows = 0, cols = 0;
  std::size_t size() const { return rows * cols; }
};

// The order of the parameters: all matrices, then all gains, so that weight decay applies to [0,
// matrices) only.
//   matrices: embedding.weight, head.weight (unless tied), the blocks' matrices
//   gains:    the blocks' attention_norm.gain and mlp_norm.gain, then final_norm.gain
struct ParameterLayout {
  std::vector<ParameterSlice> slices;
  std::size_t matrices = 0, total = 0;
  ParameterSlice embedding, head, final_gain;  // head: the embedding's slice if tied
  std::vector<ParameterSlice> block_linears;   // [block * kLinearsPerBlock + BlockLinear]
  std::vector<ParameterSlice> attention_gains, mlp_gains;  // one per block
};
ParameterLayout MakeLayout(const ModelConfig& config);

}  // namespace fp4lab
