// Operands of GEMMs: values and FP4 integers of every dialect, by the tuned and the generic
// kernels.
#include "fp4lab/quantize/operand.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "fp4lab/base/simd/simd.h"
#include "fp4lab/dialect/stages.h"
#include "fp4lab/quantize/blocks.h"
#include "fp4lab/quantize/implementation.h"
#include "fp4lab/quantize/replay.h"
#include "tests/block/cases.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

using View = MatrixView<const float>;

bool SameNumber(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) || (a != a && b != b);
}
std::size_t Differences(View a, View b) {
  std::size_t count = 0;
  for (std::size_t r = 0; r < a.rows; ++r) {
    for (std::size_t c = 0; c < a.cols; ++c) count += !SameNumber(a(r, c), b(r, c));
  }
  return count;
}

// x^T as a matrix of its own.
Matrix<float> Turned(View x) {
  Matrix<float> turned(x.cols, x.rows);
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) turned(c, r) = x(r, c);
  }
  return turned;
}

DialectOptions OptionsFor(const Dialect& d, View x, RandomGenerator generator) {
  DialectOptions options{.source = RandomSource{{.seed = 3, .step = 5, .tensor = 7}, generator}};
  options.amax = TensorAmaxes(d, x, {});
  return options;
}

void CheckValues(const Dialect& d, View x, const DialectOptions& options, View want) {
  Matrix<float> rows(x.rows, x.cols), in_place(x.rows, x.cols);
  QuantizeToValues(d, x, options, rows.View());
  CHECK(Differences(rows.View(), want) == 0);
  Matrix<float> turned = Turned(x);
  const MatrixView<float> view = turned.View().Transposed();
  QuantizeToValues(d, view, options, view);  // columns, in place
  CHECK(Differences(view, want) == 0);
  QuantizeToValues(d, x, options, turned.View().Transposed());  // from rows to columns
  CHECK(Differences(view, want) == 0);
}

void CheckIntegers(const Dialect& d, View x, const DialectOptions& options, View want) {
  const std::size_t block = static_cast<std::size_t>(d.block_cols);
  const std::size_t height = static_cast<std::size_t>(d.block_rows);
  const Matrix<float> turned = Turned(x);
  for (const View view : {x, turned.View().Transposed()}) {
    Matrix<std::uint8_t> codes(x.rows, x.cols);
    Matrix<float> scales((x.rows + height - 1) / height, (x.cols + block - 1) / block);
    if (!QuantizeToFp4Integers(d, view, options, {codes.View(), scales.View()})) continue;
    std::size_t different = 0;
    for (std::size_t r = 0; r < x.rows; ++r) {
      for (std::size_t c = 0; c < x.cols; ++c) {
        const float value =
            static_cast<float>(codes(r, c) - 12) * (0.5f * scales(r / height, c / block));
        different += value != want(r, c);  // both zeros are one integer
      }
    }
    CHECK(different == 0);
  }
}

void CheckDialect(const Dialect& d, View x, RandomGenerator generator) {
  const DialectOptions options = OptionsFor(d, x, generator);
  Matrix<float> want(x.rows, x.cols);
  reference::QuantizeToValues(d, x, options, want.View());
  CheckValues(d, x, options, want.View());
  if (HasFp4Integers(d)) CheckIntegers(d, x, options, want.View());
}

// Dialects with options that recipes add to rows of the table.
std::vector<Dialect> Additions() {
  std::vector<Dialect> out;
  const auto add = [&](const char* like, auto change) {
    Dialect d = *FindDialect(like);
    d.name = {};
    change(&d);
    out.push_back(d);
  };
  add("nvfp4.te", [](Dialect* d) { d->target = 6.0f * 16.0f / 17.0f; });
  add("nvfp4.quartet2", [](Dialect* d) { d->target = 6.072f, d->unbias = Unbias::kMsEden; });
  add("nvfp4.te", [](Dialect* d) { d->unbias = Unbias::kMsEden, d->block_cols = 8; });
  add("mxfp4.rceil", [](Dialect* d) { d->prescale = 0.75f; });
  add("mxfp4.qwix", [](Dialect* d) { d->prescale = 0.75f; });
  add("mxfp4.rceil", [](Dialect* d) {
    d->statistic = BlockStatistic::kQuest;
    d->block_scale = BlockScale::kFloorLog2Quotient;
  });
  add("nvfp4.te", [](Dialect* d) { d->scale = FormatId::kUE5M3, d->scale_max = 114688.0f; });
  add("nvfp4.qwix", [](Dialect* d) { d->element = FormatId::kE0M3; });
  for (const ScaleEncoding directed : {ScaleEncoding::kUp, ScaleEncoding::kDown}) {
    add("nvfp4.te", [directed](Dialect* d) { d->scale_encoding = directed; });
    add("nvfp4.torchao.single-level", [directed](Dialect* d) { d->scale_encoding = directed; });
  }
  for (const auto& [rows, cols] : {std::pair{1, 128}, {128, 128}, {1, 24}}) {
    add("nvfp4.qwix", [rows = rows, cols = cols](Dialect* d) {
      d->element = FormatId::kE4M3;
      d->scale_encoding = ScaleEncoding::kBinary32;
      d->block_rows = rows;
      d->block_cols = cols;
    });
  }
  add("fp8_e4m3", [](Dialect* d) { d->row_scaled = true; });
  return out;
}

std::vector<Dialect> RowsUnderEveryRounding() {
  std::vector<Dialect> rows(Dialects().begin(), Dialects().end());
  for (const Dialect& d : Additions()) rows.push_back(d);
  for (const char* name : {"nvfp4.te", "nvfp4.torchao.inference", "mxfp4.rceil", "mxfp8_e4m3.even",
                           "fp8_e5m2", "nvfp4.te.4over6.mse.256"}) {
    for (const ElementRounding rounding :
         {ElementRounding::kStochastic4, ElementRounding::kStochastic8,
          ElementRounding::kStochastic16, ElementRounding::kStochastic32,
          ElementRounding::kTowardZero}) {
      Dialect d = *FindDialect(name);
      d.rounding = rounding;
      rows.push_back(d);
    }
  }
  return rows;
}

TEST_CASE("Every dialect's values and integers are those of its codes and scales",
          "[quantize][differential]") {
  for (const std::string& target : SimdTargets()) {
    PinSimdTarget(target);
    INFO("target " << target);
    for (const Kind kind : {Kind::kNormal, Kind::kAnyBits, Kind::kTies}) {
      const Matrix<float> x = TestMatrix(kind, 35, 100);
      for (const Dialect& d : RowsUnderEveryRounding()) {
        CAPTURE(d.name, static_cast<int>(d.rounding), static_cast<int>(kind));
        for (const NamedGenerator& g : kRandomGenerators) {
          const bool other = TakesRandomBits(d) && Feeds(g.generator, d);
          if (g.generator == RandomGenerator::kPhilox || other) {
            CheckDialect(d, x.View(), g.generator);
          }
        }
      }
    }
  }
  PinSimdTarget("best");
}

TEST_CASE("Every implementation gives the definition's values, decoded numbers and packed codes",
          "[quantize][differential]") {
  std::size_t tuned = 0;
  for (const Dialect& d : RowsUnderEveryRounding()) {
    const bool four_bits = FormatOf(d.element).bits == 4;
    CAPTURE(d.name, static_cast<int>(d.rounding));
    for (const Kind kind : kKinds) {
      const Matrix<float> x = TestMatrix(kind, 33, 80);
      const DialectOptions options = OptionsFor(d, x.View(), RandomGenerator::kPhilox);
      const Quantized q = reference::QuantizeAs(d, x.View(), options);
      const Matrix<float> decoded = DequantizeAs(d, q);
      Matrix<float> values(33, 80), got(33, 80);
      reference::QuantizeToValues(d, x.View(), options, values.View());
      for (const auto& row : QuantizeImplementations()) {
        CAPTURE(row.name);
        QuantizeRequest request{d, x.View(), options, {.values = got.View()}};
        if (!row.why_not(request).empty()) continue;
        tuned += row.name == "tuned" && kind == Kind::kNormal;
        row.make(request);
        CHECK(Differences(got.View(), values.View()) == 0);
        Matrix<float> turned(80, 33);
        request.out = {.decoded = turned.View().Transposed()};
        row.make(request);
        CHECK(Differences(turned.View().Transposed(), decoded.View()) == 0);
        for (const CodeOrder order : {CodeOrder::kLowFirst, CodeOrder::kHighFirst}) {
          std::vector<std::uint8_t> codes(33 * 40);
          request.out = {.codes = codes.data(), .order = order};
          if (!four_bits || !row.why_not(request).empty()) continue;
          row.make(request);
          CHECK(codes == PackCodes(q.codes, 33, 80, order));
        }
      }
    }
  }
  CHECK(tuned >= TunedRows().size());  // no tuned row is missing
}

TEST_CASE("TunedRows are NVFP4, the formats under OCP's rules, and FP8 with one scale",
          "[quantize]") {
  const std::vector<Dialect> rows = TunedRows();
  const auto has = [&](std::string_view name) {
    return std::any_of(rows.begin(), rows.end(),
                       [&](const Dialect& d) { return d.name == FindDialect(name)->name; });
  };
  CHECK(rows.size() == 32);
  for (const char* name : {"nvfp4", "nvfp4.2d", "fp8_e4m3", "fp8_e5m2"}) CHECK(has(name));
  for (const std::string format :
       {"mxfp4", "mxfp6_e2m3", "mxfp6_e3m2", "mxfp8_e4m3", "mxfp8_e5m2"}) {
    for (const char* rule : {".floor", ".ceil", ".rceil", ".even"}) {
      CHECK(has(format + rule));
      if (format == "mxfp4") CHECK(has(format + rule + ".2d"));
    }
  }
}

TEST_CASE("MS-EDEN's values point along x without bias where nearest rounding falls short",
          "[quantize][property]") {
  // Normal data stand for data after a random rotation.
  const Matrix<float> x = TestMatrix(Kind::kNormal, 8, 1024);
  Dialect nearest = *FindDialect("nvfp4.te");
  nearest.target = 6.072f;
  Dialect corrected = nearest;
  corrected.unbias = Unbias::kMsEden;
  const auto along = [&](const Dialect& d, std::uint32_t step) {  // <x, Q(x)> / <x, x>
    DialectOptions options{.source = RandomSource{{.seed = 11, .step = step}}};
    const Matrix<float> y = DequantizeAs(d, QuantizeAs(d, x.View(), options));
    double products = 0.0, squares = 0.0;
    for (std::size_t i = 0; i < x.values.size(); ++i) {
      products += double{x.values[i]} * y.values[i];
      squares += double{x.values[i]} * x.values[i];
    }
    return products / squares;
  };
  double mean = 0.0;
  constexpr int kDraws = 40;
  for (std::uint32_t step = 0; step < kDraws; ++step) mean += along(corrected, step) / kDraws;
  CHECK(std::fabs(mean - 1.0) < 5e-4);
  CHECK(std::fabs(along(nearest, 0) - 1.0) > 2e-3);
}

TEST_CASE("A block's QuEST scale is that of its standard deviation", "[quantize]") {
  Matrix<float> x(1, 32);
  for (std::size_t c = 0; c < 32; ++c) x(0, c) = c % 2 == 0 ? 3.0f : 1.0f;  // mean 2, sigma 1
  Dialect d = *FindDialect("mxfp4.rceil");
  d.statistic = BlockStatistic::kQuest;
  d.block_scale = BlockScale::kFloorLog2Quotient;
  const Quantized q = QuantizeAs(d, x.View(), {});
  CHECK(q.scales[0] == 127 - 2);  // floor(log2(2.92247856 / 6)) = -2
}

TEST_CASE("The alpha of a GEMM undoes both tensors' scales", "[quantize]") {
  const Dialect &te = *FindDialect("nvfp4.te"), &mx = *FindDialect("mxfp4.rceil");
  CHECK(GemmAlpha(te, 3.0f, te, 5.0f) == 15.0f / 7225344.0f);
  CHECK(GemmAlpha(te, 3.0f, mx, 0.0f) == 3.0f / 2688.0f);
  CHECK(GemmAlpha(mx, 0.0f, mx, 0.0f) == 1.0f);
  const Dialect& narrow = *FindDialect("nvfp4.te.4over6.mse.256");  // C = 256 * 6
  CHECK(GemmAlpha(te, 3.0f, narrow, 5.0f) == 15.0f / (2688.0f * 1536.0f));
  CHECK(OperandDecode(*FindDialect("nvfp4.fouroversix"), 0.0f) == 0.0f);
  CHECK(OperandDecode(*FindDialect("fp8_e4m3"), 896.0f) == 2.0f);
}

// The codes of TE's kernel with this source of bits, by the words of te_counters.h.
std::vector<std::uint8_t> ReplayedCodes(View x, const RandomSource& source) {
  const TeLaunch launch{TeKernel::kTuned, source.columnwise ? x.cols : x.rows,
                        source.columnwise ? x.rows : x.cols, true, true};
  return QuantizeReplayed(*FindDialect("nvfp4.te"), x, {}, RandomForm::kTe8,
                          TeWords(launch, source.columnwise, source.stream.seed, source.TeOffset()))
      .codes;
}

TEST_CASE("Transformer Engine's generator gives the codes of its kernel's words, in both outputs",
          "[quantize][replay]") {
  Dialect d = *FindDialect("nvfp4.te");
  d.rounding = ElementRounding::kStochastic8;
  for (const auto& [rows, cols] :
       {std::pair<std::size_t, std::size_t>{160, 272}, {64, 96}, {16, 48}, {300, 128}}) {
    const Matrix<float> x = TestMatrix(Kind::kNormal, rows, cols);
    RandomSource source{{.seed = 0x123456789ABCDEF0u, .step = 77, .tensor = 5},
                        RandomGenerator::kTransformerEngine};
    for (const bool columnwise : {false, true}) {
      CAPTURE(rows, cols, columnwise);
      source.columnwise = columnwise;
      const View view = columnwise ? x.View().Transposed() : x.View();
      CHECK(QuantizeAs(d, view, {.source = source}).codes == ReplayedCodes(view, source));
    }
  }
}

TEST_CASE("Launches of Transformer Engine's generator share no block of a thread's stream",
          "[quantize][replay]") {
  const auto offset = [](std::uint32_t step, std::uint32_t tensor) {
    return RandomSource{{.seed = 1, .step = step, .tensor = tensor}}.TeOffset();
  };
  const TeLaunch launch{TeKernel::kTuned, 256, 256, true, true};
  CHECK(4 * (offset(0, 1) - offset(0, 0)) >= TeWordsAStream(launch));
  CHECK(offset(1, 0) > offset(0, ~0u));
  CHECK(offset(0, 0) >> 32 != 0);
}

TEST_CASE("Transformer Engine's generator gives 8 bits an element, and no others", "[quantize]") {
  const RandomSource source{{}, RandomGenerator::kTransformerEngine};
  const Matrix<float> x = TestMatrix(Kind::kNormal, 16, 32);
  Dialect d = *FindDialect("nvfp4.te");
  for (const ElementRounding rounding :
       {ElementRounding::kStochastic4, ElementRounding::kStochastic16,
        ElementRounding::kStochastic32}) {
    d.rounding = rounding;
    CHECK_FALSE(Feeds(source.generator, d));
    CHECK_THROWS_AS(QuantizeAs(d, x.View(), {.source = source}), std::logic_error);
  }
  d.rounding = ElementRounding::kStochastic8;
  d.unbias = Unbias::kMsEden;
  CHECK_THROWS_AS(QuantizeAs(d, x.View(), {.source = source}), std::logic_error);
}

TEST_CASE("RandomSource counts under kLinearCounter and repeats a row's word under kWordPerRow",
          "[quantize]") {
  const RandomStream stream{.seed = 9, .step = 1, .tensor = 2};
  const RandomSource counter{stream, RandomGenerator::kLinearCounter};
  const RandomSource row{stream, RandomGenerator::kWordPerRow};
  for (const int bits : {4, 8, 16, 32}) {
    const std::uint32_t mask = ~0u >> (32 - bits);
    for (std::uint64_t i = 0; i < 100; ++i) {
      CHECK(((counter.Bits(bits, i + 1, 10, 10) - counter.Bits(bits, i, 10, 10)) & mask) == 1u);
      CHECK(row.Bits(bits, i, 10, 10) == RandomSource{stream}.Bits(bits, i / 10 * 10, 10, 10));
      CHECK(RandomSource{stream}.Bits(bits, i, 10, 10) <= mask);
    }
  }
  CHECK(RandomSource{stream}.Bits(16, 77, 10, 10) == stream.Bits16(77));
  CHECK(RandomSource{stream}.Bits(32, 77, 10, 10) == stream.Bits32(77));
  CHECK(RandomSource{stream}.Bits(8, 77, 10, 10) == stream.Bits8(77));
}

}  // namespace
}  // namespace fp4lab
