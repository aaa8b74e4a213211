// Explains why a kernel's bytes differ from the reference: the first mismatch stage by stage, the
// causes that make all bytes equal, and the smallest block that shows the difference.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/io/json.h"
#include "fp4lab/judge/explain/causes.h"
#include "fp4lab/quantize/quantize.h"

namespace fp4lab {

// The numbers of one element that follow from the kernel's bytes ("their" bytes), as far as the
// roundings can be inverted.
struct TheirElement {
  bool has_code = false, has_scale = false;
  std::uint8_t code = 0;
  ScaleType scale_type = ScaleType::kByte;
  std::uint32_t scale_code = 0;  // a byte, or the bits of a number
  bool scale_differs = false;    // from ours
  float value = 0, scale = 0;
  // The intervals of t and |v| that round (to nearest) to their bytes; both ends inclusive, NaN if
  // no number does.
  float scale_low = 0, scale_high = 0, scaled_low = 0, scaled_high = 0;
  // The factor, scaled element and code that our formulas compute from their scale.
  float factor = 0, scaled = 0;
  std::uint8_t code_from_their_scale = 0;
};

// One block of the input that shows the difference by itself.
struct Reproducer {
  std::string dialect = {};
  std::size_t row = 0, col = 0;       // of the block in the matrix
  Matrix<float> x = {};               // the block's elements, after any transform
  std::vector<float> amax = {};       // the tensor scale's amax; empty without a tensor scale
  Quantized expected = {}, got = {};  // scale_values where scales are stored as numbers
};

struct Explanation {
  bool equal = false;
  MatchCounts counts;
  bool same_values = false;  // bytes differ, but every decoded value is equal
  // The interpretation of the stored tensor scale, if it differs.
  std::optional<TensorScaleReading> tensor_scale;
  Extent extent;
  // The numbers of the first element that differs.
  Trace ours;
  TheirElement theirs;
  SearchResult causes;
  // A directed case that tells apart causes which these bytes do not.
  std::optional<DecidingCase> deciding;
  std::optional<Reproducer> reproducer;

  // Whether only the tensor scale differs. There is then no first element and no reproducer.
  bool OnlyTensorScale() const {
    return tensor_scale && counts.comparable && counts.Different() == 0;
  }
};

struct ExplainOptions {
  DialectOptions dialect = {};
  SearchOptions search = {};
  bool deciding_case = true;  // whether to search for Explanation::deciding
};

// Explains the bytes `got` of a kernel that should be `kernel`. Throws Error("codes" or "scales",
// ...) if the sizes fit no layout.
Explanation Explain(const Kernel& kernel, MatrixView<const float> x, const StoredMatrix& got,
                    const ExplainOptions& options = {});

// For people: what differs, the stages as a table, the cause, what to do. Lines end with '\n'.
std::string Text(const Kernel& kernel, const Explanation& explanation);
// The last part of Text: the cause, as far as the bytes determine it, and what to do.
std::string CauseText(const Kernel& kernel, const Explanation& explanation);
Json ToJson(const Kernel& kernel, const Explanation& explanation);

// Writes the block as a .safetensors file: input, amax, expected.* and got.* (one code a byte).
void WriteReproducer(const Reproducer& reproducer, const std::filesystem::path& path);
// The block as a test to paste: C++ (a function with hex floats, without a library) or pytest with
// NumPy.
std::string CppTest(const Reproducer& reproducer);
std::string PythonTest(const Reproducer& reproducer);

}  // namespace fp4lab
