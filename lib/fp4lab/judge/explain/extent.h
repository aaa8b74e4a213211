// The extent of a kernel's differences from the reference: rows, columns, blocks and patterns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "fp4lab/io/json.h"
#include "fp4lab/judge/kernels/match.h"

namespace fp4lab {

// Square tiles of a matrix, aligned to their side.
struct Tiles {
  std::size_t side = 0;                                           // 0: none
  std::vector<std::pair<std::size_t, std::size_t>> corners = {};  // first row and column, in order
};

struct Extent {
  std::size_t rows = 0, cols = 0;              // of the matrix
  std::vector<bool> row_differs, col_differs;  // has a code, or a block with a scale, that differs
  std::vector<std::size_t> by_column;  // differing codes by column modulo the block's columns
  std::size_t rows_with_codes = 0;     // rows with a differing code
  Rectangle codes;                     // the smallest rectangle with all differing codes
  Rectangle blocks;                    // the smallest rectangle with all blocks that differ
  std::vector<ByteMatcher::Block> differing = {};  // the blocks that differ, in order
  Tiles tiles = {};  // that hold all differences, if these lie in a few tiles apart from each other
  // The number of differing codes in blocks with a right scale, and how many of these elements are
  // exact ties.
  std::size_t under_right_scale = 0, ties = 0;
  bool same_values = false;  // bytes differ, but every decoded value is equal
};

// The differences between the kernel's bytes and the reference, both read in the layout that was
// asked for.
Extent ExtentOf(const Kernel& kernel, ByteMatcher& matcher);

// "rows 16..31 of 64, columns 15..63 of 64; only at column = 15 modulo 16", lines that follow
// indented: ties, tiles.
std::string Text(const Extent& extent);
Json ToJson(const Extent& extent);

}  // namespace fp4lab
