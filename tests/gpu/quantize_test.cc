// Operands made on the GPU against nn/linear's: the Hadamard transform and all tuned dialects,
// along rows and along columns, bit for bit; products through cuBLASLt against double precision.
#include "fp4lab/block/quantize.h"

#include <algorithm>
#include <bit>
#include <string>

#include "fp4lab/dialect/gemm_alpha.h"
#include "fp4lab/gpu/gemm/gemm.cuh"
#include "fp4lab/gpu/quantize/quantize.cuh"
#include "fp4lab/transform/hadamard.h"
#include "tests/block/cases.h"
#include "tests/gpu/device.h"

namespace fp4lab::gpu {
namespace {

constexpr std::size_t kRows = 96, kCols = 160;

// BF16 values: blocks of widely different size, zeros, tiny and huge values; with `specials` NaN
// and Inf too.
std::vector<float> Values(bool specials) {
  std::vector<float> x = Normal(11, kRows * kCols);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = RoundToBf16(std::ldexp(x[i], static_cast<int>(i / 48 % 23) - 12));
  }
  std::fill(x.begin() + 320, x.begin() + 352, 0.0f);
  x[321] = -0.0f;
  std::fill(x.begin() + 640, x.begin() + 672, 0x1p-130f);
  x[1000] = 0x1p-133f;
  if (specials) {
    x[2000] = std::nanf("");
    x[2001] = -std::nanf("");
    x[2500] = INFINITY;
    x[3000] = -INFINITY;
  }
  return x;
}

// The CPU's operand in the memory order of x.
struct Expected {
  std::vector<float> values;
  float amax = 0.0f;
};

Expected OnCpu(const QuantizeJob& job, std::vector<float> x) {
  MatrixView<float> view(x.data(), job.rows, job.cols);
  if (job.along_rows) view = view.Transposed();
  if (job.hadamard != 0) {
    RandomHadamard(view, job.hadamard, job.hadamard == 16 ? kTeSignMask16 : kTeSignMask32, view);
  }
  const float amax = TensorAmax(view);
  if (job.format) {
    fp4lab::QuantizeToValues(
        view, QuantizeOptions{.dialect = *job.format, .random = job.random, .amax = amax}, view);
  }
  return {std::move(x), amax};
}

// `first`: how many elements after the beginning of their memory x and the operand begin.
template <class T>
void CheckJob(const QuantizeJob& job, const std::vector<float>& x, std::size_t first = 0) {
  std::vector<float> moved(first);
  moved.insert(moved.end(), x.begin(), x.end());
  const auto device = ToDeviceAs<T>(moved);
  auto amax = ToDevice(std::vector<std::uint32_t>{0});
  auto out = Poisoned<T>(moved.size());
  MeasureAmax(job, device.data() + first, amax.data(), nullptr);
  QuantizeToValues(job, device.data() + first, amax.data(), out.data() + first, nullptr);
  const Expected expected = OnCpu(job, x);
  CHECK(ToHost(amax)[0] == std::bit_cast<std::uint32_t>(expected.amax));
  std::vector<float> got = FloatsOf(out);
  got.erase(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(first));
  CHECK(Different(got, RoundedTo<T>(expected.values)) == 0);
}

TEST_CASE("Operands made on the GPU have the CPU's bits, in every format and direction", "[gpu]") {
  if (NoGpu()) return;
  const std::vector<float> plain = Values(false), special = Values(true);
  std::vector<std::optional<Dialect>> formats = {std::nullopt};
  for (const Dialect& d : TunedRows()) {
    if (d.block_cols <= 32) formats.push_back(d);  // those that divide the sides of this test
  }
  for (const auto& plain_format : formats) {
    for (const ElementRounding rounding :
         {ElementRounding::kNearestEven, ElementRounding::kStochastic16}) {
      std::optional<Dialect> format = plain_format;
      if (format) format->rounding = rounding;
      for (const int hadamard : {0, 16, 32}) {
        for (const bool along_rows : {false, true}) {
          const QuantizeJob job{kRows, kCols, along_rows, format, {42, 7, 123}, hadamard};
          CAPTURE(format ? format->name : "none", static_cast<int>(rounding), hadamard, along_rows);
          CheckJob<Bf16>(job, plain);
          CheckJob<float>(job, plain);
          if (hadamard == 0) {
            CheckJob<float>(job, special);
            CheckJob<Bf16>(job, special);
          }
        }
      }
    }
  }
}

TEST_CASE("Every BF16 number in a block of FP4 becomes the CPU's value", "[gpu]") {
  if (NoGpu()) return;
  std::vector<float> x(1 << 16);
  for (std::size_t i = 0; i < x.size(); ++i) {  // neighbours in a block are neighbours in size
    x[i] = std::bit_cast<float>(static_cast<std::uint32_t>(i) << 16);
  }
  for (const std::string name : {"nvfp4", "mxfp4.floor", "mxfp4.rceil"}) {
    for (const ElementRounding rounding :
         {ElementRounding::kNearestEven, ElementRounding::kStochastic16}) {
      const Dialect dialect = WithRounding(*FindDialect(name), rounding);
      for (const bool along_rows : {false, true}) {
        CAPTURE(name, static_cast<int>(rounding), along_rows);
        CheckJob<Bf16>({256, 256, along_rows, dialect, {1, 2, 3}, 0}, x);
      }
    }
  }
}

TEST_CASE("One pass finds the largest magnitude before and after the transform", "[gpu]") {
  if (NoGpu()) return;
  std::vector<float> x = Values(false);
  for (const int hadamard : {16, 32}) {
    const auto bf16 = ToDeviceAs<Bf16>(x);
    const auto floats = ToDevice(x);
    auto amax = ToDevice(std::vector<std::uint32_t>(4, 0));
    const QuantizeJob job{kRows, kCols, true, {}, {}, hadamard};
    MeasureBoth(job, bf16.data(), amax.data(), amax.data() + 1, nullptr);
    MeasureBoth(job, floats.data(), amax.data() + 2, amax.data() + 3, nullptr);
    const float plain = TensorAmax(MatrixView<const float>(x.data(), kRows, kCols));
    const auto want = std::vector<std::uint32_t>{std::bit_cast<std::uint32_t>(plain),
                                                 std::bit_cast<std::uint32_t>(OnCpu(job, x).amax)};
    CHECK(ToHost(amax) == std::vector<std::uint32_t>{want[0], want[1], want[0], want[1]});
  }
}

// Compares QuantizeBoth, whose second operand is made in place, with one kernel for each operand.
void CheckBoth(const QuantizeJob& row, const QuantizeJob& column, const std::vector<float>& x) {
  auto both = ToDeviceAs<Bf16>(x);
  const auto alone = ToDeviceAs<Bf16>(x);
  auto row_out = Poisoned<Bf16>(x.size()), want_row = Poisoned<Bf16>(x.size()),
       want_column = Poisoned<Bf16>(x.size());
  const auto amax = ToDevice(std::vector<std::uint32_t>(2, 0));
  MeasureAmax(row, alone.data(), amax.data(), nullptr);
  MeasureAmax(column, alone.data(), amax.data() + 1, nullptr);
  auto alpha = Poisoned<float>(4);
  const auto wanted = [&](int place) {
    return AlphaJob{row.format, column.format, amax.data(), amax.data() + 1, alpha.data() + place};
  };
  QuantizeBoth(row, amax.data(), wanted(0), row_out.data(), column, amax.data() + 1, wanted(1),
               both.data(), both.data(), nullptr);
  QuantizeToValues(row, alone.data(), amax.data(), want_row.data(), nullptr, wanted(2));
  QuantizeToValues(column, alone.data(), amax.data() + 1, want_column.data(), nullptr);
  WriteAlpha(wanted(3), nullptr);
  CHECK(Different(FloatsOf(row_out), FloatsOf(want_row)) == 0);
  CHECK(Different(FloatsOf(both), FloatsOf(want_column)) == 0);
  const std::vector<float> alphas = ToHost(alpha);
  CHECK(alphas == std::vector<float>(4, alphas[3]));
}

TEST_CASE("QuantizeBoth makes both operands in one pass", "[gpu]") {
  if (NoGpu()) return;
  for (const std::string name : {"nvfp4", "mxfp4.floor", "mxfp4.rceil"}) {
    for (const ElementRounding rounding :
         {ElementRounding::kNearestEven, ElementRounding::kStochastic16}) {
      const Dialect dialect = WithRounding(*FindDialect(name), rounding);
      for (const int hadamard : {0, 16}) {
        CAPTURE(name, static_cast<int>(rounding), hadamard);
        const auto check = [&](std::size_t rows, std::size_t cols, const std::vector<float>& x) {
          const QuantizeJob row{rows, cols, false, dialect, {42, 7, 3}, 0};
          const QuantizeJob column{rows, cols, true, dialect, {42, 7, 5}, hadamard};
          REQUIRE(QuantizesBoth(row, column));
          CheckBoth(row, column, x);
        };
        check(kRows, kCols, Values(false));
        if (hadamard == 0) check(kRows, kCols, Values(true));
        check(32, 64, RoundedTo<Bf16>(Normal(5, 32 * 64)));
        check(64, 1056, RoundedTo<Bf16>(Normal(6, 64 * 1056)));
      }
    }
  }
  const QuantizeJob fp8{kRows, kCols, false, *FindDialect("fp8_e4m3"), {}, 0};
  CHECK_FALSE(QuantizesBoth(fp8, fp8));
}

TEST_CASE("Per-tensor scaling works for any shape, wherever it begins", "[gpu]") {
  if (NoGpu()) return;
  const Dialect fp8 = *FindDialect("fp8_e4m3");
  const Dialect random = WithRounding(fp8, ElementRounding::kStochastic16);
  for (const auto& [rows, cols] : {std::pair<std::size_t, std::size_t>{37, 13}, {36, 60}}) {
    std::vector<float> x = Normal(3, rows * cols);
    for (float& value : x) value = RoundToBf16(value);
    for (const std::size_t first : {0, 1, 4}) {  // rows of an expert begin anywhere
      CAPTURE(rows, cols, first);
      for (const bool along_rows : {false, true}) {
        CheckJob<Bf16>({rows, cols, along_rows, fp8, {}, 0}, x, first);
        CheckJob<float>({rows, cols, along_rows, random, {1, 2, 3}, 0}, x, first);
      }
    }
  }
}

TEST_CASE("alpha on the GPU is nn/linear's", "[gpu]") {
  if (NoGpu()) return;
  const std::vector<std::optional<Dialect>> formats = {
      std::nullopt, *FindDialect("nvfp4"), *FindDialect("mxfp4.rceil"), *FindDialect("fp8_e4m3"),
      *FindDialect("fp8_e5m2")};
  const float amax_a = 3.7f, amax_b = 0.0123f;
  const auto amax = ToDevice(std::vector<std::uint32_t>{std::bit_cast<std::uint32_t>(amax_a),
                                                        std::bit_cast<std::uint32_t>(amax_b)});
  for (const auto& a : formats) {
    for (const auto& b : formats) {
      auto alpha = Poisoned<float>(1);
      WriteAlpha({a, b, amax.data(), amax.data() + 1, alpha.data()}, nullptr);
      float want = 1.0f;
      if (a && b) want = GemmAlpha(*a, amax_a, *b, amax_b);
      if (a && !b) want = OperandDecode(*a, amax_a);
      if (b && !a) want = OperandDecode(*b, amax_b);
      CHECK(ToHost(alpha)[0] == want);
    }
  }
}

template <class T>
void CheckProduct(std::size_t m, std::size_t n, std::size_t k, bool a_transposed,
                  bool b_transposed) {
  const std::vector<float> a = RoundedTo<T>(Normal(1, m * k)), b = RoundedTo<T>(Normal(2, k * n));
  const std::vector<float> c = Normal(3, m * n);
  const auto device_a = ToDeviceAs<T>(a), device_b = ToDeviceAs<T>(b);
  const auto device_c = ToDevice(c), alpha = ToDevice(std::vector<float>{0.5f});
  auto d = Poisoned<float>(m * n), again = Poisoned<float>(m * n);
  Gemms gemms(nullptr);
  GemmProblem<T> problem{m, n, k, device_a.data(), device_b.data(), a_transposed, b_transposed};
  problem.alpha = alpha.data();
  problem.c = device_c.data();
  problem.d = d.data();
  gemms.Run(problem);
  problem.d = again.data();
  gemms.Run(problem);
  std::vector<float> want(m * n);
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      double sum = 0.0;
      for (std::size_t l = 0; l < k; ++l) {
        sum += static_cast<double>(a_transposed ? a[l * m + i] : a[i * k + l]) *
               (b_transposed ? b[j * k + l] : b[l * n + j]);
      }
      want[i * n + j] = static_cast<float>(0.5 * sum + c[i * n + j]);
    }
  }
  CHECK(Distance(ToHost(d), want) < 2e-6);
  CHECK(Different(ToHost(again), ToHost(d)) == 0);
  problem.c = nullptr;
  problem.alpha = nullptr;
  gemms.Run(problem);
  for (std::size_t i = 0; i < m * n; ++i) want[i] = 2.0f * (want[i] - c[i]);
  CHECK(Distance(ToHost(again), want) < 2e-6);
}

TEST_CASE("Products through cuBLASLt agree with double precision, and with themselves", "[gpu]") {
  if (NoGpu()) return;
  for (const bool a_transposed : {false, true}) {
    for (const bool b_transposed : {false, true}) {
      CAPTURE(a_transposed, b_transposed);
      CheckProduct<Bf16>(64, 96, 1024, a_transposed, b_transposed);
      CheckProduct<float>(64, 96, 256, a_transposed, b_transposed);
    }
  }
}

}  // namespace
}  // namespace fp4lab::gpu
