// Side terms on the GPU: linears with them against the CPU's. Observers show what the terms leave
// to be quantized, bit for bit; the products show what they add.
#include "fp4lab/gpu/kernels/side.cuh"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "fp4lab/recipe/recipe.h"
#include "tests/gpu/operands.h"

namespace fp4lab::gpu {
namespace {

// A tensor (rows, channels) whose mean over rows counts, with a few channels that stand out.
std::vector<float> WithOutliers(std::uint64_t seed, std::size_t rows, std::size_t channels,
                                double deviation) {
  std::vector<float> x = Normal(seed, rows * channels, deviation);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = i % channels;
    x[i] += static_cast<float>(deviation) * static_cast<float>(c % 5);
    if (c % 61 == 17) x[i] *= 40.0f;
  }
  return RoundedTo<Bf16>(std::move(x));
}

LinearData Data(std::size_t tokens, std::size_t in, std::size_t out) {
  LinearData data{.tokens = tokens, .in = in, .out = out};
  data.x = WithOutliers(1, tokens, in, 1.0);
  data.dy = WithOutliers(3, tokens, out, 1e-4);
  return data;
}

// The fold of each column in the order of rows, as the CPU's split makes it.
std::vector<double> FoldsInOrder(ColumnFold fold, const std::vector<float>& x, std::size_t cols) {
  std::vector<double> folds(cols);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double value = x[i], known = std::isnan(x[i]) ? 0.0 : value;
    double& to = folds[i % cols];
    if (fold == ColumnFold::kSum) to += value;
    if (fold == ColumnFold::kSquares) to += known * known;
    if (fold == ColumnFold::kLargest) to = std::max(to, std::fabs(known));
  }
  return folds;
}

bool SameOrNan(double a, double b) {
  return std::memcmp(&a, &b, sizeof a) == 0 || (std::isnan(a) && std::isnan(b));
}

TEST_CASE("Folds of columns on the GPU are those in the order of rows, exact or not", "[gpu]") {
  if (NoGpu()) return;
  for (const auto& [rows, cols] :
       {std::pair<std::size_t, std::size_t>{1, 1}, {255, 33}, {256, 32}, {1000, 40}, {4099, 96}}) {
    const std::vector<float> normal = Normal(5, rows * cols, 1.0);
    const std::vector<float> narrow = RoundedTo<Bf16>(normal), zeros(rows * cols, -0.0f);
    std::vector<float> wide = normal, with_nan = narrow, subnormal = zeros, squared = normal;
    for (std::size_t i = 0; i < wide.size(); ++i) {
      // Over 80 binades: a sum depends on the order of rows.
      if (i % 2 == 0) wide[i] = std::ldexp(wide[i], static_cast<int>(i * 7919 % 81) - 40);
      if (i % 97 == 3) with_nan[i] = std::nanf("");
      if (i % 101 == 5 && i % cols % 7 == 0) with_nan[i] = -INFINITY;
      if (i % 3 == 0) subnormal[i] = std::ldexp(1.0f, i % 2 == 0 ? -149 : -80);
      // As an activation makes them: some are smaller than the last bit of their column's sum.
      squared[i] = i % 53 == 7 ? 3e-13f : RoundToBf16(squared[i] * squared[i]);
    }
    const std::vector<float>* const all[] = {&narrow, &wide,      &with_nan,
                                             &zeros,  &subnormal, &squared};
    for (const std::vector<float>* x : all) {
      for (const ColumnFold fold : {ColumnFold::kSum, ColumnFold::kSquares, ColumnFold::kLargest}) {
        const DeviceArray<float> in = ToDevice(*x);
        const DeviceArray<double> out(cols);
        DeviceArray<ColumnPart> memory;
        FoldColumns(fold, in.data(), rows, cols, &memory, out.data(), nullptr);
        const std::vector<double> got = ToHost(out), want = FoldsInOrder(fold, *x, cols);
        CAPTURE(rows, cols, static_cast<int>(fold), x == &wide);
        CHECK(std::equal(got.begin(), got.end(), want.begin(), SameOrNan));
      }
    }
    if (rows < 255) continue;
    const std::vector<double> forward = FoldsInOrder(ColumnFold::kSum, wide, cols);
    std::reverse(wide.begin(), wide.end());
    std::vector<double> backward = FoldsInOrder(ColumnFold::kSum, wide, cols);
    std::reverse(backward.begin(), backward.end());
    CHECK(forward != backward);
  }
}

LinearRecipe Read(const Json& json) { return ReadRecipe(json, "test").linear; }

// The terms at the operands that may have one, alone and together.
std::vector<Json> Recipes(const std::string& base, const Json& term) {
  const Json side{{"side", term}};
  const Json fprop{{"input", side}}, dgrad{{"grad", side}}, both{{"grad", side}, {"input", side}};
  return {{{"base", base}, {"fprop", fprop}},
          {{"base", base}, {"dgrad", dgrad}},
          {{"base", base}, {"wgrad", {{"grad", side}}}},
          {{"base", base}, {"wgrad", {{"input", side}}}},
          {{"base", base}, {"fprop", fprop}, {"dgrad", dgrad}, {"wgrad", both}}};
}

double CheckAll(const std::string& base, const Json& term, const LinearData& data) {
  double worst = 0.0;
  for (const Json& json : Recipes(base, term)) {
    CAPTURE(json.dump(), data.tokens, data.in, data.out);
    worst = std::max(worst, CheckLinear(Read(json), data));
  }
  return worst;
}

Json Hot(const char* term, const Json& channels, const char* by = "amax") {
  return {{"term", term}, {"channels", channels}, {"by", by}};
}

TEST_CASE("Linears with side terms on the GPU have the CPU's operands and products",
          "[gpu][recipes]") {
  if (NoGpu()) return;
  const LinearData data = Data(128, 256, 128);
  double worst = 0.0;
  for (const char* base :
       {"bf16", "te_nvfp4", "amd_mxfp4_full", "te_nvfp4_row_scaled", "hifloat4"}) {
    worst = std::max(worst, CheckAll(base, "mean", data));
    for (const Json& term : std::vector<Json>{Hot("columns", 2), Hot("columns", "5%", "norm")}) {
      worst = std::max(worst, CheckAll(base, term, data));
    }
  }
  for (const char* base : {"te_nvfp4_no_rht", "amd_mxfp4_full", "te_fp8_currentscaling"}) {
    worst = std::max(worst, CheckAll(base, Hot("patch", 3), data));
    worst = std::max(worst, CheckAll(base, Hot("patch", "8%", "norm"), data));
  }
  std::printf("linears with side terms: largest distance to the CPU's %.1e\n", worst);
}

TEST_CASE("Side terms on the GPU under odd numbers of tokens and channels", "[gpu][recipes]") {
  if (NoGpu()) return;
  for (const LinearData& data : {Data(1, 8, 24), Data(77, 40, 136), Data(333, 72, 8)}) {
    CheckAll("bf16", "mean", data);
    CheckAll("bf16", Hot("columns", 1), data);
    CheckAll("bf16", Hot("columns", 8, "norm"), data);
  }
}

TEST_CASE("Side terms on the GPU where binary32 tensors stay unrounded", "[gpu][recipes]") {
  if (NoGpu()) return;
  const LinearData data = Data(64, 128, 64);
  for (const Json& term : std::vector<Json>{"mean", Hot("columns", 4)}) {
    for (const Json& json : Recipes("fp32", term)) {
      CAPTURE(json.dump());
      const LinearRecipe recipe = Read(json);
      const Products want = OnCpu(recipe, data),
                     got = OnDevice<float, float>(recipe, data, nullptr);
      CHECK(Distance(got.y, want.y) < 1e-5);
      CHECK(Distance(got.dx, want.dx) < 1e-5);
      CHECK(Distance(got.dw, want.dw) < 1e-5);
    }
  }
}

TEST_CASE("A side term on the GPU of an input made of fprop's values", "[gpu][recipes]") {
  if (NoGpu()) return;
  for (const Json& term : std::vector<Json>{"mean", Hot("columns", 4), Hot("patch", 4)}) {
    CAPTURE(term.dump());
    CheckLinear(Read({{"base", "te_nvfp4_no_rht"},
                      {"wgrad", {{"input", {{"from", "fprop"}, {"side", term}}}}}}),
                Data(128, 256, 128));
  }
}

TEST_CASE("A channel with NaN counts as 0 where hot channels are chosen on the GPU",
          "[gpu][recipes]") {
  if (NoGpu()) return;
  LinearData data = Data(64, 64, 64);
  for (std::size_t t = 0; t < data.tokens; t += 2) data.x[t * data.in + 5] = std::nanf("");
  for (std::size_t t = 0; t < data.tokens; ++t) data.x[t * data.in + 9] = 0.0f;
  for (const char* by : {"amax", "norm"}) {
    SeenOperands on_cpu, on_device;
    const OperandObserver see_cpu = Into(&on_cpu), see_device = Into(&on_device);
    const LinearRecipe recipe = Read(
        {{"base", "te_nvfp4_no_rht"}, {"fprop", {{"input", {{"side", Hot("columns", 3, by)}}}}}});
    OnCpu(recipe, data, &see_cpu);
    OnDevice<float>(recipe, data, &see_device);
    CHECK(Different(on_device[kFpropInput].before, on_cpu[kFpropInput].before) == 0);
  }
}

}  // namespace
}  // namespace fp4lab::gpu
