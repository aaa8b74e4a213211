// Verifies a kernel's bytes against the answer of a dialect: exact equality, counted by part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/exchange/stored.h"
#include "fp4lab/io/json.h"
#include "fp4lab/judge/kernels/tensor_scale_reading.h"
#include "fp4lab/quantize/quantize.h"

namespace fp4lab {

struct Difference {
  std::size_t row = 0,
              col = 0;  // codes: the element; scales: the block; the tensor scale: the number
  std::uint32_t expected = 0, got = 0;  // code, scale byte or bits, or the number's binary32 bits
  bool same_value = false;              // the bytes differ, but decode to the same values
};

// One part of the answer: codes, scales or the tensor scale.
struct PartVerdict {
  std::size_t total = 0, different = 0;
  // The number of differences that decode to the same values: the sign of a zero, codes under a
  // zero scale, kinds of NaN, the scale of a zero block.
  std::size_t same_value = 0;
  std::vector<Difference> first = {};  // in row-major order
  std::size_t nan_for_largest = 0;     // scales: NaN where the largest finite scale is expected
};

struct Verdict {
  PartVerdict codes, scales, tensor_scale;
  ScaleType scale_type = ScaleType::kByte;  // of the stored block scales
  bool has_tensor_scale = false;            // the dialect has it, and the answer's layout stores it
  std::size_t padding_set = 0;              // bytes of padding that are not 0
  bool checks_padding = false;              // whether nonzero padding is an error
  std::optional<Allowed> allowed;  // the verdict for a dialect that allows a set of answers
  // The interpretation of the tensor scale, if it differs.
  std::optional<TensorScaleReading> tensor_scale_reading = {};

  // Whether all bytes equal the dialect's answer (the IEEE member of a set of answers).
  bool Equal() const;
  // Whether the kernel's answer is an answer of the dialect.
  bool Accepted() const;
  // Whether the answer is not accepted although all bytes decode to the dialect's values.
  bool OnlyOtherBytes() const;
  // Whether the tensor scale is the only reason not to accept the answer.
  bool OnlyTensorScale() const;
};

struct VerifyOptions {
  DialectOptions quantize = {};  // given amax, replayed random bits
  std::size_t first = 5;         // number of differences to keep for each part
  bool check_padding = false;
  std::vector<OtherAmax> other_amaxes = {};  // further amaxes that may be stored by mistake
};

// Verifies `answer` for x. Throws Error(where, ...) if the answer's sizes do not fit the shape and
// layout.
Verdict Verify(const Dialect& dialect, MatrixView<const float> x, const StoredMatrix& answer,
               std::string_view where, const VerifyOptions& options = {});

// The same for a given right answer: the result of a dialect's quantizer, or bytes in the answer's
// layout.
Verdict CompareQuantized(const Dialect& dialect, const Quantized& right, const StoredMatrix& answer,
                         std::string_view where, const VerifyOptions& options = {});
Verdict CompareStored(const StoredMatrix& expected, const StoredMatrix& answer,
                      std::string_view where, const VerifyOptions& options = {});

// "nvfp4.te: equal", "nvfp4.te: DIFFERENT ..." or "within the allowed set of ...": one line.
std::string Headline(const Dialect& dialect, const Verdict& verdict);
// Several lines, each ended by a newline: one per part, then the first differences.
std::string VerdictText(const Dialect& dialect, const Verdict& verdict);
Json VerdictJson(const Dialect& dialect, const Verdict& verdict);

}  // namespace fp4lab
