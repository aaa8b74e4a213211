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
#include "fp4lab/judge/tensor_number.h"

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
  // What the number of level 2 looks like, where it differs.
  std::optional<TensorNumberReading> level_two_reading = {};

  // Whether all bytes are those of the dialect's answer; of a set of answers, the IEEE member's.
  bool Equal() const;
  // Whether the kernel's answer is one of the dialect's.
  bool Accepted() const;
  // Not accepted, but every value that the bytes stand for is the dialect's.
  bool OnlyOtherBytes() const;
  // Not accepted, for the number of level 2 alone.
  bool OnlyLevelTwo() const;
};

struct VerifyOptions {
  DialectOptions quantize = {};  // given amax, replayed random bits
  std::size_t first = 5;         // differences to keep of each part
  bool check_padding = false;
  std::vector<OtherAmax> other_amaxes = {};  // that may be stored by mistake, beside x's parts
};

// Error(where, ...) where the answer's sizes do not fit the shape and layout.
Verdict Verify(const Dialect& dialect, MatrixView<const float> x, const StoredMatrix& answer,
               std::string_view where, const VerifyOptions& options = {});

// The same with the right answer given: of a dialect, and in the answer's layout.
Verdict CompareQuantized(const Dialect& dialect, const Quantized& right, const StoredMatrix& answer,
                         std::string_view where, const VerifyOptions& options = {});
Verdict CompareStored(const StoredMatrix& expected, const StoredMatrix& answer,
                      std::string_view where, const VerifyOptions& options = {});

// "nvfp4.te: equal", "nvfp4.te: DIFFERENT ..." or "within the allowed set of ...": one line.
std::string Headline(const Dialect& dialect, const Verdict& verdict);
// Several lines for people, each ended by a newline: one a part, then the first differences.
std::string VerdictText(const Dialect& dialect, const Verdict& verdict);
Json VerdictJson(const Dialect& dialect, const Verdict& verdict);

}  // namespace fp4lab
