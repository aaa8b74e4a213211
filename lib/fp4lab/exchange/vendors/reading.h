// How the tensors of one quantized matrix are read: formats, blocks and the order of the scales,
// found from dtypes, shapes and what names and configuration say.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/exchange/stored.h"

namespace fp4lab {

// A tensor without its bytes. dtype: a name of io/tensors/safetensors.h.
struct TensorFacts {
  std::string_view dtype;
  std::vector<std::size_t> shape = {};
};

// Facts of a matrix that its tensors do not say. Zeros and nullopt: nothing is.
struct ReadingHints {
  bool has_number = false;     // a number above the block scales is stored
  bool blocks_first = false;   // FP8: a 1x1 grid is a grid of blocks, not the tensor's scale
  bool grouped_codes = false;  // codes are (..., blocks, bytes of a block), as gpt-oss stores them
  bool unpacked = true;        // 4-bit codes may stand in a byte each
  bool swizzled = false;       // scales are in 128x4 tiles
  ScaleOrder padded = ScaleOrder::k128x4;  // the order of scales that are padded in both directions
  std::optional<FormatId> element = {};
  int block_rows = 0, block_cols = 0;
};

struct Reading {
  FormatId element = FormatId::kE2M1;
  CodeOrder codes = CodeOrder::kLowFirst;  // kBytes: a code a byte
  std::size_t parts = 1;                   // product of the leading dimensions: experts
  std::size_t rows = 0, cols = 0;          // of a part, in elements
  // One scale each; 0, 0: the tensor (or the part) is one block. A row is a block of 1 x cols.
  std::size_t block_rows = 1, block_cols = 16;
  bool numbers = false;  // the scales are binary32, BF16 or FP16 numbers, not bytes of `scale`
  FormatId scale = FormatId::kE4M3;
  std::size_t scale_rows = 0, scale_cols = 0;    // of a part, without padding
  std::size_t stored_rows = 0, stored_cols = 0;  // of a part, as stored
  ScaleOrder order = ScaleOrder::kLinear;
  bool codes_dtype_wrong = false;   // the codes are declared as another format
  bool scales_dtype_wrong = false;  // the scales are declared as another format
  friend bool operator==(const Reading&, const Reading&) = default;
};

// The reading that fits the shapes; of several the first in the order: as declared, E2M1 in blocks
// of 16 and 32, codes a byte each, formats other than the declared ones. If none fits, `problem`
// states the grid that the first one needs, and `reading` is the first one.
struct ReadingFound {
  Reading reading;
  std::string problem;  // empty: `reading` fits
};
ReadingFound FindReading(const TensorFacts& codes, const TensorFacts& scales,
                         const ReadingHints& hints);

// The offset of the scale of block (r, c) of a part in the stored scales of that part.
std::size_t StoredScaleOffset(const Reading& reading, std::size_t r, std::size_t c);

// "E4M3": a format's short name in upper case, as configurations write it.
std::string UpperName(FormatId format);
// "NVFP4", "MXFP8 E5M2", "FP8 E4M3, 128x128": the usual name of formats and blocks.
std::string FormulaName(const Reading& reading);

}  // namespace fp4lab
