// Wrong kernels written here in plain loops, without the table of deviations: explain must find
// what is wrong with them.
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fp4lab/judge/explain/explain.h"
#include "tests/judge/directed_inputs.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

constexpr float kGrid[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

// The code of the nearest grid value, by comparison with the midpoints; tie_goes_up decides ties.
std::uint8_t Nearest(float v, bool (*tie_goes_up)(int lower)) {
  const float a = std::fabs(v);
  int code = 7;
  for (int i = 0; i < 7; ++i) {
    const float middle = (kGrid[i] + kGrid[i + 1]) / 2;
    if (a < middle || (a == middle && !tie_goes_up(i))) {
      code = i;
      break;
    }
  }
  return static_cast<std::uint8_t>(code + (std::signbit(v) ? 8 : 0));
}
bool ToEven(int lower) { return lower % 2 == 1; }
bool Away(int) { return true; }

float E4m3(int code) {
  const int e = code >> 3, f = code & 7;
  return e == 0 ? std::ldexp(static_cast<float>(f), -9)
                : std::ldexp(1.0f + static_cast<float>(f) / 8, e - 7);
}
std::uint8_t NearestE4m3(float t) {
  if (t >= 448.0f) return 126;
  int code = 0;
  while (E4m3(code + 1) <= t) ++code;
  const double down = double{t} - E4m3(code), up = double{E4m3(code + 1)} - t;
  return static_cast<std::uint8_t>(up < down || (up == down && code % 2 == 1) ? code + 1 : code);
}
float ToBf16(float x) {
  std::uint32_t u = std::bit_cast<std::uint32_t>(x);
  u += 0x7FFF + (u >> 16 & 1);
  return std::bit_cast<float>(u & 0xFFFF0000u);
}

// The replaceable parts of the kernels below.
struct Parts {
  std::function<float(float)> magnitude = [](float x) { return std::fabs(x); };
  std::function<float(float)> encode = [](float amax) { return 2688.0f / amax; };
  std::function<std::uint8_t(float)> code = [](float v) { return Nearest(v, ToEven); };
  std::function<std::size_t(std::size_t r, std::size_t j, std::size_t blocks)> scale_at =
      [](std::size_t r, std::size_t j, std::size_t blocks) { return r * blocks + j; };
  int low_shift = 0;  // shift of the even column's nibble
  bool columns = false;
};

StoredMatrix Quantize(const Matrix<float>& x, const Parts& parts) {
  const std::size_t rows = parts.columns ? x.cols : x.rows, cols = parts.columns ? x.rows : x.cols;
  const auto at = [&](std::size_t r, std::size_t c) { return parts.columns ? x(c, r) : x(r, c); };
  float amax = 0;
  for (const float v : x.values) amax = std::max(amax, std::fabs(v));
  const float encode = parts.encode(amax), decode = 1.0f / encode;
  StoredMatrix out{.rows = x.rows, .cols = x.cols, .layout = {}};
  out.codes.assign(rows * cols / 2, 0);
  out.scales.assign(rows * cols / 16, 0);
  out.tensor_scale = {amax};
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t j = 0; j < cols / 16; ++j) {
      float b = 0;
      for (std::size_t c = 0; c < 16; ++c) b = std::max(b, parts.magnitude(at(r, 16 * j + c)));
      const std::uint8_t byte = NearestE4m3(b * (encode * (1.0f / 6.0f)));
      const std::size_t place = parts.scale_at(r, j, cols / 16);
      if (place < out.scales.size()) out.scales[place] = byte;
      const float e = std::min(1.0f / (E4m3(byte) * decode), 3.402823466e38f);
      for (std::size_t c = 0; c < 16; ++c) {
        const std::size_t i = r * cols + 16 * j + c;
        const int shift = i % 2 == 0 ? parts.low_shift : 4 - parts.low_shift;
        out.codes[i / 2] |= static_cast<std::uint8_t>(parts.code(at(r, 16 * j + c) * e) << shift);
      }
    }
  }
  return out;
}

void CheckCause(const Matrix<float>& x, const Parts& parts, const std::string& cause) {
  const Kernel kernel{.dialect = *FindDialect("nvfp4.te"), .layout = {}};
  const Explanation e = Explain(kernel, x.View(), Quantize(x, parts));
  CAPTURE(cause, Text(kernel, e));
  CHECK_FALSE(e.equal);
  bool named = false;
  for (const Cause& c : e.causes.exact) named = named || Name(c) == cause;
  CHECK(named);
}

TEST_CASE("The plain loops without an error are nvfp4.te", "[judge]") {
  const Kernel kernel{.dialect = *FindDialect("nvfp4.te"), .layout = {}};
  const Matrix<float> x = RandomMatrix(31, 64, 64, 8, -6, 9);
  CHECK(Explain(kernel, x.View(), Quantize(x, {})).equal);
}

TEST_CASE("Explain finds what is wrong with kernels that it has never seen", "[judge]") {
  const Matrix<float> x = RandomMatrix(32, 64, 64, 8, -6, 9);
  const Matrix<float> ties = TieMatrix(64, 64);
  Parts p;
  p.code = [](float v) { return Nearest(v, Away); };
  CheckCause(ties, p, "ties-away");
  p = {};
  p.code = [](float v) {
    std::uint8_t code = 0;
    while (code < 7 && kGrid[code + 1] <= std::fabs(v)) ++code;
    return static_cast<std::uint8_t>(code | (std::signbit(v) ? 8 : 0));
  };
  CheckCause(x, p, "truncation");
  p = {};
  p.low_shift = 4;
  CheckCause(x, p, "codes-high-first");
  p = {};
  p.encode = [](float) { return 1.0f; };
  CheckCause(x, p, "tensor-scale-missing");
  p = {};
  p.magnitude = [](float v) { return v; };
  CheckCause(x, p, "block-amax-without-abs");
  p = {};
  p.scale_at = [](std::size_t r, std::size_t j, std::size_t blocks) { return r * blocks + j + 1; };
  CheckCause(x, p, "scales-shifted");
  p = {};
  p.code = [](float v) { return Nearest(ToBf16(v), ToEven); };
  CheckCause(x, p, "scaled-bf16");
  p = {};
  p.columns = true;
  CheckCause(x, p, "input-transposed");
  p = {};
  p.scale_at = [](std::size_t r, std::size_t j, std::size_t) { return j * 64 + r; };
  CheckCause(x, p, "scales-transposed");
  p = {};
  p.code = [](float v) { return static_cast<std::uint8_t>(Nearest(v, ToEven) & 7); };
  CheckCause(x, p, "sign-dropped");
}

TEST_CASE("An MXFP4 kernel with the exponent rounded up is told from FLOOR", "[judge]") {
  const Matrix<float> x = RandomMatrix(33, 48, 96, 8, -6, 9);
  StoredMatrix out{
      .rows = 48, .cols = 96, .scale = FormatId::kE8M0, .block_cols = 32, .layout = {}};
  for (std::size_t i = 0; i < x.values.size(); i += 32) {
    float b = 0;
    for (std::size_t k = 0; k < 32; ++k) b = std::max(b, std::fabs(x.values[i + k]));
    const int exponent = static_cast<int>(std::ceil(std::log2(double{b}))) - 2;
    out.scales.push_back(static_cast<std::uint8_t>(exponent + 127));
    for (std::size_t k = 0; k < 32; k += 2) {
      const float low = std::ldexp(x.values[i + k], -exponent);
      const float high = std::ldexp(x.values[i + k + 1], -exponent);
      out.codes.push_back(
          static_cast<std::uint8_t>(Nearest(low, ToEven) | Nearest(high, ToEven) << 4));
    }
  }
  const Kernel kernel{.dialect = *FindDialect("mxfp4.floor"), .layout = {}};
  const Explanation e = Explain(kernel, x.View(), out);
  REQUIRE_FALSE(e.causes.exact.empty());
  bool named = false;
  for (const Cause& c : e.causes.exact) named = named || Name(c) == "mx-ceil";
  CHECK(named);
}

}  // namespace
}  // namespace fp4lab
