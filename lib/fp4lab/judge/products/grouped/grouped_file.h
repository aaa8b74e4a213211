// Grouped products from files.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/judge/products/grouped/grouped_gemm.h"

namespace fp4lab {

struct GroupedFiles {
  std::string a = {};  // (rows, K), as gemm_file.h reads operands
  // (G, N, K), or its rows joined; or a place with "{}", which stands for the number of each group.
  std::string b = {};
  std::string operand = {};  // the format that plain numbers are rounded to
  // Numbers with commas between them, or the place of an array: the row behind each group's rows,
  // or the rows of each group. One of the two is given.
  std::string ends = {}, sizes = {};
  std::size_t padded_to = 1;  // with sizes: each group's rows are padded to this multiple
  std::string alphas = {};    // G numbers, or one for all; empty: 1
  GemmOutput output = GemmOutput::kFp32;
};

// Reads the operands. With sizes, group g begins where the padded rows of the group before end.
// With ends and sizes, the rest of a group is padding. Throws Error with the remedy for what does
// not fit.
GroupedInputs ReadGrouped(const GroupedFiles& files);

// Numbers with commas between them, or the place of an array of them. Throws Error(option, ...) for
// anything else.
std::vector<float> ReadNumberList(std::string_view text, std::string_view option);

}  // namespace fp4lab
