// Why a kernel's bytes are not the reference's: the first mismatch stage by stage, the causes that
// make all bytes equal, and the smallest block that shows it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/dialect/quantize.h"
#include "fp4lab/io/json.h"
#include "fp4lab/judge/causes.h"

namespace fp4lab {

// What their bytes say about one element, as far as it can be inverted.
struct TheirElement {
  bool has_code = false, has_scale = false;
  std::uint8_t code = 0, scale_byte = 0;
  float value = 0, scale = 0;
  // The t and |v| that round to theirs (to nearest): both ends inclusive, NaN where nothing does.
  float scale_low = 0, scale_high = 0, scaled_low = 0, scaled_high = 0;
  // What our formulas make of their scale byte.
  float factor = 0, scaled = 0;
  std::uint8_t code_from_their_scale = 0;
};

// One block of the input that shows the difference on its own.
struct Reproducer {
  std::string dialect = {};
  std::size_t row = 0, col = 0;  // where it stood
  Matrix<float> x = {};          // after any transform
  std::vector<float> amax = {};  // level 2, given explicitly; empty without
  Quantized expected = {}, got = {};
};

struct Explanation {
  bool equal = false;
  MatchCounts counts;
  bool same_values = false;  // other bytes, but every value is equal
  // What the stored number of level 2 looks like, where it differs.
  std::optional<TensorNumberReading> level_two;
  Extent extent;
  // Of the first element that differs.
  Trace ours;
  TheirElement theirs;
  SearchResult causes;
  // A directed case on which causes that are not told apart write different bytes.
  std::optional<DecidingCase> deciding;
  std::optional<Reproducer> reproducer;

  // Codes and scales are all right. There is no first element then, and no reproducer.
  bool OnlyLevelTwo() const { return level_two && counts.comparable && counts.Different() == 0; }
};

struct ExplainOptions {
  DialectOptions dialect = {};
  SearchOptions search = {};
  bool deciding_case = true;  // look for one
};

// `kernel` says what it should be. Error("codes" or "scales", ...) where sizes fit no layout.
Explanation Explain(const Kernel& kernel, MatrixView<const float> x, const StoredMatrix& got,
                    const ExplainOptions& options = {});

// For people: what differs, the stages as a table, the cause, what to do. Lines end with '\n'.
std::string Text(const Kernel& kernel, const Explanation& explanation);
// Its last part: the cause as far as the bytes force it, and what to do.
std::string CauseText(const Kernel& kernel, const Explanation& explanation);
Json ToJson(const Kernel& kernel, const Explanation& explanation);

// The block as a .safetensors file: input, amax, expected.* and got.* (codes one a byte).
void WriteReproducer(const Reproducer& reproducer, const std::filesystem::path& path);
// A test to paste: for C++ (a function with hex floats, no library) and for pytest with NumPy.
std::string CppTest(const Reproducer& reproducer);
std::string PythonTest(const Reproducer& reproducer);

}  // namespace fp4lab
