// The fused functions give the bytes of the transform followed by the quantizer.
#include "fp4lab/transform/hadamard_quantize.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "fp4lab/base/random.h"
#include "fp4lab/base/simd/simd.h"
#include "tests/support/catch.h"
#include "tests/support/least_targets.h"
#include "tests/support/packed.h"

namespace fp4lab {
namespace {

// BF16 values, mostly of a few binades, some of many; with `any_bits`, NaN and Inf, too.
Matrix<float> Bf16Matrix(std::size_t rows, std::size_t cols, bool any_bits) {
  const RandomStream stream{.seed = 11, .step = any_bits ? 1u : 0u};
  Matrix<float> x(rows, cols);
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const PhiloxBlock r = stream.Block(i);
    const std::uint32_t any = any_bits ? r[1] % 256 : 60 + r[1] % 100;
    const std::uint32_t exponent = r[2] % 97 == 0 ? any : 118 + r[1] % 10;
    const std::uint32_t zero = r[3] % 13 == 0 ? 0x80000000u : 0xFFFFFFFFu;
    x.values[i] = std::bit_cast<float>(((r[0] & 0x807F0000u) | exponent << 23) & zero);
  }
  return x;
}

std::vector<std::uint32_t> BitsOf(const Matrix<float>& m) {
  std::vector<std::uint32_t> bits;
  for (const float x : m.values) bits.push_back(std::bit_cast<std::uint32_t>(x));
  return bits;
}

template <class Body>
void OnEveryTarget(Body body) {
  const int threads = Threads();
  REQUIRE(SimdTargets().size() >= kLeastTargets);
  for (const std::string& target : SimdTargets()) {
    PinSimdTarget(target);
    for (const int n : target == SimdTargets().front() ? std::vector{1, 2, 3} : std::vector{1}) {
      SetThreads(n);
      INFO("target " << target << ", threads " << n);
      body();
    }
  }
  SetThreads(threads);
  PinSimdTarget("best");
}

// x and results lie in memory as rows, or as columns (`transposed`).
struct Case {
  const Matrix<float>& memory;
  bool transposed;
  HadamardTransform transform;
  template <class M>
  auto View(M& m) const {
    return transposed ? m.View().Transposed() : m.View();
  }
  MatrixView<const float> X() const { return View(memory); }
};

void CheckIntegers(const Case& c, MatrixView<const float> y, const QuantizeOptions& options) {
  const auto n = static_cast<std::size_t>(options.dialect.block_cols);
  const auto m = static_cast<std::size_t>(options.dialect.block_rows);
  const std::size_t rows = (y.rows + m - 1) / m, cols = (y.cols + n - 1) / n;
  const auto make = [&] {
    return std::pair{Matrix<std::uint8_t>(c.memory.rows, c.memory.cols),
                     Matrix<float>(c.transposed ? cols : rows, c.transposed ? rows : cols)};
  };
  auto want = make();
  const bool exact =
      reference::QuantizeToFp4Integers(y, options, {c.View(want.first), c.View(want.second)});
  OnEveryTarget([&] {
    auto got = make();
    const Fp4Integers out{c.View(got.first), c.View(got.second)};
    CHECK(HadamardQuantizeToFp4Integers(c.X(), c.transform, options, out) == exact);
    const bool same = got.first == want.first && BitsOf(got.second) == BitsOf(want.second);
    CHECK(same);
    auto again = make();
    const Fp4Integers to{c.View(again.first), c.View(again.second)};
    QuantizeOptions finds_amax = options;
    finds_amax.amax.reset();
    WordBuffer memory;
    CHECK(HadamardQuantizeToFp4Integers(c.X(), c.transform, &finds_amax, to, &memory) == exact);
    CHECK(finds_amax.amax == options.amax);
    const bool same_again =
        again.first == want.first && BitsOf(again.second) == BitsOf(want.second);
    CHECK(same_again);
  });
}

void CheckFused(const Case& c, const QuantizeOptions& options) {
  Matrix<float> y(c.memory.rows, c.memory.cols), want_values = y;
  reference::RandomHadamard(c.X(), c.transform, c.View(y));
  const MatrixView<const float> transformed = c.View(y);
  QuantizeOptions with_amax = options;
  with_amax.amax = reference::TensorAmax(transformed);
  const Quantized want = reference::Quantize(transformed, with_amax);
  reference::BlockScaledValues(options.dialect, want, c.View(want_values));
  OnEveryTarget([&] {
    CHECK(HadamardAmax(c.X(), c.transform) == with_amax.amax);
    Quantized got;
    HadamardQuantize(c.X(), c.transform, with_amax, &got);
    const bool same_codes = got == want;
    CHECK(same_codes);
    Quantized finds_amax;
    HadamardQuantize(c.X(), c.transform, options, &finds_amax);
    const bool same_amax = finds_amax == want;
    CHECK(same_amax);
    Matrix<float> values = c.memory;  // in place
    HadamardQuantizeToValues(c.View(std::as_const(values)), c.transform, with_amax, c.View(values));
    const bool same_values = BitsOf(values) == BitsOf(want_values);
    CHECK(same_values);
  });
  if (HasFp4Integers(options.dialect)) CheckIntegers(c, transformed, with_amax);
}

TEST_CASE("Transform and quantizer in one are the two one after the other, on every target",
          "[transform][differential]") {
  std::vector<std::pair<std::string, Dialect>> formats;
  for (const char* name :
       {"nvfp4", "nvfp4.2d", "mxfp4.rceil", "mxfp4.even.2d", "mxfp8_e4m3.floor", "fp8_e4m3"}) {
    formats.emplace_back(name, *FindDialect(name));
  }
  formats.emplace_back("blocks of 24", DialectUnder(BlockScale::kFloor, FormatId::kE2M1, 3, 24));
  formats.emplace_back("blocks of 128",
                       DialectUnder(BlockScale::kFolded, FormatId::kE2M1, 128, 128));
  for (const auto& [name, format] : formats) {
    for (const int size : {16, 32}) {
      for (const ElementRounding rounding :
           {ElementRounding::kNearestEven, ElementRounding::kStochastic16}) {
        for (const auto& [rows, cols] : {std::pair{1, 32}, {37, 96}, {64, 160}}) {
          for (const bool any_bits : {false, true}) {
            for (const bool transposed : {false, true}) {
              INFO(name << " size " << size << " rounding " << static_cast<int>(rounding) << " "
                        << rows << "x" << cols << (any_bits ? " any bits" : "")
                        << (transposed ? " transposed" : ""));
              const Matrix<float> memory =
                  transposed ? Bf16Matrix(cols, rows, any_bits) : Bf16Matrix(rows, cols, any_bits);
              CheckFused({memory, transposed, {size, TeHadamardSigns()}},
                         {.dialect = WithRounding(format, rounding), .random = {.seed = 17}});
            }
          }
        }
      }
    }
  }
}

TEST_CASE("Every size and any signs are fused with the bytes of the two parts", "[transform]") {
  for (const char* name : {"nvfp4", "nvfp4.2d", "mxfp4.rceil", "mxfp8_e4m3.floor", "fp8_e4m3"}) {
    for (const int size : kHadamardSizes) {
      for (const bool any_bits : {false, true}) {
        for (const bool transposed : {false, true}) {
          INFO(name << " size " << size << (any_bits ? " any bits" : "")
                    << (transposed ? " transposed" : ""));
          const std::size_t rows = 19, cols = size < 64 ? 7 * 32 : 2 * 128;
          const Matrix<float> memory =
              transposed ? Bf16Matrix(cols, rows, any_bits) : Bf16Matrix(rows, cols, any_bits);
          CheckFused({memory, transposed, {size, RandomHadamardSigns({.seed = 23})}},
                     {.dialect = WithRounding(*FindDialect(name),
                                              any_bits ? ElementRounding::kStochastic16
                                                       : ElementRounding::kNearestEven),
                      .random = {.seed = 17}});
        }
      }
    }
  }
  // Blocks and pieces of work that cut through groups.
  const Dialect blocks = DialectUnder(BlockScale::kFloor, FormatId::kE2M1, 3, 24);
  for (const int size : kHadamardSizes) {
    for (const bool transposed : {false, true}) {
      INFO("blocks of 24, size " << size << (transposed ? " transposed" : ""));
      const Matrix<float> memory =
          transposed ? Bf16Matrix(1152, 5, false) : Bf16Matrix(5, 1152, false);
      CheckFused({memory, transposed, {size, RandomHadamardSigns({.seed = 23})}},
                 {.dialect = blocks, .random = {.seed = 17}});
    }
  }
}

TEST_CASE("Rows longer than a piece of work are transformed and quantized whole",
          "[transform][differential]") {
  const Matrix<float> memory = Bf16Matrix(128, 1100, true);
  for (const int size : kHadamardSizes) {
    INFO("size " << size);
    CheckFused({memory, true, {size, TeHadamardSigns()}},
               {.dialect = *FindDialect("nvfp4"), .random = {.seed = 17}});
  }
}

TEST_CASE("Input and output of the fused functions may lie in memory in different ways",
          "[transform]") {
  const Matrix<float> x = Bf16Matrix(48, 64, false);
  Matrix<float> y(48, 64), turned(64, 48), spread(48, 128), want(48, 64), got(48, 64);
  for (std::size_t i = 0; i < x.values.size(); ++i) spread.values[2 * i] = x.values[i];
  const MatrixView<const float> strided(spread.values.data(), 48, 64, 128, 2);
  RandomHadamard(x.View(), 16, kTeSignMask16, y.View());
  const QuantizeOptions options{.dialect = *FindDialect("nvfp4"),
                                .amax = HadamardAmax(strided, 16, kTeSignMask16)};
  CHECK(options.amax == TensorAmax(y.View()));
  QuantizeToValues(y.View(), options, want.View());
  HadamardQuantizeToValues(x.View(), 16, kTeSignMask16, options, turned.View().Transposed());
  HadamardQuantizeToValues(strided, 16, kTeSignMask16, options, got.View());
  CHECK(BitsOf(got) == BitsOf(want));
  bool same = true;
  for (std::size_t i = 0; i < want.values.size(); ++i) {
    same &= want.values[i] == turned(i % 64, i / 64);
  }
  CHECK(same);
  Quantized q;
  HadamardQuantize(strided, 16, kTeSignMask16, options, &q);
  const bool same_codes = q == reference::Quantize(y.View(), options);
  CHECK(same_codes);
  CHECK(HadamardAmax(MatrixView<const float>(), 16, kTeSignMask16) == 0.0f);
  CHECK_THROWS(HadamardAmax(x.View().Block(0, 0, 48, 60), 16, kTeSignMask16));
  for (const int size : {0, 24, 256}) {
    INFO("size " << size);
    CHECK_THROWS(HadamardAmax(x.View(), {size, {}}));
    CHECK_THROWS(HadamardQuantize(x.View(), {size, {}}, options, &q));
  }
  CHECK_THROWS(HadamardQuantize(x.View(), 8, kTeSignMask16, options, &q));
}

}  // namespace
}  // namespace fp4lab
