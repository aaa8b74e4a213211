// Golden packs: one input with every number on the way to its bytes, in one .safetensors file.
//
// Tensors (those that the dialect has):
//   input         (rows, cols) BF16 where all values are, else F32
//   transformed   (rows, cols) BF16: the input behind the Hadamard transform; this is quantized
//   random        (rows, cols) U16: the fields of a stochastic dialect
//   amax, encode, decode   F32 (1,) or (rows,): level 2, S and D
//   block_amax, scale_before, scale_value, factor   F32 (block rows, block cols): b, t, s, e
//   scale         U8 (block rows, block cols): the scale bytes
//   scaled        F32 (rows, cols): v
//   codes         U8 (rows, cols): one code a byte
//   NAME.codes, NAME.scales (U8), NAME.level_two (F32)   the same as a kernel stores them, by
//   layout
// __metadata__: "format", "fp4lab" (version), "dialect", "source", "element", "scale", "block",
// "factor_divides", "hadamard", "sign_mask", "layouts", and for every tensor "sha256.TENSOR" of its
// bytes; "digest" is the SHA-256 of all the others, one "key=value\n" each in order of their keys,
// followed by one "tensor dtype shape\n" each.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/dialect/quantize.h"
#include "fp4lab/exchange/stored.h"
#include "fp4lab/io/safetensors.h"

namespace fp4lab {

struct PackOptions {
  DialectOptions quantize = {};
  int hadamard = 0;             // 0 (none), 16 or 32; the input must hold BF16 values
  std::uint32_t sign_mask = 0;  // of the transform
  std::vector<StorageLayout> layouts = {};
  bool intermediates = true;  // else input, amax, scales and codes only
};

// "low-first.128x4.amax", with ".transposed" and ".expanded" where they hold.
std::string LayoutName(const StorageLayout& layout);

SafetensorsFile MakePack(const Dialect& dialect, MatrixView<const float> input,
                         const PackOptions& options);

// What a pack says, its hashes checked.
struct Pack {
  Dialect dialect;
  std::string version;  // of the fp4lab that wrote it
  Matrix<float> input;  // what the kernel is given
  int hadamard = 0;
  std::uint32_t sign_mask = 0;
  std::vector<std::uint16_t> random = {};
  Quantized answer = {};
  std::vector<std::string> tensors = {};  // all names
};

// Error(where, ...) naming the first tensor whose bytes are not those of its hash, a missing
// tensor, or what else is no pack.
Pack ReadPack(const SafetensorsFile& file, const std::string& where);

// What is quantized: the input, behind the transform if there is one.
Matrix<float> QuantizerInput(MatrixView<const float> input, int hadamard, std::uint32_t sign_mask);

}  // namespace fp4lab
