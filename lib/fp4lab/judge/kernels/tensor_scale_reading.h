// Interprets a stored tensor scale that is not the number that was asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fp4lab/exchange/stored.h"
#include "fp4lab/io/json.h"

namespace fp4lab {

// The amax with which a kernel computed its scales and codes, where it stored a wrong number.
enum class AmaxUsed : std::uint8_t {
  kNotTried,
  kRight,   // the tensor's: only the stored number is wrong
  kStored,  // that of the stored number
  kNeither  // not one of these two for all blocks
};

// The tensor scales that a kernel stored, and the facts from which the right ones follow.
struct TensorNumbers {
  TensorScaleConvention convention = TensorScaleConvention::kAmax;  // the one asked for; not kNone
  const Dialect* dialect = nullptr;
  float constant = 0, largest_element = 0;  // C, and the element format's q
  std::span<const float> amax;              // the right amax of the tensor, or one per row
  std::span<const float> got;
  AmaxUsed used = AmaxUsed::kNotTried;
};

// The convention whose number for this amax is nearest to the stored one, by their ratio.
TensorScaleConvention NearestConvention(float amax, float got, float constant);

// Another maximum that a kernel may have stored by mistake.
struct OtherAmax {
  std::string what;  // "the amax of the first row"
  float amax;
};
// Wrong amaxes of the quantized matrix: of its first row, of its first block, without abs.
std::vector<OtherAmax> PartialAmaxes(MatrixView<const float> x, int block_cols);
// The amax of the input of a Hadamard transform, in place of the transformed matrix's.
OtherAmax AmaxBeforeTransform(MatrixView<const float> input);

struct TensorScaleReading {
  std::size_t index = 0;  // of the first number that differs: 0, or the row
  float expected = 0, got = 0;
  std::string kind = {};   // for machines: "multiplier", "one-ulp", "bf16" ...; "unknown"
  std::string looks = {};  // "the multiplier amax / 2688"
  std::string remedy = {};
};
// The interpretation of the stored numbers; nullopt if all are right, bit for bit.
std::optional<TensorScaleReading> InterpretTensorScale(const TensorNumbers& numbers,
                                                       std::span<const OtherAmax> others = {});

// "expected 0x40490000 (3.140625), got 0x3a991111 (0.0011679): it looks like ..."
std::string Text(const TensorScaleReading& reading);
Json ToJson(const TensorScaleReading& reading);

}  // namespace fp4lab
