// Operands with options that training recipes add to dialects, on the GPU against the CPU's, bit
// for bit: Hadamard transforms of any size and signs, operands made of fprop's values, formulas
// that no row of the table has.
#include <bit>
#include <cmath>
#include <string>

#include "fp4lab/recipe/published_recipes.h"
#include "fp4lab/recipe/recipe.h"
#include "fp4lab/spelling/dialect_json.h"
#include "tests/gpu/operands.h"

namespace fp4lab::gpu {
namespace {

// ---- Hadamard transforms

std::vector<HadamardTransform> Transforms() {
  std::vector<HadamardTransform> all;
  for (const int size : kHadamardSizes) {
    for (const HadamardSigns& signs :
         {TeHadamardSigns(), NoHadamardSigns(), RandomHadamardSigns(kRandom)}) {
      all.push_back({size, signs});
    }
  }
  return all;
}

// Undoes a transform as nn/linear/operand.cc does: S H x, the signs after the transform.
void TransformBack(const HadamardTransform& transform, MatrixView<float> x) {
  fp4lab::RandomHadamard(x, {transform.size, NoHadamardSigns()}, x);
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) {
      if (transform.signs.Negates(static_cast<int>(c) % transform.size)) x(r, c) = -x(r, c);
    }
  }
}

// The largest magnitude, NaN passed over.
float AmaxOf(const std::vector<float>& x) {
  float amax = 0.0f;
  for (const float v : x) amax = std::fmax(amax, std::fabs(v));
  return amax;
}

template <class T>
void CheckTransform(const HadamardTransform& transform, const Place& place,
                    const std::vector<float>& x) {
  for (const HadamardWay way : {HadamardWay::kForth, HadamardWay::kBack}) {
    std::vector<float> want = x;
    MatrixView<float> view(want.data(), place.rows, place.cols);
    if (place.along_rows) view = view.Transposed();
    if (way == HadamardWay::kForth) {
      fp4lab::RandomHadamard(view, transform, view);
    } else {
      TransformBack(transform, view);
    }
    for (const bool in_place : {false, true}) {
      CAPTURE(transform.size, transform.signs.words[0], place.rows, place.cols, place.along_rows,
              way == HadamardWay::kBack, in_place);
      const auto from = ToDeviceAs<T>(x);
      auto out = Poisoned<T>(x.size());
      T* const to = in_place ? from.data() : out.data();
      const auto amax = Poisoned<std::uint32_t>(1);
      TransformGroups(transform, way, place.rows, place.cols, place.along_rows, from.data(), to,
                      amax.data(), nullptr);
      CHECK(Different(FloatsOf(in_place ? from : out), want) == 0);
      CHECK(std::bit_cast<float>(ToHost(amax)[0]) == AmaxOf(want));
    }
  }
}

TEST_CASE("Every Hadamard transform on the GPU, forth and back, is the CPU's", "[gpu][recipes]") {
  if (NoGpu()) return;
  for (const Place& place :
       {Place{5, 384, false}, {128, 128, false}, {256, 37, true}, {128, 64, true}}) {
    for (const bool specials : {false, true}) {
      const auto x = RoundedTo<Bf16>(Values(place.rows * place.cols, specials));
      for (const HadamardTransform& transform : Transforms()) {
        CheckTransform<Bf16>(transform, place, x);
        CheckTransform<float>(transform, place, x);
      }
    }
  }
}

// Numbers whose exponents are spread over `binades` below `exponent`.
std::vector<float> Spread(std::size_t size, int binades, int exponent = 0) {
  std::vector<float> x = Normal(7, size);
  for (std::size_t i = 0; i < size; ++i) {
    const auto lower = static_cast<int>(i * 37 % static_cast<std::size_t>(binades));
    x[i] = std::ldexp(x[i], exponent - lower);
  }
  return RoundedTo<Bf16>(std::move(x));
}

TEST_CASE("Transforms of numbers of few and of many binades are the CPU's", "[gpu][recipes]") {
  if (NoGpu()) return;
  for (const int binades : {1, 6, 9, 12, 20, 26, 31, 36, 40, 44, 60, 76, 120}) {
    for (const int exponent : {0, -30, -64, -80, -100, -115, -122, -128}) {
      for (const Place& place : {Place{7, 128, false}, {128, 24, true}}) {
        const std::vector<float> x = Spread(place.rows * place.cols, binades, exponent);
        for (const int size : {16, 32, 64, 128}) {
          CAPTURE(binades, exponent);
          CheckTransform<Bf16>({size, RandomHadamardSigns(kRandom)}, place, x);
        }
      }
    }
  }
}

// Pairs of equal numbers along the transform's axis, which cancel in half of the sums, among
// numbers 2^-distance as large. Neighbouring transforms differ by 19 binades.
std::vector<float> Pairs(const Place& place, int distance) {
  std::vector<float> x = Normal(8, place.rows * place.cols);
  MatrixView<float> view(x.data(), place.rows, place.cols);
  if (place.along_rows) view = view.Transposed();
  for (std::size_t r = 0; r < view.rows; ++r) {
    for (std::size_t k = 0; k < view.cols; ++k) {
      const int exponent = -19 * static_cast<int>(r % 4) - (k % 4 == 0 ? 0 : distance);
      view(r, k) = k % 8 == 4 ? view(r, k - 4) : std::ldexp(view(r, k), exponent);
    }
  }
  return RoundedTo<Bf16>(std::move(x));
}

TEST_CASE("Transforms whose largest numbers cancel are the CPU's", "[gpu][recipes]") {
  if (NoGpu()) return;
  for (const int distance : {15, 25, 35, 50, 75, 95, 115}) {
    for (const int exponent : {0, -60, -90, -115, 100, 120}) {
      for (const Place& place : {Place{5, 128, false}, {128, 40, true}}) {
        auto x = Pairs(place, distance);
        for (float& v : x) v = RoundToBf16(std::ldexp(v, exponent));
        for (const int size : {16, 32, 64, 128}) {
          CAPTURE(distance, exponent);
          CheckTransform<Bf16>({size, RandomHadamardSigns(kRandom)}, place, x);
        }
      }
    }
  }
}

TEST_CASE("Transforms of matrices that are no whole chunks of 128 are the CPU's",
          "[gpu][recipes]") {
  if (NoGpu()) return;
  const auto check = [](int size, const Place& place) {
    CheckTransform<Bf16>({size, RandomHadamardSigns(kRandom)}, place,
                         RoundedTo<Bf16>(Values(place.rows * place.cols, true)));
  };
  check(16, {3, 80, false});
  check(32, {7, 96, false});
  check(64, {37, 64, false});
  check(16, {144, 8, true});
  check(32, {96, 24, true});
  check(64, {192, 72, true});
  check(128, {384, 136, true});
  check(16, {144, 10, true});
  check(32, {96, 22, true});
  check(64, {192, 20, true});
  check(128, {384, 2, true});
}

TEST_CASE("Transforms of more tiles than the GPU holds at once are the CPU's", "[gpu][recipes]") {
  if (NoGpu()) return;
  for (const Place& place : {Place{1024, 8200, false}, {1152, 8200, true}}) {
    CheckTransform<Bf16>({place.along_rows ? 128 : 8, RandomHadamardSigns(kRandom)}, place,
                         Spread(place.rows * place.cols, 23));
  }
}

TEST_CASE("A transform that decodes gives the CPU's bits of the decoded tensor", "[gpu][recipes]") {
  if (NoGpu()) return;
  const float amax = 3.7f;
  const auto amax_on_gpu = ToDevice(std::vector<std::uint32_t>{std::bit_cast<std::uint32_t>(amax)});
  for (const char* name : {"nvfp4.te", "nvfp4.te.4over6.mse.256", "mxfp4.even"}) {
    const Dialect dialect = *FindDialect(name);
    for (const Place& place : {Place{128, 72, true}, {256, 10, true}, {64, 384, false}}) {
      for (const bool specials : {false, true}) {
        const auto x = RoundedTo<Bf16>(Values(place.rows * place.cols, specials));
        std::vector<float> decoded(x.size());
        for (std::size_t i = 0; i < x.size(); ++i) {
          decoded[i] = RoundToBf16(x[i] * OperandDecode(dialect, amax));
        }
        for (const int size : {4, 16, 64}) {
          CAPTURE(name, place.rows, place.cols, specials, size);
          const HadamardTransform transform{size, RandomHadamardSigns(kRandom)};
          std::vector<float> want = decoded;
          MatrixView<float> view(want.data(), place.rows, place.cols);
          if (place.along_rows) view = view.Transposed();
          fp4lab::RandomHadamard(view, transform, view);
          const auto from = ToDeviceAs<Bf16>(x);
          const auto out = Poisoned<Bf16>(x.size());
          const auto out_amax = Poisoned<std::uint32_t>(1);
          TransformGroups(transform, HadamardWay::kForth, place.rows, place.cols, place.along_rows,
                          from.data(), out.data(), out_amax.data(), nullptr,
                          TensorDecode{dialect, amax_on_gpu.data()});
          CHECK(Different(FloatsOf(out), want) == 0);
          CHECK(std::bit_cast<float>(ToHost(out_amax)[0]) == AmaxOf(want));
        }
      }
    }
  }
}

TEST_CASE("Operands after any Hadamard transform on the GPU are the CPU's", "[gpu][recipes]") {
  if (NoGpu()) return;
  const std::vector<float> x = RoundedTo<Bf16>(Values(128 * 256, false));
  for (const char* name : {"nvfp4.te", "nvfp4.te.2d", "mxfp4.even", "fp8_e4m3", "nvfp4.modelopt",
                           "nvfp4.te.row-scaled", "nvfp4.te.4over6.mse.256"}) {
    OperandRecipe recipe{.format = *FindDialect(name)};
    for (const ElementRounding rounding :
         {recipe.format->rounding, ElementRounding::kStochastic16}) {
      recipe.format->rounding = rounding;
      for (const int size : kHadamardSizes) {
        recipe.hadamard = size;
        for (const NamedSignSource& signs : kHadamardSignSources) {
          recipe.signs = signs.source;
          CAPTURE(name, size, signs.name, static_cast<int>(rounding));
          for (const bool along_rows : {false, true}) {
            CheckOperandOfBoth(recipe, {128, 256, along_rows}, x);
          }
        }
      }
    }
  }
}

// ---- Formulas that no row has

std::vector<Json> Additions() {
  std::vector<Json> all;
  for (const char* like : {"nvfp4.te", "nvfp4.te.2d", "mxfp4.rceil", "mxfp4.even.2d", "mxfp4.floor",
                           "nvfp4.fouroversix", "fp8_e4m3"}) {
    all.push_back({{"like", like}, {"element", "int4"}});
  }
  for (const char* like :
       {"nvfp4.te", "nvfp4.quartet2", "nvfp4.torchao", "nvfp4.fouroversix.mse", "nvfp4.modelopt"}) {
    all.push_back({{"like", like}, {"target", 6.072}});
    all.push_back({{"like", like}, {"target", 5.647058823529412}, {"block", {32, 32}}});
    all.push_back({{"like", like}, {"prescale", 0.75}});
    all.push_back({{"like", like}, {"unbias", "ms_eden"}, {"scale_max", 256}});
    all.push_back({{"like", like}, {"unbias", "ms_eden"}, {"target", 6.072}});
  }
  all.push_back({{"like", "nvfp4.fouroversix"}, {"element", "int4"}, {"target", 0.823529412}});
  for (const int cols : {8, 32, 64, 128}) {
    all.push_back({{"like", "nvfp4.torchao"}, {"unbias", "ms_eden"}, {"block", {1, cols}}});
  }
  for (const char* like : {"mxfp4.floor", "mxfp4.rceil", "mxfp4.even.2d"}) {
    all.push_back({{"like", like}, {"prescale", 0.75}});
  }
  for (const char* like : {"mxfp4.floor", "nvfp4.te", "nvfp4.fouroversix.mse"}) {
    for (const Json& block : std::vector<Json>{{1, 16}, {1, 24}, {16, 16}, {24, 24}, {32, 32}}) {
      all.push_back({{"like", like}, {"clip", "quest"}, {"block", block}});
    }
  }
  all.push_back({{"like", "mxfp4.floor"}, {"clip", "quest"}, {"block", {128, 128}}});
  for (const Json& block : std::vector<Json>{{1, 64}, {1, 128}, {128, 128}}) {
    all.push_back({{"like", "fp8_e4m3"}, {"scale", "fp32"}, {"block", block}});
    for (const char* element : {"int4", "e4m3"}) {
      all.push_back(
          {{"like", "nvfp4.te"}, {"element", element}, {"scale", "fp32"}, {"block", block}});
    }
    all.push_back({{"like", "mxfp8_e4m3.rceil"}, {"block", block}});
  }
  return all;
}

TEST_CASE("Dialects changed by recipe keys have the CPU's values on the GPU", "[gpu][recipes]") {
  if (NoGpu()) return;
  for (const Json& json : Additions()) {
    CAPTURE(json.dump());
    const Dialect d = ReadDialect(json, "test");
    OperandRecipe nearest{.format = d}, random{.format = d}, counted{.format = d};
    nearest.format->rounding = ElementRounding::kNearestEven;
    random.format->rounding = ElementRounding::kStochastic16;
    counted.format->rounding = ElementRounding::kStochastic8;
    counted.random = RandomGenerator::kLinearCounter;
    for (const OperandRecipe& recipe : {OperandRecipe{.format = d}, nearest, random, counted}) {
      CAPTURE(static_cast<int>(recipe.format->rounding));
      for (const bool along_rows : {false, true}) {
        CheckOperandOfBoth(recipe, {128, 256, along_rows}, Values(128 * 256, false));
        CheckOperandOfBoth(recipe, {128, 256, along_rows}, Values(128 * 256, true));
        if (PlanOf(recipe).kernel != OperandKernel::kDialects) continue;
        CheckOperandOfBoth(recipe, {37, 45, along_rows}, Values(37 * 45, true));
        CheckOperandOfBoth(recipe, {3, 700, along_rows}, Values(3 * 700, false));
      }
    }
  }
}

// ---- Linears

TEST_CASE("Linears of published recipes on the GPU have the CPU's operands", "[gpu][recipes]") {
  if (NoGpu()) return;
  const LinearData data{.tokens = 128, .in = 256, .out = 128};
  double worst = 0.0;
  for (const PublishedRecipe& row : PublishedRecipes()) {
    CAPTURE(row.name);
    const Recipe recipe = ReadRecipe(row.name, "test");
    worst = std::max(worst, CheckLinear(recipe.linear, data));
    if (recipe.then.empty()) continue;
    worst = std::max(worst, CheckLinear(recipe.then[0].recipe.linear, data));
  }
  std::printf("linears of published recipes: largest distance to the CPU's %.1e\n", worst);
}

TEST_CASE("Operands made of any fprop operand's values on the GPU are the CPU's",
          "[gpu][recipes]") {
  if (NoGpu()) return;
  const LinearData data{.tokens = 128, .in = 256, .out = 128};
  const auto named = [](const char* name) { return OperandRecipe{.format = *FindDialect(name)}; };
  std::vector<OperandRecipe> forward;
  for (const char* name : {"nvfp4.te", "mxfp4.rceil", "fp8_e4m3", "nvfp4.te.row-scaled",
                           "nvfp4.torchao", "nvfp4.modelopt"}) {
    OperandRecipe recipe = named(name);
    forward.push_back(recipe);
    recipe.format->rounding = ElementRounding::kStochastic16;
    forward.push_back(recipe);
    recipe.hadamard = 16;
    forward.push_back(recipe);
    recipe.hadamard = 64;
    recipe.signs = HadamardSignSource::kFresh;
    recipe.format->prescale = 0.75f;
    forward.push_back(recipe);
  }
  OperandRecipe turned;  // not quantized
  turned.hadamard = 32;
  forward.push_back(turned);
  OperandRecipe none, te = named("nvfp4.te"), rows = named("nvfp4.te.row-scaled"),
                      any = named("nvfp4.modelopt");
  te.hadamard = 16;
  any.hadamard = 128;
  any.signs = HadamardSignSource::kSeeded;
  OperandRecipe only_turned = any;
  only_turned.format.reset();
  double worst = 0.0;
  for (const OperandRecipe& from : forward) {
    for (OperandRecipe backward : {none, named("nvfp4.te"), te, rows, any, only_turned}) {
      OperandRecipe grad;
      grad.hadamard = backward.hadamard;
      grad.signs = backward.signs;
      backward.from_fprop = true;
      CAPTURE(from.format ? from.format->name : "none", from.hadamard,
              backward.format ? backward.format->name : "none", backward.hadamard);
      worst = std::max(
          worst,
          CheckLinear({.fprop = {from, from}, .dgrad = {grad, backward}, .wgrad = {grad, backward}},
                      data));
    }
  }
  std::printf("operands made of fprop's: largest distance of products to the CPU's %.1e\n", worst);
}

TEST_CASE("Linears on the GPU with Transformer Engine's random bits have the CPU's operands",
          "[gpu][recipes]") {
  if (NoGpu()) return;
  OperandRecipe te{.format = *FindDialect("nvfp4.te"),
                   .random = RandomGenerator::kTransformerEngine};
  te.format->rounding = ElementRounding::kStochastic8;
  OperandRecipe turned = te, decoded = te;
  turned.hadamard = 16;
  decoded.from_fprop = true;
  CheckLinear({.fprop = {te, te}, .dgrad = {te, decoded}, .wgrad = {turned, turned}},
              {.tokens = 256, .in = 256, .out = 384});
}

TEST_CASE("Linears on the GPU with binary32 scales in some operands have the CPU's operands",
          "[gpu][recipes]") {
  if (NoGpu()) return;
  const LinearData data{.tokens = 128, .in = 256, .out = 128};
  const auto operand = [](const Json& format) {
    return OperandRecipe{.format = ReadDialect(format, "test")};
  };
  const OperandRecipe rows =
      operand({{"like", "fp8_e4m3"}, {"scale", "fp32"}, {"block", {1, 128}}});
  const OperandRecipe tile =
      operand({{"like", "fp8_e4m3"}, {"scale", "fp32"}, {"block", {128, 128}}});
  OperandRecipe four =
      operand({{"like", "nvfp4.te"}, {"element", "int4"}, {"scale", "fp32"}, {"block", {1, 64}}});
  four.format->rounding = ElementRounding::kStochastic16;
  four.format->prescale = 0.75f;
  OperandRecipe te = operand("nvfp4.te"), turned = four;
  te.format->rounding = ElementRounding::kStochastic16;
  turned.hadamard = te.hadamard = 16;
  turned.signs = te.signs = HadamardSignSource::kFresh;
  const OperandRecipe none, row_scaled = operand("nvfp4.te.row-scaled");
  const auto source = [](OperandRecipe recipe) {
    recipe.from_fprop = true;
    return recipe;
  };
  double worst = 0.0;
  for (const LinearRecipe& recipe : std::vector<LinearRecipe>{
           {.fprop = {rows, tile}, .dgrad = {rows, tile}, .wgrad = {rows, source(rows)}},
           {.fprop = {four, four}, .dgrad = {four, source(four)}, .wgrad = {four, source(rows)}},
           {.fprop = {four, none}, .dgrad = {none, source(none)}, .wgrad = {none, source(none)}},
           {.fprop = {none, four}, .dgrad = {row_scaled, tile}, .wgrad = {te, turned}},
           {.fprop = {row_scaled, rows}, .dgrad = {none, none}, .wgrad = {turned, te}}}) {
    REQUIRE(HasWideOperands(recipe));
    worst = std::max(worst, CheckLinear(recipe, data));
  }
  std::printf("linears with binary32 scales: largest distance to the CPU's %.1e\n", worst);
}

// Run with: gpu_test "[speed]"
TEST_CASE("How long operands of recipes take to make", "[.speed]") {
  if (NoGpu()) return;
  OperandTimer time;
  const auto print = [&](const char* what, const OperandRecipe& recipe) {
    std::printf("%-40s 8192x4096 BF16, ms: rows %.3f, columns %.3f\n", what,
                1e3 * time(recipe, false), 1e3 * time(recipe, true));
  };
  OperandRecipe te{.format = *FindDialect("nvfp4.te")};
  print("nvfp4.te", te);
  te.hadamard = 16;
  print("nvfp4.te, H16", te);
  te.signs = HadamardSignSource::kFresh;
  for (const int size : {2, 16, 32, 128}) {
    te.hadamard = size;
    print(("nvfp4.te, H" + std::to_string(size) + ", fresh signs").c_str(), te);
  }
  const auto like = [](const Json& json) {
    return OperandRecipe{.format = ReadDialect(json, "test")};
  };
  print("mxfp4.floor, QuEST", like({{"like", "mxfp4.floor"}, {"clip", "quest"}}));
  print("nvfp4.torchao, MS-EDEN", like({{"like", "nvfp4.torchao"}, {"unbias", "ms_eden"}}));
  print("nvfp4.te of integers", like({{"like", "nvfp4.te"}, {"element", "int4"}}));
}

}  // namespace
}  // namespace fp4lab::gpu
