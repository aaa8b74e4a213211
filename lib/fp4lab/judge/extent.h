// Where a kernel's bytes differ from the reference: which rows, columns and blocks, in what
// pattern.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "fp4lab/io/json.h"
#include "fp4lab/judge/match.h"

namespace fp4lab {

struct Extent {
  std::size_t rows = 0, cols = 0;              // of the matrix
  std::vector<bool> row_differs, col_differs;  // has a differing code, or a block's differing scale
  std::vector<std::size_t> by_column;  // differing codes by column modulo the block's columns
  std::size_t rows_with_codes = 0;     // rows with a differing code
  Rectangle codes;                     // the smallest that holds all differing codes
  Rectangle blocks;                    // ... all blocks of which a byte differs
  std::vector<ByteMatcher::Block> differing = {};  // these blocks, in order
  // Differing codes of blocks whose scale is right, and how many of these elements are exact ties.
  std::size_t under_right_scale = 0, ties = 0;
  bool same_values = false;  // other bytes, but every value is equal
};

// Both read in the layout that was asked for.
Extent ExtentOf(const Kernel& kernel, ByteMatcher& matcher);

// "rows 16..31 of 64, columns 15..63 of 64: column = 15 modulo 16", lines that follow indented.
std::string Text(const Extent& extent);
Json ToJson(const Extent& extent);

}  // namespace fp4lab
