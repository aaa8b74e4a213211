// Directed test matrices: one family for each cause of error in a quantizing kernel.
//
// Random data seldom contain the inputs on which wrong kernels differ from right ones. Each family
// holds matrices that do: rounding boundaries and their neighbours, scales that underflow, zeros of
// both signs, elements that a wrong layout moves. The values are computed from the dialect's
// formats and block shape, so that they lie on its boundaries. Cases are deterministic: the same
// dialect, level and seed give the same bits on every machine.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/dialect/dialect.h"

namespace fp4lab {

enum class CaseLevel : std::uint8_t {
  kQuick,    // seconds on a GPU's host: a selection of the boundaries
  kThorough  // every scale code, more shapes, more values of the tensor's amax
};
struct NamedCaseLevel {
  CaseLevel level;
  std::string_view name;
};
inline constexpr std::array kCaseLevels = {
    NamedCaseLevel{CaseLevel::kQuick, "quick"},
    NamedCaseLevel{CaseLevel::kThorough, "thorough"},
};

struct Case {
  std::string_view family;  // "element-ties"
  std::string name;         // "element-ties/bf16"
  Matrix<float> x;
  bool is_bf16 = false;  // every element is a BF16 value
  // For a dialect with stochastic rounding: its field of random bits for each element.
  std::vector<std::uint16_t> random = {};
};

struct CaseOptions {
  CaseLevel level = CaseLevel::kQuick;
  std::uint64_t seed = 1;
  std::vector<std::string> families = {};  // empty: all that apply to the dialect
  bool bf16_only = false;                  // leaves out the cases that are not BF16 values
};

}  // namespace fp4lab
