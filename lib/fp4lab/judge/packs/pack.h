// Golden packs: one input with every number on the way to its bytes, in one .safetensors file.
//
// Tensors, as far as the dialect has them:
//   input         (rows, cols) BF16 if all values are BF16, else F32
//   transformed   (rows, cols) BF16: the input after the Hadamard transform, which is quantized
//   random        (rows, cols) U16: the random fields of a stochastic dialect
//   amax          (1,) or (rows,) F32: the tensor scale's amax
//   encode        (1,) or (rows,) F32: S
//   decode        (1,) or (rows,) F32: D
//   block_amax    (block rows, block cols) F32: b
//   scale_before  (block rows, block cols) F32: t
//   scale_value   (block rows, block cols) F32: s
//   factor        (block rows, block cols) F32: e
//   scale         (block rows, block cols) U8: the scale bytes; F32 where scales are numbers
//   scaled        (rows, cols) F32: v
//   codes         (rows, cols) U8: one code a byte
//   NAME.codes, NAME.scales (U8), NAME.tensor_scale (F32): the bytes as a kernel stores them in
//                 layout NAME
// __metadata__: "format", "fp4lab" (version), "dialect", "source", "element", "scale", "block",
// "factor_divides", "hadamard", "sign_mask", "layouts", and for every tensor "sha256.TENSOR" of its
// bytes; "digest" is the SHA-256 of all other entries, one "key=value\n" each in order of their
// keys, followed by one "tensor dtype shape\n" for each tensor.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/exchange/stored.h"
#include "fp4lab/io/tensors/safetensors.h"
#include "fp4lab/quantize/quantize.h"

namespace fp4lab {

struct PackOptions {
  DialectOptions quantize = {};
  int hadamard = 0;             // 0 (none), 16 or 32; the input must hold BF16 values
  std::uint32_t sign_mask = 0;  // of the transform
  std::vector<StorageLayout> layouts = {};
  bool intermediates = true;  // false: input, amax, scales and codes only
};

// "low-first.128x4.amax", followed by ".transposed" and ".expanded" if the layout is so.
std::string LayoutName(const StorageLayout& layout);

SafetensorsFile MakePack(const Dialect& dialect, MatrixView<const float> input,
                         const PackOptions& options);

// The content of a pack, with checked hashes.
struct Pack {
  Dialect dialect;
  std::string version;  // of the fp4lab that wrote it
  Matrix<float> input;  // the kernel's input
  int hadamard = 0;
  std::uint32_t sign_mask = 0;
  std::vector<std::uint16_t> random = {};
  Quantized answer = {};
  std::vector<std::string> tensors = {};  // the names of all tensors
};

// Reads a pack and checks its hashes. Throws Error(where, ...) that names the first tensor whose
// bytes do not match their hash, a missing tensor, or the reason why the file is not a pack.
Pack ReadPack(const SafetensorsFile& file, const std::string& where);

// The answer that this version computes for the pack's input.
Quantized RecomputedAnswer(const Pack& pack);

// The matrix that is quantized: the input, after the transform if there is one.
Matrix<float> QuantizerInput(MatrixView<const float> input, int hadamard, std::uint32_t sign_mask);

}  // namespace fp4lab
