// Deviations: ways in which a kernel's bytes differ from the reference. One table serves as the
// wrong kernels that `cases` is measured against and as the hypotheses that `explain` tries.
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
#include "fp4lab/exchange/stored.h"
#include "fp4lab/quantize/quantize.h"

namespace fp4lab {

// A kernel: the dialect that it computes, the layout of its output, and the transform of its input.
struct Kernel {
  Dialect dialect;
  StorageLayout layout;
  // The size of the random Hadamard transform before the quantizer: 0 (none), 16 or 32; along the
  // blocks. With a transform, the input must hold BF16 values in rows of whole groups.
  int hadamard = 0;
  std::uint32_t sign_mask = 0;
  friend constexpr bool operator==(const Kernel&, const Kernel&) = default;
};

// The part of a kernel that a deviation changes.
enum class Stage : std::uint8_t {
  kInput,  // another matrix is quantized: transposed, rounded to BF16, RHT missing, other signs
  kTensorScale,  // S: missing, inverted, without amax, from another C
  kScale,    // t and the byte: reciprocal for division, double rounding, another rule, off by one
  kElement,  // factor, rounding, saturation, signs
  kLayout,   // nibbles, scale order, transposition, shifts
  kNothing   // output that was not computed: all zeros, all ones
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

// The row of the input that a kernel quantizes in the place of row r; of columns likewise.
enum class RowOrder : std::uint8_t {
  kKept,
  kPairsSwapped,   // r ^ 1, where there is such a row
  kInterleaved,    // the halves in turn: 0, R/2, 1, R/2 + 1 ...; R is even
  kDeinterleaved,  // even rows, then odd ones: 0, 2, 4 ... 1, 3, 5 ...; R is even
  kReversed
};

// The block whose factor scales a block's elements: its own, or the one before it in its row, where
// the first block of a row has its own factor, that of the last block of the row before, or that of
// the last block of its row.
enum class FactorOfBlock : std::uint8_t { kOwn, kBefore, kBeforeInMemory, kBeforeAround };

// The meaning of a deviation's value.
enum class ValueKind : std::uint8_t {
  kNone,         // the deviation takes no value
  kPlace,        // `number`: a place in a group of the Hadamard transform
  kRowShift,     // `number`: rows further down; up if negative
  kLastRows,     // `number`: rows at the end
  kAmax,         // `amax`
  kFactorAmax,   // `amax`: of the element factors alone
  kScaleAmax,    // `amax`: of the block scales alone
  kAmaxParts,    // `starts`, `by_columns`, `stored`: parts with an amax of their own
  kLastCols,     // `number`: columns at the end
  kTimes,        // `amax`: a positive number by which all elements are multiplied
  kRowOrder,     // `number`: a RowOrder
  kColumnOrder,  // `number`: a RowOrder, of columns
  kRowTurns,     // `parts`, `turns`, `group`: parts of the rows take turns
  kFoldedParts,  // `starts`: parts whose scales are encoded again for one number
  kBefore,       // `number`: a FactorOfBlock
  kFirstCols,    // `number`: columns at the beginning
  kLeastAmax,    // `amax`: the least that a block has
  kUnwritten,    // `region`, and the bytes in it: `even_code`, `odd_code`, `scale`
  kSwapped       // `region`, and the start of the other region: `other_row`, `other_col`
};

// The value of a deviation that takes one: which sign, how many rows, which number. `explain` reads
// it off the bytes.
struct DeviationValue {
  int number = 0;
  float amax = 0.0f;
  bool amax_is_open = false;  // neighbouring numbers may give the same bytes
  Rectangle region = {};
  std::size_t other_row = 0, other_col = 0;
  std::array<std::uint32_t, 7> starts = {};  // as in AmaxParts (judge/kernels/kernel_plan.h)
  bool by_columns = false;
  // `parts` parts of turns * group rows take turns, `group` rows at a time. Of amaxes: the parts
  // are the rows r with equal r / group % parts; 0: the parts that `starts` states.
  std::size_t parts = 0, turns = 0, group = 1;
  int stored = 0;
  std::optional<std::uint8_t> even_code = {}, odd_code = {};
  std::optional<std::uint32_t> scale = {};  // as it is stored: a byte, or the bits of a number
  friend constexpr bool operator==(const DeviationValue&, const DeviationValue&) = default;
};
// "place 5 of every group", "rows 16..31, columns 0..63 hold codes 0xD and 0xC, scales 0xCD".
std::string Text(ValueKind kind, const DeviationValue& value);

struct KernelPlan;  // judge/kernels/kernel_plan.h

struct Deviation {
  std::string_view name;  // "reciprocal-for-division": for the command line and JSON
  std::string_view
      what;  // for people, with the kernel as subject: "multiplies by fl(1/6) where ..."
  Stage stage;
  bool (*apply)(KernelPlan&);  // edits the plan; false if that changes nothing
  // For deviations that take a value: apply_value in place of `apply`, and the value that `cases`
  // runs.
  ValueKind kind = ValueKind::kNone;
  bool (*apply_value)(KernelPlan&, const DeviationValue&) = nullptr;
  DeviationValue value = {};
};

// The table: names are unique and stable.
std::span<const Deviation> Deviations();
const Deviation* FindDeviation(std::string_view name);

}  // namespace fp4lab
