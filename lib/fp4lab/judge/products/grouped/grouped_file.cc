#include "fp4lab/judge/products/grouped/grouped_file.h"

#include <charconv>
#include <cmath>
#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/exchange/matrix_file.h"
#include "fp4lab/judge/products/gemm_file.h"

namespace fp4lab {
namespace {

constexpr float kMostRows = 0x1p24f;  // whole numbers that binary32 counts

std::vector<std::size_t> ReadRowCounts(std::string_view text, std::string_view option) {
  std::vector<std::size_t> counts;
  for (const float x : ReadNumberList(text, option)) {
    if (!(x >= 0) || x > kMostRows || x != std::floor(x)) {
      throw Error(option, "number " + std::to_string(counts.size()) +
                              " is not a whole number of rows from 0 to 2^24");
    }
    counts.push_back(static_cast<std::size_t>(x));
  }
  return counts;
}

// Group `group` of joined rows.
MmaOperand GroupOf(const MmaOperand& all, std::size_t group, std::size_t groups) {
  MmaOperand part = all;
  part.rows = all.rows / groups;
  const auto cut = [&](auto& values, std::size_t cols) {
    const auto first = values.begin() + static_cast<std::ptrdiff_t>(group * part.rows * cols);
    values = {first, first + static_cast<std::ptrdiff_t>(part.rows * cols)};
  };
  cut(part.codes, all.cols);
  cut(part.scales, all.ScaleCols());
  return part;
}

std::vector<MmaOperand> ReadWeights(const GroupedFiles& files, std::size_t groups) {
  std::vector<MmaOperand> weights;
  if (const std::size_t at = files.b.find("{}"); at != std::string::npos) {
    for (std::size_t g = 0; g < groups; ++g) {
      std::string place = files.b;
      place.replace(at, 2, std::to_string(g));
      weights.push_back(ReadGemmOperand(place, files.operand).operand);
    }
    return weights;
  }
  const GemmOperandFile all = ReadGemmOperand(files.b, files.operand);
  if (all.operand.rows % groups != 0) {
    throw Error(files.b, "has " + std::to_string(all.operand.rows) + " rows, which " +
                             std::to_string(groups) + " groups do not divide");
  }
  for (std::size_t g = 0; g < groups; ++g) weights.push_back(GroupOf(all.operand, g, groups));
  return weights;
}

}  // namespace

std::vector<float> ReadNumberList(std::string_view text, std::string_view option) {
  const IeeeArithmetic ieee;
  if (HoldsType(text)) return ReadMatrix(text).values.values;
  std::vector<float> numbers;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string_view word = text.substr(0, comma);
    text = comma == std::string_view::npos ? "" : text.substr(comma + 1);
    float x = 0;
    const auto result = std::from_chars(word.data(), word.data() + word.size(), x);
    if (result.ec != std::errc() || result.ptr != word.data() + word.size()) {
      throw Error(option, "\"" + std::string(word) +
                              "\" is not a number; give numbers with commas " +
                              "between them, or the place of an array");
    }
    numbers.push_back(x);
  }
  return numbers;
}

GroupedInputs ReadGrouped(const GroupedFiles& files) {
  const IeeeArithmetic ieee;
  if (files.ends.empty() && files.sizes.empty()) {
    throw Error("--ends", "or --sizes must say which rows belong to which group");
  }
  if (files.padded_to == 0) throw Error("--pad", "is 0; use 1, 16 or 128");
  GroupedInputs in;
  in.output = files.output;
  if (!files.sizes.empty()) in.sizes = ReadRowCounts(files.sizes, "--sizes");
  if (!files.ends.empty()) {
    in.ends = ReadRowCounts(files.ends, "--ends");
  } else {
    std::size_t end = 0;
    for (const std::size_t size : in.sizes) {
      end += (size + files.padded_to - 1) / files.padded_to * files.padded_to;
      in.ends.push_back(end);
    }
  }
  if (in.ends.empty()) throw Error("--ends", "there is no group: give one number a group");
  if (!files.alphas.empty()) in.alphas = ReadNumberList(files.alphas, "--alphas");
  for (const float alpha : in.alphas) {
    if (!std::isfinite(alpha)) throw Error("--alphas", "a factor is not finite");
  }
  in.a = ReadGemmOperand(files.a, files.operand).operand;
  in.b = ReadWeights(files, in.ends.size());
  CheckGroups(in, files.a);
  if (in.ends.back() < in.a.rows && files.ends.empty()) {
    throw Error("--sizes", "the groups end at row " + std::to_string(in.ends.back()) + " of " +
                               std::to_string(in.a.rows) +
                               " rows of A: --pad says to which multiple rows are padded");
  }
  return in;
}

}  // namespace fp4lab
