// Ways in which a kernel's bytes come to differ from the reference: one table for the wrong kernels
// that `cases` measures itself against, and for the hypotheses that `explain` tries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/dialect/quantize.h"
#include "fp4lab/exchange/stored.h"

namespace fp4lab {

// What a kernel does, all of it: where its input comes from, the formula, where the bytes go.
struct Kernel {
  Dialect dialect;
  StorageLayout layout;
  // The random Hadamard transform before the quantizer: 0 (none), 16 or 32; along the blocks. The
  // input must hold BF16 values and whole groups then.
  int hadamard = 0;
  std::uint32_t sign_mask = 0;
  friend constexpr bool operator==(const Kernel&, const Kernel&) = default;
};

// The part of a kernel that a deviation changes.
enum class Stage : std::uint8_t {
  kInput,  // another matrix is quantized: transposed, rounded to BF16, RHT missing or other signs
  kLevelTwo,  // S: missing, inverted, without amax, from another C
  kScale,     // t and the byte: reciprocal for division, double rounding, another rule, off by one
  kElement,   // factor, rounding, saturation, signs
  kLayout,    // nibbles, scale order, transposition, shifts
  kNothing    // not the kernel's work at all: all zeros, all ones
};

// Elements [row, row + rows) x [col, col + cols) of a matrix.
struct Rectangle {
  std::size_t row = 0, col = 0, rows = 0, cols = 0;
  constexpr bool Contains(std::size_t r, std::size_t c) const {
    return r - row < rows && c - col < cols;
  }
  friend constexpr bool operator==(const Rectangle&, const Rectangle&) = default;
};

// "rows 16..31, columns 0..63".
std::string Text(const Rectangle& region);

// What a deviation's value says.
enum class ValueKind : std::uint8_t {
  kNone,       // it takes none
  kPlace,      // `number`: a place in a group of the Hadamard transform
  kRowShift,   // `number`: rows further down; up if negative
  kLastRows,   // `number`: rows at the end
  kAmax,       // `amax`
  kUnwritten,  // `region`, and what stands there: `even_code`, `odd_code`, `scale`
  kSwapped     // `region`, and where the other one starts: `other_row`, `other_col`
};

// Which sign, how many rows, what number: what the bytes must tell beside the deviation's name.
struct DeviationValue {
  int number = 0;
  float amax = 0.0f;
  bool amax_is_open = false;  // one of several neighbours that give the same bytes
  Rectangle region = {};
  std::size_t other_row = 0, other_col = 0;
  std::optional<std::uint8_t> even_code = {}, odd_code = {}, scale = {};
  friend constexpr bool operator==(const DeviationValue&, const DeviationValue&) = default;
};
// "place 5 of every group", "rows 16..31, columns 0..63 hold codes 0xD and 0xC, scales 0xCD".
std::string Text(ValueKind kind, const DeviationValue& value);

struct KernelPlan;  // judge/kernel_plan.h

struct Deviation {
  std::string_view name;  // "reciprocal-for-division": for the command line and JSON
  std::string_view
      what;  // for people, with the kernel as subject: "multiplies by fl(1/6) where ..."
  Stage stage;
  bool (*apply)(KernelPlan&);  // edits the plan; false where that changes nothing
  // Where a value says which: instead of `apply`; and the value for which `cases` runs it.
  ValueKind kind = ValueKind::kNone;
  bool (*apply_value)(KernelPlan&, const DeviationValue&) = nullptr;
  DeviationValue value = {};
};

// The table: names are unique and stable.
std::span<const Deviation> Deviations();
const Deviation* FindDeviation(std::string_view name);

// Whether the deviation changes anything in this kernel (for some input).
bool Applies(const Deviation& deviation, const Kernel& kernel);

// The bytes that a kernel with some deviations writes for x. Those that do not apply change
// nothing. The bytes have the sizes that the kernel's own layout asks for: what a deviating layout
// writes beyond is lost, what it leaves out is 0.
// `value`: of the deviation that takes one, if not the table's.
StoredMatrix Run(const Kernel& kernel, MatrixView<const float> x,
                 std::span<const Deviation* const> deviations = {},
                 const DialectOptions& options = {}, const DeviationValue* value = nullptr);

}  // namespace fp4lab
