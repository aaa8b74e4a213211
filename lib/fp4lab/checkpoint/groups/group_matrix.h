// Matrices of 4-bit and 8-bit codes in groups with a number each: the lookup tables of
// bitsandbytes, and the integers of GPTQ, AWQ, compressed-tensors (pack-quantized) and MLX
// (affine).
//
//   element = table[code] * scale                    bitsandbytes
//   element = (code - zero) * scale                  GPTQ, AWQ, pack-quantized
//   element = code * scale + bias                    MLX
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/checkpoint/checkpoint.h"
#include "fp4lab/checkpoint/groups/code_table.h"

namespace fp4lab {

// How codes lie in bytes.
enum class GroupPacking : std::uint8_t {
  kNibbles,  // along the flattened matrix, the high half of a byte first
  kWords,    // words of 32 bits along a row, lowest bits first
  kDown,     // words along a column: (cols / codes a word, rows)
  kAwq,      // words along a column of the transposed matrix, in AWQ's order of eight
};

// A way to name the tensors of such a matrix.
struct GroupNaming {
  std::string_view name;
  std::string_view source;
  std::string_view codes, scales;  // suffixes of the matrix's name
  std::string_view marker;         // a tensor that tells the naming from others
  GroupPacking packing;
};
inline constexpr std::array kGroupNamings = {
    GroupNaming{"bitsandbytes", "bitsandbytes/functional.py QuantState, backends/default/ops.py",
                "weight", "weight.absmax", "weight.absmax", GroupPacking::kNibbles},
    GroupNaming{"gptq", "AutoGPTQ auto_gptq/nn_modules/qlinear; vllm gptq.py", "qweight", "scales",
                "qzeros", GroupPacking::kDown},
    GroupNaming{"awq", "AutoAWQ awq/modules/linear/gemm.py; vllm awq.py", "qweight", "scales",
                "qzeros", GroupPacking::kAwq},
    GroupNaming{"pack-quantized",
                "compressed-tensors src/compressed_tensors/compressors/pack_quantized/base.py",
                "weight_packed", "weight_scale", "weight_shape", GroupPacking::kWords},
    GroupNaming{"mlx-affine", "mlx mlx/ops.cpp quantize, mode affine", "weight", "scales", "biases",
                GroupPacking::kWords},
};

struct GroupMatrix {
  std::string name;
  const GroupNaming* naming = nullptr;
  const CodeTable* table = nullptr;  // nullptr: integers
  std::vector<std::string> tensors;  // all that belong to it
  std::vector<Finding> findings;     // of sizes, types and tables; `where` is empty
  bool readable = false;             // sizes fit: the members below are set
  std::size_t rows = 0, cols = 0;    // outputs, inputs
  int bits = 4;
  std::size_t group = 0;     // columns of a group; of bitsandbytes along the flattened matrix
  std::string scales_dtype;  // "F32", "F16", "U8 of U8" where scales are quantized
  std::array<float, 16> values = {};  // of a lookup table, as the file stores it
  std::span<const std::byte> codes = {};
  std::vector<float> scales = {}, zeros = {}, biases = {};  // by row and group; empty: none
  std::vector<std::uint32_t> group_of = {};                 // of a column; empty: col / group
  bool zeros_plus_one = false;                              // GPTQ's first form stores zero - 1
  std::size_t bytes = 0;                                    // of codes and scales

  std::size_t Groups() const;  // in a row; of bitsandbytes in the matrix
  std::uint32_t Code(std::size_t row, std::size_t col) const;
  // The index of an element's scale.
  std::size_t GroupAt(std::size_t row, std::size_t col) const;
  // The number that a code of a group decodes to; `zero_shift` is added to the group's zero.
  float Value(std::uint32_t code, std::size_t group_at, float zero_shift = 0) const;
};

// The names of such matrices, with their naming, in the order of names.
struct GroupEntry {
  std::string name;
  const GroupNaming* naming;
};
std::vector<GroupEntry> ListGroupMatrices(const ModelFiles& checkpoint);
GroupMatrix ReadGroupMatrix(const ModelFiles& checkpoint, const GroupEntry& entry);

}  // namespace fp4lab
