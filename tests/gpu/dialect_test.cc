// Operands in any dialect made on the GPU against the CPU's, bit for bit; alpha; scales of rows.
#include <algorithm>
#include <bit>
#include <chrono>
#include <string>

#include "fp4lab/dialect/blocks.h"
#include "fp4lab/dialect/operand.h"
#include "fp4lab/gpu/operand.cuh"
#include "fp4lab/train/recipe.h"
#include "fp4lab/transform/hadamard.h"
#include "tests/gpu/device.h"

namespace fp4lab::gpu {
namespace {

constexpr RandomStream kRandom{42, 7, 100};
constexpr LinearOperand kOperand = kDgradGrad;

// Blocks of widely different size, zeros, tiny and huge values; with `specials` NaN and Inf too.
std::vector<float> Values(std::size_t size, bool specials) {
  std::vector<float> x = Normal(11, size);
  for (std::size_t i = 0; i < size; ++i) {
    x[i] = std::ldexp(x[i], static_cast<int>(i / 48 % 23) - 12);
  }
  const auto fill = [&](std::size_t first, std::size_t count, float value) {
    for (std::size_t i = first; i < std::min(first + count, size); ++i) x[i] = value;
  };
  fill(320, 32, 0.0f);
  fill(321, 1, -0.0f);
  fill(640, 32, 0x1p-130f);
  fill(1000, 1, 0x1p-133f);
  if (specials) {
    fill(1100, 1, std::nanf(""));
    fill(1101, 1, -std::nanf(""));
    fill(1300, 1, INFINITY);
    fill(1500, 1, -INFINITY);
  }
  return x;
}

// What the tests call on the device with; the amax is one place for each operand of a linear.
struct Memory {
  DeviceArray<std::uint32_t> amax = ToDevice(std::vector<std::uint32_t>(kLinearOperands, 0));
  DeviceArray<float> alpha = Poisoned<float>(3);
  DeviceCall Call() const {
    return {.random = kRandom, .amax = amax.data(), .alpha = alpha.data()};
  }
};

struct Expected {
  std::vector<float> values;  // in the memory order of x
  std::vector<float> amax;
};

Expected OnCpu(const OperandRecipe& recipe, const Place& place, std::vector<float> x) {
  MatrixView<float> view(x.data(), place.rows, place.cols);
  if (place.along_rows) view = view.Transposed();
  if (recipe.hadamard != 0) {
    RandomHadamard(view, recipe.hadamard, recipe.hadamard == 16 ? kTeSignMask16 : kTeSignMask32,
                   view);
  }
  DialectOptions options{.source = RandomSource{kRandom, recipe.random}};
  options.source->stream.tensor += static_cast<std::uint32_t>(kOperand);
  options.amax = LevelTwoAmax(*recipe.format, view, {});
  fp4lab::QuantizeToValues(*recipe.format, view, options, view);
  return {std::move(x), options.amax};
}

template <class T>
void CheckOperand(const OperandRecipe& recipe, const Place& place, std::vector<float> x) {
  x = RoundedTo<T>(std::move(x));
  const Memory memory;
  const auto device = ToDeviceAs<T>(x);
  auto out = Poisoned<T>(x.size());
  RowScales rows;
  const Operand<T> made = Prepare(recipe, kOperand, memory.Call(), place, device.data(),
                                  memory.amax.data() + kOperand, out.data(), &rows);
  const Expected want = OnCpu(recipe, place, x);
  CHECK(made.values == out.data());
  CHECK(Different(FloatsOf(out), RoundedTo<T>(want.values)) == 0);
  CHECK(Different(FloatsOf(device), x) == 0);
  if (HasAlpha(recipe)) {
    const float amax = std::bit_cast<float>(ToHost(memory.amax)[kOperand]);
    CHECK(Different({amax}, want.amax) == 0);
  }
  CHECK((made.row_decode != nullptr) == HasRowScales(recipe));
  if (!HasRowScales(recipe)) return;
  std::vector<float> decode(want.amax.size()), got(want.amax.size());
  std::transform(want.amax.begin(), want.amax.end(), decode.begin(),
                 [&](float amax) { return OperandDecode(*recipe.format, amax); });
  REQUIRE(cudaMemcpy(got.data(), made.row_decode, got.size() * sizeof(float),
                     cudaMemcpyDeviceToHost) == cudaSuccess);
  CHECK(Different(got, decode) == 0);
}

void CheckOperandOfBoth(const OperandRecipe& recipe, const Place& place,
                        const std::vector<float>& x) {
  CAPTURE(place.rows, place.cols, place.along_rows, recipe.hadamard);
  CheckOperand<Bf16>(recipe, place, x);
  CheckOperand<float>(recipe, place, x);
}

// The dialect's own rounding, and at random, by every generator.
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

// What no row has and a recipe can say: other blocks, elements and scales.
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
         {ElementRounding::kTiesUp, ElementRounding::kHalfAdded, ElementRounding::kBf16First}) {
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
      if (TakesAnyDialect(recipe)) {
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

TEST_CASE("Scales of rows come after the product, in the CPU's order", "[gpu]") {
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

// One linear, forward and backward, with numbers already in y and dw.
struct Products {
  std::vector<float> y, dx, dw;
};
constexpr std::size_t kTokens = 64, kIn = 96, kOut = 32;

struct LinearData {
  std::vector<float> x = RoundedTo<Bf16>(Normal(1, kTokens*kIn)), w = Normal(2, kOut*kIn, 0.1),
                     dy = RoundedTo<Bf16>(Normal(3, kTokens*kOut, 1e-4)),
                     y = Normal(4, kTokens*kOut), dw = Normal(5, kOut*kIn, 1e-3);
};

Products OnCpu(const LinearRecipe& recipe, const LinearData& data) {
  Products out{data.y, std::vector<float>(kTokens * kIn), data.dw};
  const MatrixView<const float> x(data.x.data(), kTokens, kIn), dy(data.dy.data(), kTokens, kOut);
  fp4lab::LinearWeight weight;
  weight.w = {data.w.data(), kOut, kIn};
  fp4lab::LinearScratch scratch;
  const LinearCall call{kRandom};
  fp4lab::LinearForward(recipe, call, {x}, &weight, &scratch, Write::kAccumulate,
                        {out.y.data(), kTokens, kOut});
  fp4lab::LinearBackward(recipe, call, {x}, &weight, {dy}, &scratch, {out.dx.data(), kTokens, kIn},
                         {out.dw.data(), kOut, kIn});
  return out;
}

// Twice: the second time with the weight's operands of the first.
template <class D>
Products OnDevice(const LinearRecipe& recipe, const LinearData& data,
                  const OperandObserver* observer) {
  Gemms gemms(nullptr);
  auto x = ToDeviceAs<Bf16>(data.x), dy = ToDeviceAs<Bf16>(data.dy);
  const auto w = ToDevice(data.w), c = ToDevice(data.y);
  const auto weight_amax = Poisoned<std::uint32_t>(2);
  DeviceWeight<Bf16> weight;
  weight.w = w.data();
  weight.out = kOut;
  weight.in = kIn;
  weight.amax = weight_amax.data();
  DeviceScratch<Bf16> scratch;
  scratch.a = Poisoned<Bf16>(kTokens * kIn);
  scratch.b = Poisoned<Bf16>(kTokens * kIn);
  Products out;
  for (int i = 0; i < 2; ++i) {
    const Memory memory;
    DeviceCall call = memory.Call();
    call.gemms = &gemms;
    call.observer = observer;
    auto y = Poisoned<float>(kTokens * kOut);
    auto dx = Poisoned<D>(kTokens * kIn);
    auto dw = ToDevice(data.dw);
    const bool is_operand = LinearForward(recipe, call, kTokens, true, AmaxPlaces{}, x.data(),
                                          false, &weight, &scratch, c.data(), y.data());
    LinearBackward(recipe, call, kTokens, AmaxPlaces{}, x.data(), is_operand, &weight, dy.data(),
                   &scratch, dx.data(), dw.data());
    Products now{ToHost(y), FloatsOf(dx), ToHost(dw)};
    if (i > 0) {
      CHECK(Different(now.y, out.y) == 0);
      CHECK(Different(now.dx, out.dx) == 0);
      CHECK(Different(now.dw, out.dw) == 0);
    }
    out = std::move(now);
  }
  return out;
}

// Every operand in `a`, or those of gradients in `b`.
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
  const OperandObserver look = [&](LinearOperand, MatrixView<const float> before,
                                   MatrixView<const float> values, const Dialect& dialect,
                                   const DialectOptions& options) {
    Matrix<float> again(before.rows, before.cols);
    fp4lab::QuantizeToValues(dialect, before, options, again.View());
    ++seen;
    for (std::size_t r = 0; r < before.rows; ++r) {
      for (std::size_t c = 0; c < before.cols; ++c) different += again(r, c) != values(r, c);
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

// gpu_test "[speed]"
TEST_CASE("How long operands take to make", "[.speed]") {
  if (NoGpu()) return;
  constexpr std::size_t kRows = 8192, kCols = 4096;
  const auto x = ToDeviceAs<Bf16>(Normal(1, kRows * kCols));
  auto out = Poisoned<Bf16>(kRows * kCols);
  const Memory memory;
  RowScales rows;
  const auto time = [&](const OperandRecipe& recipe, bool along_rows) {
    const auto run = [&](int count) {
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < count; ++i) {
        Prepare(recipe, kOperand, memory.Call(), {kRows, kCols, along_rows}, x.data(),
                memory.amax.data() + kOperand, out.data(), &rows);
      }
      REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    run(2);
    return run(10) / 10;
  };
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
    const bool tuned = !TakesAnyDialect(nearest);
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
