// TeQuantize's kernels give the bytes of its scalar definition on every SIMD target and for any
// number of threads.
#include "fp4lab/te/quantize.h"

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/base/random.h"
#include "fp4lab/base/simd/simd.h"
#include "fp4lab/te/implementation.h"
#include "fp4lab/transform/hadamard_transform.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Shape {
  std::size_t rows, cols;
};
constexpr Shape kShapes[] = {{16, 16}, {64, 128}, {192, 144}, {128, 384}, {80, 32}};

// BF16 bits of a few binades, with zeros and, if `special`, any bits at all: NaN, Inf, subnormals.
std::vector<std::uint16_t> Bf16Bits(const Shape& shape, bool special) {
  const RandomStream stream{.seed = 5, .step = special ? 1u : 0u};
  std::vector<std::uint16_t> bits(shape.rows * shape.cols);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    const PhiloxBlock r = stream.Block(i);
    const std::uint32_t exponent = 118 + r[1] % 10;
    std::uint32_t x = (r[0] & 0x807Fu) | exponent << 7;
    if (r[2] % 11 == 0) x &= 0x8000u;
    if (special && r[3] % 37 == 0) x = r[3] >> 16;
    bits[i] = static_cast<std::uint16_t>(x);
  }
  return bits;
}

struct Bytes {
  std::vector<std::uint8_t> codes, scales;
  friend bool operator==(const Bytes&, const Bytes&) = default;
};
struct Both {
  Bytes rows, columns;
  friend bool operator==(const Both&, const Both&) = default;
};

using Quantizer = std::function<void(const TeMatrix&, const TeQuantization&)>;

// The quantizer of a row of the table, or of the definition where the row cannot make the call.
Quantizer QuantizerOf(const Implementation<TeRequest>& row) {
  return [&row](const TeMatrix& x, const TeQuantization& call) {
    const TeRequest request{x, call};
    row.why_not(request).empty() ? void(row.make(request)) : reference::TeQuantize(x, call);
  };
}

// The outputs that the call asks for; padding of the scales holds 0xAA.
Both Run(const Quantizer& quantize, const TeMatrix& x, TeQuantization call, bool rows,
         bool columns) {
  Both out;
  const auto prepare = [](Bytes* bytes, std::size_t lines, std::size_t length, TeOutput* output) {
    bytes->codes.resize(lines * length / 2);
    output->scale_stride = RoundUp(length / 16, 4);
    bytes->scales.assign(lines * output->scale_stride, 0xAA);
    output->codes = bytes->codes.data();
    output->scales = bytes->scales.data();
  };
  if (rows) prepare(&out.rows, x.rows, x.cols, &call.rows);
  if (columns) prepare(&out.columns, x.cols, x.rows, &call.columns);
  quantize(x, call);
  return out;
}

void CheckAll(const TeMatrix& x, const TeQuantization& call) {
  for (const bool rows : {true, false}) {
    for (const bool columns : {true, false}) {
      CAPTURE(x.rows, x.cols, call.square, call.hadamard, call.stochastic, rows, columns,
              call.rows.amax, call.columns.amax);
      const Both expected = Run(reference::TeQuantize, x, call, rows, columns);
      CHECK(Run(TeQuantize, x, call, rows, columns) == expected);
      for (const auto& row : TeImplementations()) {
        CAPTURE(row.name);
        CHECK(Run(QuantizerOf(row), x, call, rows, columns) == expected);
      }
    }
  }
}

template <class Body>
void OnEveryTarget(Body body) {
  for (const std::string& target : SimdTargets()) {
    CAPTURE(target);
    PinSimdTarget(target);
    body();
  }
  PinSimdTarget("best");
}

std::vector<TeQuantization> Calls() {
  std::vector<TeQuantization> calls;
  calls.push_back({});
  calls.push_back({.square = true});
  calls.push_back({.square = true, .stochastic = true, .seed = 9, .offset = 0x1FFFFFFFF});
  calls.push_back({.hadamard = true, .sign_mask = kTeSignMask16});
  calls.push_back({.stochastic = true, .seed = 0x123456789ABCDEF0, .offset = 0xFFFFFFFFFFFFFFFE});
  calls.push_back({.hadamard = true,
                   .sign_mask = kTeSignMask16,
                   .stochastic = true,
                   .seed = 77,
                   .offset = 0x100000000});
  return calls;
}

TEST_CASE("The kernels give the bytes of the definition", "[te][differential]") {
  OnEveryTarget([] {
    for (const Shape& shape : kShapes) {
      for (const bool special : {false, true}) {
        const std::vector<std::uint16_t> bits = Bf16Bits(shape, special);
        const TeMatrix x{.bf16 = bits.data(), .rows = shape.rows, .cols = shape.cols};
        for (TeQuantization call : Calls()) {
          reference::TeAmaxes(x, kTeSignMask16, &call.rows.amax, &call.columns.amax);
          if (!call.hadamard) call.columns.amax = call.rows.amax;
          CheckAll(x, call);
        }
      }
    }
  });
}

TEST_CASE("Amaxes of any value have the bytes of the definition", "[te][differential]") {
  const Shape shape{64, 128};
  const std::vector<std::uint16_t> bits = Bf16Bits(shape, true);
  const TeMatrix x{.bf16 = bits.data(), .rows = shape.rows, .cols = shape.cols};
  for (const float amax :
       {0.0f, 1e-40f, 1e-36f, 0.3f, 2688.0f, 1e30f, 3e38f, kInf, std::nanf("")}) {
    for (TeQuantization call : Calls()) {
      call.rows.amax = call.columns.amax = amax;
      CheckAll(x, call);
    }
  }
}

TEST_CASE("Binary32 input takes the generic kernel's words", "[te][differential]") {
  const Shape shape{64, 128};
  const std::vector<std::uint16_t> bits = Bf16Bits(shape, true);
  std::vector<float> values;
  for (const std::uint16_t b : bits) {
    values.push_back(1.0009765625f * std::bit_cast<float>(std::uint32_t{b} << 16));
  }
  const TeMatrix x{.fp32 = values.data(), .rows = shape.rows, .cols = shape.cols};
  for (TeQuantization call : Calls()) {
    if (call.hadamard) continue;
    call.rows.amax = call.columns.amax = 3.25f;
    CHECK(TeLaunchOf(x, call, false).kernel == TeKernel::kGeneric);
    CheckAll(x, call);
  }
}

TEST_CASE("The launch of an output is that of Transformer Engine's dispatch", "[te]") {
  std::uint8_t codes = 0;
  const TeOutput made{.codes = &codes}, none{};
  const std::uint16_t bits = 0;
  const auto kernel = [&](std::size_t rows, bool square, bool rowwise, bool columnwise) {
    const TeMatrix x{.bf16 = &bits, .rows = rows, .cols = 64};
    const TeQuantization call{
        .square = square, .rows = rowwise ? made : none, .columns = columnwise ? made : none};
    return TeLaunchOf(x, call, columnwise).kernel;
  };
  for (const bool columnwise : {false, true}) {
    CHECK(kernel(64, false, true, columnwise) == TeKernel::kTuned);
    CHECK(kernel(64, true, true, columnwise) == TeKernel::kOpt2d);
    CHECK(kernel(48, false, true, columnwise) == TeKernel::kGeneric);
    CHECK(kernel(48, true, true, columnwise) == TeKernel::kGeneric);
  }
  CHECK(kernel(64, false, false, true) == TeKernel::kGeneric);
  CHECK(kernel(64, true, false, true) == TeKernel::kOpt2d);
}

TEST_CASE("Amaxes equal the definition's", "[te][differential]") {
  OnEveryTarget([] {
    for (const Shape& shape : kShapes) {
      const std::vector<std::uint16_t> bits = Bf16Bits(shape, shape.rows == 64);
      const TeMatrix x{.bf16 = bits.data(), .rows = shape.rows, .cols = shape.cols};
      float amax = -1, transformed = -1, expected = -1, expected_transformed = -1;
      TeAmaxes(x, kTeSignMask16, &amax, &transformed);
      reference::TeAmaxes(x, kTeSignMask16, &expected, &expected_transformed);
      CHECK(amax == expected);
      CHECK(transformed == expected_transformed);
    }
  });
}

TEST_CASE("The number of threads changes no byte", "[te]") {
  const Shape shape{1024, 640};
  const std::vector<std::uint16_t> bits = Bf16Bits(shape, false);
  const TeMatrix x{.bf16 = bits.data(), .rows = shape.rows, .cols = shape.cols};
  TeQuantization call = Calls().back();
  TeAmaxes(x, kTeSignMask16, &call.rows.amax, &call.columns.amax);
  const int threads = Threads();
  SetThreads(1);
  const Both one = Run(TeQuantize, x, call, true, true);
  SetThreads(3);
  CHECK(Run(TeQuantize, x, call, true, true) == one);
  SetThreads(threads);
}

TEST_CASE("Shapes that Transformer Engine refuses are refused", "[te]") {
  const std::vector<std::uint16_t> bits(24 * 32);
  const TeMatrix x{.bf16 = bits.data(), .rows = 24, .cols = 32};
  CHECK_THROWS_AS(TeQuantize(x, {}), std::logic_error);
}

}  // namespace
}  // namespace fp4lab
