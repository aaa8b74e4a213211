// Every kernel of block/ gives the scalar reference's bytes on every SIMD target.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "fp4lab/base/simd/simd.h"
#include "fp4lab/block/quantize.h"
#include "tests/block/cases.h"
#include "tests/support/catch.h"
#include "tests/support/least_targets.h"
#include "tests/support/packed.h"

namespace fp4lab {
namespace {

// Runs `body` on every SIMD target with one thread and, if threads_too, on the best target with 2
// and 3 threads as well; restores the defaults. The units of work do not depend on the target, so
// one target suffices to vary the threads.
template <class Body>
void OnEveryTarget(bool threads_too, Body body) {
  const int threads = Threads();
  REQUIRE(SimdTargets().size() >= kLeastTargets);
  for (const std::string& target : SimdTargets()) {
    PinSimdTarget(target);
    const bool vary = threads_too && target == SimdTargets().front();
    for (const int n : vary ? std::vector{1, 2, 3} : std::vector{1}) {
      SetThreads(n);
      INFO("target " << target << ", threads " << n);
      body();
    }
  }
  SetThreads(threads);
  PinSimdTarget("best");
}

std::vector<std::pair<std::size_t, std::size_t>> Shapes() {
  return {{1, 1}, {1, 16}, {3, 17}, {16, 16}, {33, 47}, {5, 200}, {128, 24}, {6, 1100}, {300, 136}};
}

// Checks codes, scales and values of one quantization of `memory` or of its transpose; values in
// place and in a matrix whose row stride exceeds its width.
void CheckQuantizers(const Matrix<float>& memory, bool transposed, const QuantizeOptions& options) {
  const auto view_of = [&](auto view) { return transposed ? view.Transposed() : view; };
  const MatrixView<const float> x = view_of(memory.View());
  const Quantized want = reference::Quantize(x, options);
  Matrix<float> want_values(memory.rows, memory.cols);
  reference::BlockScaledValues(options.dialect, want, view_of(want_values.View()));
  const std::vector<std::uint32_t> want_bits = BitsOf(want_values);
  Matrix<float> wide(memory.rows, memory.cols + 3, -1.0f);
  // Small matrices are one group of units, whatever the number of threads.
  OnEveryTarget(memory.rows > 128, [&] {
    const Quantized got = Quantize(x, options);
    const bool same_scales = got.scales == want.scales, same_codes = got.codes == want.codes;
    CHECK(same_scales);
    CHECK(same_codes);
    Matrix<float> values = memory;  // in place
    QuantizeToValues(view_of(std::as_const(values).View()), options, view_of(values.View()));
    const bool same_values = BitsOf(values) == want_bits;
    CHECK(same_values);
    const MatrixView<float> inner = wide.View().Block(0, 1, memory.rows, memory.cols);
    QuantizeToValues(x, options, view_of(inner));
    bool same_inner = true;
    for (std::size_t r = 0; r < memory.rows; ++r) {
      for (std::size_t c = 0; c < memory.cols; ++c) {
        same_inner &= std::bit_cast<std::uint32_t>(inner(r, c)) == want_bits[r * memory.cols + c];
      }
      same_inner &= wide(r, 0) == -1.0f && wide(r, memory.cols + 1) == -1.0f;
    }
    CHECK(same_inner);
  });
}

TEST_CASE("Quantizers give the reference's codes, scales and values on every target",
          "[block][differential]") {
  for (const Dialect& format : TestDialects()) {
    for (const ElementRounding rounding :
         {ElementRounding::kNearestEven, ElementRounding::kTowardZero,
          ElementRounding::kStochastic16}) {
      for (const auto& [rows, cols] : Shapes()) {
        for (const Kind kind : kKinds) {
          if (rows * cols > 10000 && kind != Kind::kNormal) continue;
          // Scales do not depend on the element rounding: one kind of input suffices for
          // truncation.
          if (rounding == ElementRounding::kTowardZero && kind != Kind::kAnyBits) continue;
          const Matrix<float> x = TestMatrix(kind, rows, cols);
          for (const bool transposed : {false, true}) {
            INFO(format.name << " " << rows << "x" << cols << " kind " << static_cast<int>(kind)
                             << " rounding " << static_cast<int>(rounding)
                             << (transposed ? " transposed" : ""));
            CheckQuantizers(x, transposed,
                            {.dialect = WithRounding(format, rounding),
                             .random = {.seed = 0x123456789ABCDEF0u, .step = 3, .tensor = 9},
                             .amax = reference::TensorAmax(x.View())});
          }
        }
      }
    }
  }
}

TEST_CASE("Stochastic rounding with 32 bits gives the reference's bytes on every target",
          "[block][differential]") {
  for (const char* name : {"nvfp4", "nvfp4.2d", "mxfp4.rceil", "mxfp6_e2m3.floor",
                           "mxfp8_e4m3.floor", "mxfp8_e5m2.even", "fp8_e4m3"}) {
    for (const auto& [rows, cols] : {std::pair{3, 17}, {33, 47}, {24, 200}, {160, 144}}) {
      for (const Kind kind : kKinds) {
        if (rows == 160 && kind != Kind::kNormal) continue;
        const Matrix<float> x = TestMatrix(kind, rows, cols);
        for (const bool transposed : {false, true}) {
          INFO(name << " " << rows << "x" << cols << " kind " << static_cast<int>(kind)
                    << (transposed ? " transposed" : ""));
          CheckQuantizers(
              x, transposed,
              {.dialect = WithRounding(*FindDialect(name), ElementRounding::kStochastic32),
               .random = {.seed = 0x123456789ABCDEF0u, .step = 3, .tensor = 9},
               .amax = reference::TensorAmax(x.View())});
        }
      }
    }
  }
}

TEST_CASE("16-bit stochastic rounding goes up exactly from 1 - R / 2^16 of a step, on every target",
          "[block][differential]") {
  // Element i lies between the neighbours `from` and `from + step` of the element format, at the
  // fraction (2^16 - R_i) / 2^16 of the step (R_i: its 16 random bits), where the carry begins, or
  // one binary32 ulp below.
  for (const char* name : {"mxfp4.floor", "mxfp6_e2m3.floor", "mxfp6_e3m2.floor",
                           "mxfp8_e4m3.floor", "mxfp8_e5m2.floor"}) {
    const Dialect format = *FindDialect(name);
    const Format& element = FormatOf(format.element);
    const QuantizeOptions options{.dialect = WithRounding(format, ElementRounding::kStochastic16),
                                  .random = {.seed = 21}};
    for (const std::uint32_t low : {0u, 1u, 1u << element.mantissa_bits, 3u}) {
      const float from = Decode(element, low), step = Decode(element, low + 1) - from;
      for (const bool below : {false, true}) {
        Matrix<float> x(16, 64);
        std::vector<std::uint32_t> want(x.values.size());
        for (std::size_t i = 0; i < x.values.size(); ++i) {
          const float fraction = static_cast<float>(65536 - options.random.Bits16(i)) * 0x1p-16f;
          const float at = from + step * fraction;
          x.values[i] = below ? std::bit_cast<float>(std::bit_cast<std::uint32_t>(at) - 1) : at;
          want[i] = std::bit_cast<std::uint32_t>(below ? from : from + step);
          if (i % 32 == 0) x.values[i] = MaxFinite(format.element);  // makes the block's scale 1
          if (i % 32 == 0) want[i] = std::bit_cast<std::uint32_t>(MaxFinite(format.element));
        }
        INFO(name << " above code " << low << (below ? ", just below" : ", at") << " the carry");
        OnEveryTarget(false, [&] {
          Matrix<float> y(x.rows, x.cols);
          QuantizeToValues(x.View(), options, y.View());
          const bool same = BitsOf(y) == want;
          CHECK(same);
          BlockScaledValues(options.dialect, Quantize(x.View(), options), y.View());
          const bool same_codes = BitsOf(y) == want;
          CHECK(same_codes);
        });
      }
    }
  }
}

TEST_CASE("32-bit stochastic rounding rounds up when discarded fraction plus random bits reach one",
          "[block]") {
  // Element 0 of each block is 4.0, which makes the block scale 1; the other elements lie within
  // the first step, [0, 1/2].
  const QuantizeOptions with32{
      .dialect = WithRounding(*FindDialect("mxfp4.floor"), ElementRounding::kStochastic32),
      .random = {.seed = 33}};
  Matrix<float> x(4, 32), y(4, 32);
  for (const bool below : {false, true}) {
    for (std::size_t i = 0; i < x.values.size(); ++i) {  // the upper 23 bits of `least`
      const std::uint32_t least = 0u - with32.random.Bits32(i);
      const float up = std::ldexp(static_cast<float>((least >> 9) + 1), -24);
      const float down = std::ldexp(static_cast<float>(least >> 9), -24);
      x.values[i] = i % 32 == 0 ? 4.0f : below ? down : up;
    }
    OnEveryTarget(false, [&] {
      const auto check = [&] {
        for (std::size_t i = 0; i < y.values.size(); ++i) {
          if (i % 32 != 0) CHECK(y.values[i] == (below ? 0.0f : 0.5f));
        }
      };
      QuantizeToValues(x.View(), with32, y.View());
      check();
      BlockScaledValues(with32.dialect, Quantize(x.View(), with32), y.View());
      check();
    });
  }
}

TEST_CASE("TensorAmax ignores NaN and gives the reference's bits on every target",
          "[block][differential]") {
  for (const auto& [rows, cols] : Shapes()) {
    for (const Kind kind : kKinds) {
      const Matrix<float> x = TestMatrix(kind, rows, cols);
      Matrix<float> spread(rows, 2 * cols);  // no unit stride in either direction
      for (std::size_t i = 0; i < x.values.size(); ++i) spread.values[2 * i] = x.values[i];
      const MatrixView<const float> strided(spread.values.data(), rows, cols, 2 * cols, 2);
      const float want = reference::TensorAmax(x.View());
      OnEveryTarget(true, [&] {
        CHECK(TensorAmax(x.View()) == want);
        CHECK(TensorAmax(x.View().Transposed()) == want);
        CHECK(TensorAmax(strided) == want);
      });
    }
  }
  CHECK(TensorAmax(MatrixView<const float>()) == 0.0f);
}

void CheckBothWays(const Dialect& format, const Matrix<float>& x, bool transposed) {
  const QuantizeOptions nearest{.dialect = format, .amax = reference::TensorAmax(x.View())};
  QuantizeOptions random = nearest;
  random.dialect.rounding = ElementRounding::kStochastic16;
  const MatrixView<const float> view = transposed ? x.View().Transposed() : x.View();
  for (const QuantizeOptions& columns : {random, nearest}) {
    const Quantized want = reference::Quantize(view, nearest);
    const Quantized want_turned = reference::Quantize(view.Transposed(), columns);
    OnEveryTarget(x.rows == 130, [&] {
      Quantized got, turned;
      QuantizeBothWays(view, nearest, columns, &got, &turned);
      const bool same = got == want, same_turned = turned == want_turned;
      CHECK(same);
      CHECK(same_turned);
    });
  }
}

TEST_CASE("QuantizeBothWays equals rowwise plus columnwise quantization on every target",
          "[block][differential]") {
  for (const char* name : {"nvfp4", "nvfp4.2d", "mxfp4.rceil", "mxfp8_e4m3.floor", "fp8_e4m3"}) {
    for (const auto& [rows, cols] :
         {std::pair{1, 1}, {33, 47}, {16, 300}, {130, 144}, {200, 64}, {140, 1100}}) {
      for (const Kind kind : {Kind::kNormal, Kind::kAnyBits}) {
        for (const bool transposed : {false, true}) {
          INFO(name << " " << rows << "x" << cols << " kind " << static_cast<int>(kind)
                    << (transposed ? " transposed" : ""));
          CheckBothWays(*FindDialect(name), TestMatrix(kind, rows, cols), transposed);
        }
      }
    }
  }
}

// Random bytes as codes and scales.
Quantized AnyCodes(const Dialect& format, std::size_t rows, std::size_t cols) {
  Quantized q = Quantize(Matrix<float>(rows, cols).View(), {.dialect = format, .amax = 3.5f});
  const RandomStream stream{.seed = 3};
  const unsigned mask = FormatOf(format.element).bits == 6 ? 0x3F : 0xFF;
  // The product of a NaN element and a NaN scale may take the sign of either, so formats with NaN
  // codes get no NaN scales here; quantizers do not write NaNs of both signs.
  const bool has_nan = FormatOf(format.element).specials != Specials::kNone;
  for (std::size_t i = 0; i < q.codes.size(); ++i) {
    q.codes[i] = static_cast<std::uint8_t>(stream.Bits8(i) & mask);
  }
  for (std::size_t i = 0; i < q.scales.size(); ++i) {
    const std::uint32_t byte = stream.Bits8(i + 1000000);
    q.scales[i] = static_cast<std::uint8_t>(byte == 0xFF && has_nan ? 0 : byte);
  }
  return q;
}

TEST_CASE("Codes decode to the reference's values, scaled and unscaled, in any layout",
          "[block][differential]") {
  for (const Dialect& format : TestDialects()) {
    for (const auto& [rows, cols] : {std::pair{1, 1}, {33, 47}, {128, 160}}) {
      INFO(format.name << " " << rows << "x" << cols);
      const Quantized q = AnyCodes(format, rows, cols);
      Matrix<float> want(rows, cols), want_unscaled(rows, cols);
      reference::Dequantize(format, q, want.View());
      reference::BlockScaledValues(format, q, want_unscaled.View());
      OnEveryTarget(rows == 128, [&, rows = rows, cols = cols] {
        Matrix<float> got(rows, cols), turned(cols, rows), back(rows, cols);
        Dequantize(format, q, got.View());
        const bool same = BitsOf(got) == BitsOf(want);
        CHECK(same);
        Dequantize(format, q, turned.View().Transposed());
        for (std::size_t i = 0; i < back.values.size(); ++i) {
          back.values[i] = turned(i % back.cols, i / back.cols);
        }
        const bool same_turned = BitsOf(back) == BitsOf(want);
        CHECK(same_turned);
        BlockScaledValues(format, q, got.View());
        const bool same_unscaled = BitsOf(got) == BitsOf(want_unscaled);
        CHECK(same_unscaled);
      });
    }
  }
}

TEST_CASE("Quantize into a result of another shape overwrites all of its contents", "[block]") {
  Quantized q;
  for (const Dialect& format : TestDialects()) {
    for (const auto& [rows, cols] : {std::pair{40, 63}, {3, 2085}, {1, 1}, {0, 16}, {64, 64}}) {
      const Matrix<float> x = TestMatrix(Kind::kAnyBits, rows, cols);
      const QuantizeOptions options{.dialect = format, .amax = reference::TensorAmax(x.View())};
      INFO(format.name << " " << rows << "x" << cols);
      std::fill(q.codes.begin(), q.codes.end(), std::uint8_t{0xFF});
      std::fill(q.scales.begin(), q.scales.end(), std::uint8_t{0xFF});
      Quantize(x.View(), options, &q);
      const bool same = q == reference::Quantize(x.View(), options);
      CHECK(same);
    }
  }
}

TEST_CASE("QuantizeToValues takes input and output of any strides", "[block]") {
  const Matrix<float> x = TestMatrix(Kind::kNormal, 40, 56);
  const QuantizeOptions options{
      .dialect = WithRounding(*FindDialect("nvfp4"), ElementRounding::kStochastic16),
      .amax = TensorAmax(x.View())};
  Matrix<float> want(40, 56), turned(56, 40), spread(40, 2 * 56);
  QuantizeToValues(x.View(), options, want.View());
  QuantizeToValues(x.View(), options, turned.View().Transposed());
  const MatrixView<float> strided(spread.values.data(), 40, 56, 2 * 56, 2);
  QuantizeToValues(x.View(), options, strided);
  Matrix<float> again(40, 56);
  bool same = true;
  for (std::size_t r = 0; r < 40; ++r) {
    for (std::size_t c = 0; c < 56; ++c) {
      same &= turned(c, r) == want(r, c) && strided(r, c) == want(r, c);
    }
  }
  CHECK(same);
  QuantizeToValues(strided, options, again.View());  // again; the input has no unit stride
  Matrix<float> twice(40, 56);
  QuantizeToValues(std::as_const(want).View(), options, twice.View());
  CHECK(BitsOf(again) == BitsOf(twice));
}

}  // namespace
}  // namespace fp4lab
