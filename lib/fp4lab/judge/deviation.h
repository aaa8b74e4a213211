// Ways in which a kernel's bytes come to differ from the reference: one table for the wrong kernels
// that `cases` measures itself against, and for the hypotheses that `explain` tries.
#pragma once

#include <cstdint>
#include <span>
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

struct KernelPlan;  // judge/kernel_plan.h

struct Deviation {
  std::string_view name;  // "reciprocal-for-division": for the command line and JSON
  std::string_view
      what;  // for people, with the kernel as subject: "multiplies by fl(1/6) where ..."
  Stage stage;
  bool (*apply)(KernelPlan&);  // edits the plan; false where that changes nothing
};

// The table: names are unique and stable.
std::span<const Deviation> Deviations();
const Deviation* FindDeviation(std::string_view name);

// Whether the deviation changes anything in this kernel (for some input).
bool Applies(const Deviation& deviation, const Kernel& kernel);

// The bytes that a kernel with some deviations writes for x. Those that do not apply change
// nothing. The bytes have the sizes that the kernel's own layout asks for: what a deviating layout
// writes beyond is lost, what it leaves out is 0.
StoredMatrix Run(const Kernel& kernel, MatrixView<const float> x,
                 std::span<const Deviation* const> deviations = {},
                 const DialectOptions& options = {});

}  // namespace fp4lab
