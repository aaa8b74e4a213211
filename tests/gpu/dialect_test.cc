// Operands quantized in any dialect on the GPU against the CPU's, bit for bit; alpha; row scales.
#include <algorithm>
#include <bit>
#include <string>

#include "fp4lab/recipe/recipe.h"
#include "tests/gpu/operands.h"

namespace fp4lab::gpu {
namespace {

// A dialect's own rounding, stochastic roundings by every generator, and truncation.
std::vector<OperandRecipe> Roundings(const Dialect& d) {
  std::vector<OperandRecipe> recipes = {{.format = d}};
  const auto add = [&](ElementRounding rounding, RandomGenerator generator) {
    recipes.push_back({.format = d, .random = generator});
    recipes.back().format->rounding = rounding;
  };
  for (const ElementRounding rounding :
       {ElementRounding::kStochastic4, ElementRounding::kStochastic8,
        ElementRounding::kStochastic16, ElementRounding::kStochastic32}) {
    add(rounding, RandomGenerator::kPhilox);
  }
  add(ElementRounding::kStochastic8, RandomGenerator::kTransformerEngine);
  add(ElementRounding::kStochastic8, RandomGenerator::kLinearCounter);
  add(ElementRounding::kStochastic32, RandomGenerator::kLinearCounter);
  add(ElementRounding::kStochastic4, RandomGenerator::kWordPerRow);
  add(ElementRounding::kStochastic16, RandomGenerator::kWordPerRow);
  add(ElementRounding::kTowardZero, RandomGenerator::kPhilox);
  return recipes;
}

Dialect Like(const char* name, int rows, int cols) {
  Dialect d = *FindDialect(name);
  d.block_rows = rows;
  d.block_cols = cols;
  return d;
}

// Dialects that a recipe can state and no row of the table has: other blocks, elements and scales.
std::vector<Dialect> Unlisted() {
  std::vector<Dialect> all;
  for (const FormatId scale : {FormatId::kUE4M3, FormatId::kUE5M3, FormatId::kE5M2}) {
    all.push_back(*FindDialect("nvfp4.te"));
    all.back().scale = scale;
    all.back().scale_max = MaxFinite(scale);
  }
  for (const FormatId element :
       {FormatId::kE2M3, FormatId::kE3M2, FormatId::kE4M3, FormatId::kE5M2}) {
    for (const ElementRounding rounding :
         {ElementRounding::kTiesAway, ElementRounding::kHalfAdded, ElementRounding::kBf16First}) {
      all.push_back(*FindDialect("nvfp4.compressed-tensors"));
      all.back().element = element;
      all.back().rounding = rounding;
    }
  }
  for (const FormatId element : {FormatId::kE2M3, FormatId::kE3M2}) {
    all.push_back(*FindDialect("nvfp4.ggml"));
    all.back().element = element;
  }
  for (const int size : {8, 24, 32, 64, 128}) {
    all.push_back(Like("nvfp4.te", 1, size));
    all.push_back(Like("nvfp4.te", size, size));
    all.push_back(Like("mxfp8_e4m3.even", 1, size));
    all.push_back(Like("mxfp4.microxcaling", size, size));
  }
  all.push_back(Like("nvfp4.te.4over6.mse.256", 32, 32));
  all.push_back(Like("nvfp4.te.4over6.mae.448", 24, 24));
  all.push_back(Like("nvfp4.fouroversix.abs-max", 8, 8));
  for (const char* name : {"fp8_e4m3", "fp8_e5m2"}) {  // one scale a row
    all.push_back(*FindDialect(name));
    all.back().row_scaled = true;
  }
  return all;
}

TEST_CASE("Every dialect's values on the GPU are the CPU's, rounded in every way", "[gpu]") {
  if (NoGpu()) return;
  const std::vector<float> x = Values(64 * 96, false), special = Values(64 * 96, true);
  for (const Dialect& d : Dialects()) {
    for (const OperandRecipe& recipe : Roundings(d)) {
      for (const bool along_rows : {false, true}) {
        CAPTURE(d.name, static_cast<int>(recipe.format->rounding), static_cast<int>(recipe.random));
        const Place place{64, 96, along_rows};
        CheckOperandOfBoth(recipe, place, x);
        if (recipe.random == RandomGenerator::kPhilox) CheckOperandOfBoth(recipe, place, special);
      }
    }
  }
}

TEST_CASE("Dialects that no row names have the CPU's values on the GPU", "[gpu]") {
  if (NoGpu()) return;
  for (const Dialect& d : Unlisted()) {
    CAPTURE(static_cast<int>(d.element), static_cast<int>(d.scale), d.block_rows, d.block_cols,
            static_cast<int>(d.rounding));
    OperandRecipe random{.format = d};
    random.format->rounding = ElementRounding::kStochastic32;
    for (const OperandRecipe& recipe : {OperandRecipe{.format = d}, random}) {
      for (const bool along_rows : {false, true}) {
        CheckOperandOfBoth(recipe, {128, 256, along_rows}, Values(128 * 256, false));
        CheckOperandOfBoth(recipe, {128, 256, along_rows}, Values(128 * 256, true));
      }
    }
  }
}

TEST_CASE("Any shape is served in any dialect, and after a Hadamard transform", "[gpu]") {
  if (NoGpu()) return;
  std::vector<float> x = RoundedTo<Bf16>(Values(64 * 96, false));
  for (const Dialect& d : Dialects()) {
    CAPTURE(d.name);
    OperandRecipe recipe{.format = d};
    for (const bool along_rows : {false, true}) {
      recipe.hadamard = 0;
      if (PlanOf(recipe).kernel == OperandKernel::kDialects) {
        CheckOperandOfBoth(recipe, {37, 45, along_rows}, Values(37 * 45, true));
        CheckOperandOfBoth(recipe, {3, 700, along_rows}, Values(3 * 700, false));
      }
      for (const int hadamard : {16, 32}) {
        recipe.hadamard = hadamard;
        CheckOperandOfBoth(recipe, {64, 96, along_rows}, x);
      }
    }
  }
}

TEST_CASE("Transformer Engine's random bits in tensors of many tiles are the CPU's", "[gpu]") {
  if (NoGpu()) return;
  OperandRecipe recipe{.format = *FindDialect("nvfp4.te"),
                       .random = RandomGenerator::kTransformerEngine};
  recipe.format->rounding = ElementRounding::kStochastic8;
  for (const bool along_rows : {false, true}) {
    for (const Place& place :
         {Place{256, 384, along_rows}, {130, 272, along_rows}, {37, 700, along_rows}}) {
      CheckOperandOfBoth(recipe, place, Normal(8, place.rows * place.cols));
    }
  }
}

TEST_CASE("alpha of any two dialects on the GPU is the CPU's", "[gpu]") {
  if (NoGpu()) return;
  const float inf = INFINITY, nan = std::nanf("");
  const std::vector<std::pair<float, float>> amaxes = {
      {3.7f, 0.0123f}, {0.0f, 1.5f}, {inf, 2.0f}, {0x1p-140f, 0x1p100f}, {nan, 1.0f}};
  std::vector<std::optional<Dialect>> others = {std::nullopt};
  for (const char* name : {"nvfp4.te", "mxfp4.rceil", "fp8_e4m3", "nvfp4.modelopt"}) {
    others.push_back(*FindDialect(name));
  }
  for (const auto& [amax_a, amax_b] : amaxes) {
    const auto amax = ToDevice(std::vector<std::uint32_t>{std::bit_cast<std::uint32_t>(amax_a),
                                                          std::bit_cast<std::uint32_t>(amax_b)});
    for (const Dialect& a : Dialects()) {
      for (const auto& b : others) {
        CAPTURE(a.name, b ? b->name : "none", amax_a, amax_b);
        auto alpha = Poisoned<float>(2);
        WriteAlpha(DialectAlphaJob{a, b, amax.data(), amax.data() + 1, alpha.data()}, nullptr);
        WriteAlpha(DialectAlphaJob{b, a, amax.data() + 1, amax.data(), alpha.data() + 1}, nullptr);
        const std::vector<float> want = {
            b ? GemmAlpha(a, amax_a, *b, amax_b) : OperandDecode(a, amax_a),
            b ? GemmAlpha(*b, amax_b, a, amax_a) : OperandDecode(a, amax_a)};
        CHECK(Different(ToHost(alpha), want) == 0);
      }
    }
  }
}

template <class D>
void CheckScaleRows(bool by_row, bool by_column, bool adds) {
  constexpr std::size_t kRows = 37, kCols = 300;
  const std::vector<float> product = Normal(1, kRows * kCols), rows = Normal(2, kRows),
                           cols = Normal(3, kCols), c = Normal(4, kRows * kCols);
  const auto at = [](bool wanted, const DeviceArray<float>& x) {
    return wanted ? x.data() : nullptr;
  };
  const auto device_rows = ToDevice(rows), device_cols = ToDevice(cols);
  const auto device_product = ToDevice(product), device_c = ToDevice(c);
  auto d = Poisoned<D>(kRows * kCols);
  ScaleRows(device_product.data(), kRows, kCols, at(by_row, device_rows),
            at(by_column, device_cols), at(adds, device_c), d.data(), nullptr);
  std::vector<float> want = product;
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (by_row) want[i] *= rows[i / kCols];
    if (by_column) want[i] *= cols[i % kCols];
    if (adds) want[i] = c[i] + want[i];
  }
  CHECK(Different(FloatsOf(d), RoundedTo<D>(want)) == 0);
}

TEST_CASE("Scales of rows are applied after the GPU's product, in the CPU's order", "[gpu]") {
  if (NoGpu()) return;
  for (const bool by_row : {false, true}) {
    for (const bool by_column : {false, true}) {
      for (const bool adds : {false, true}) {
        CAPTURE(by_row, by_column, adds);
        CheckScaleRows<float>(by_row, by_column, adds);
        CheckScaleRows<Bf16>(by_row, by_column, adds);
      }
    }
  }
}

// The operands of gradients take recipe `b`, all others `a`.
LinearRecipe Recipe(const OperandRecipe& a, const OperandRecipe& b) {
  return {.bf16 = true, .fprop = {a, a}, .dgrad = {b, a}, .wgrad = {b, a}};
}

std::vector<LinearRecipe> LinearRecipes() {
  const auto named = [](const char* name) { return OperandRecipe{.format = *FindDialect(name)}; };
  std::vector<LinearRecipe> recipes;
  const OperandRecipe te = named("nvfp4.te"), none;
  OperandRecipe fp8_rows = named("fp8_e4m3"), turned = named("nvfp4.te.4over6.mse.256");
  fp8_rows.format->row_scaled = true;
  turned.hadamard = 16;
  turned.format->rounding = ElementRounding::kStochastic8;
  for (const OperandRecipe& any :
       {named("nvfp4.te.row-scaled"), fp8_rows, named("nvfp4.te.4over6.mae.256.row-scaled"),
        named("nvfp4.modelopt"), named("nvfp4.te.reference.2d"), named("mxfp4.torchao.rceil"),
        turned}) {
    for (const OperandRecipe& other : {any, te, none}) {
      recipes.push_back(Recipe(any, other));
      recipes.push_back(Recipe(other, any));
    }
  }
  LinearRecipe mixed = ReadRecipe(Json("te_nvfp4"), "test").linear;
  mixed.fprop.a = named("nvfp4.te.row-scaled");
  recipes.push_back(mixed);
  mixed = ReadRecipe(Json("te_nvfp4"), "test").linear;
  mixed.wgrad.b = turned;
  recipes.push_back(mixed);
  mixed = ReadRecipe(Json("te_nvfp4"), "test").linear;
  mixed.dgrad.a = named("nvfp4.te.4over6.mse.256");
  recipes.push_back(mixed);
  return recipes;
}

TEST_CASE("Linears on the GPU with operands in any dialect are the CPU's", "[gpu]") {
  if (NoGpu()) return;
  const LinearData data;
  std::size_t seen = 0, different = 0;
  const OperandObserver look = [&](const ObservedOperand& operand) {
    const MatrixView<const float> before = operand.before;
    Matrix<float> again(before.rows, before.cols), decoded(before.rows, before.cols);
    fp4lab::QuantizeToValues(operand.dialect, before, operand.options, again.View());
    ToOperandValues(operand.dialect, operand.quantized, decoded.View());
    ++seen;
    for (std::size_t r = 0; r < before.rows; ++r) {
      for (std::size_t c = 0; c < before.cols; ++c) {
        different += again(r, c) != operand.values(r, c);
        different += decoded(r, c) != operand.values(r, c);
      }
    }
  };
  double worst = 0.0;
  for (const LinearRecipe& recipe : LinearRecipes()) {
    const auto name = [](const OperandRecipe& o) { return o.format ? o.format->name : "none"; };
    CAPTURE(name(recipe.fprop.a), name(recipe.fprop.b), name(recipe.dgrad.a));
    const Products want = OnCpu(recipe, data);
    const Products got = OnDevice<float>(recipe, data, nullptr);
    for (const auto& [a, b] :
         {std::pair(&got.y, &want.y), {&got.dx, &want.dx}, {&got.dw, &want.dw}}) {
      worst = std::max(worst, Distance(*a, *b));
      CHECK(Distance(*a, *b) < 2e-6);
    }
    CHECK(Different(OnDevice<Bf16>(recipe, data, nullptr).dx, RoundedTo<Bf16>(got.dx)) == 0);
    OnDevice<float>(recipe, data, &look);
  }
  std::printf("linears of any dialect: largest distance to the CPU's %.1e\n", worst);
  CHECK(seen > 0);
  CHECK(different == 0);
}

// Run with: gpu_test "[speed]"
TEST_CASE("How long operands take to make", "[.speed]") {
  if (NoGpu()) return;
  OperandTimer time;
  std::vector<Dialect> dialects;
  for (const char* name :
       {"nvfp4.te", "nvfp4.te.2d", "mxfp4.rceil", "fp8_e4m3", "nvfp4.te.reference",
        "nvfp4.modelopt", "nvfp4.te.reference.2d", "nvfp4.te.row-scaled", "nvfp4.te.4over6.mse.256",
        "nvfp4.te.4over6.mse.256.2d", "mxfp4.torchao.rceil", "mxfp4.ggml",
        "mxfp8_e4m3.torchao.rceil"}) {
    dialects.push_back(*FindDialect(name));
  }
  dialects.push_back(Like("nvfp4.te", 1, 128));
  dialects.push_back(Like("nvfp4.te", 128, 128));
  for (const Dialect& d : dialects) {
    OperandRecipe nearest{.format = d}, random{.format = d};
    const bool tuned = PlanOf(nearest).kernel == OperandKernel::kUnits;
    random.format->rounding =
        tuned ? ElementRounding::kStochastic16 : ElementRounding::kStochastic8;
    std::printf(
        "%-30s %3dx%-3d %s  8192x4096 BF16, ms: rows %.3f, columns %.3f; at random %.3f, %.3f\n",
        std::string(d.name).c_str(), d.block_rows, d.block_cols, tuned ? "tuned" : "any  ",
        1e3 * time(nearest, false), 1e3 * time(nearest, true), 1e3 * time(random, false),
        1e3 * time(random, true));
  }
}

}  // namespace
}  // namespace fp4lab::gpu
