// Bytes from a kernel against the answer of a dialect: exact equality, counted part by part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/dialect/quantize.h"
#include "fp4lab/exchange/stored.h"
#include "fp4lab/io/json.h"

namespace fp4lab {

struct Difference {
  std::size_t row = 0, col = 0;  // codes: the element; scales: the block; level 2: the number
  std::uint32_t expected = 0, got = 0;  // code, scale byte, or the number's binary32 bits
  bool same_value = false;              // other bytes that say the same
};

// One part of the answer: codes, scales or level 2.
struct PartVerdict {
  std::size_t total = 0, different = 0;
  // Of the different ones, those that decode to the same values: the sign of a zero, codes under a
  // zero scale, kinds of NaN, the scale of a zero block.
  std::size_t same_value = 0;
  std::vector<Difference> first = {};  // in row-major order
};

struct Verdict {
  PartVerdict codes, scales, level_two;
  bool has_level_two = false;      // the dialect has it, and the answer's layout stores it
  std::size_t padding_set = 0;     // bytes of padding that are not 0
  bool checks_padding = false;     // whether they count
  std::optional<Allowed> allowed;  // for a dialect whose answer is a set: what decides

  // Whether the kernel's answer is the dialect's.
  bool Equal() const;
  // Different, but every value that the bytes stand for is the dialect's.
  bool OnlyOtherBytes() const;
};

struct VerifyOptions {
  DialectOptions quantize = {};  // given amax, replayed random bits
  std::size_t first = 5;         // differences to keep of each part
  bool check_padding = false;
};

// Error(where, ...) where the answer's sizes do not fit the shape and layout.
Verdict Verify(const Dialect& dialect, MatrixView<const float> x, const StoredMatrix& answer,
               std::string_view where, const VerifyOptions& options = {});

// The same with the right answer given, in the same layout.
Verdict CompareStored(const StoredMatrix& expected, const StoredMatrix& answer,
                      std::string_view where, const VerifyOptions& options = {});

// Several lines for people, each ended by a newline: one a part, then the first differences.
std::string VerdictText(const Dialect& dialect, const Verdict& verdict);
Json VerdictJson(const Dialect& dialect, const Verdict& verdict);

}  // namespace fp4lab
