// Outer scales per window on the GPU: linears with them against the CPU's. Observers show the
// matrices of windows, bit for bit.
#include <string>
#include <vector>

#include "fp4lab/recipe/recipe.h"
#include "tests/gpu/operands.h"

namespace fp4lab::gpu {
namespace {

// Values whose size changes from window to window and from row to row, with zeros.
std::vector<float> Uneven(std::uint64_t seed, std::size_t rows, std::size_t cols,
                          double deviation) {
  std::vector<float> x = Normal(seed, rows * cols, deviation);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t r = i / cols, c = i % cols;
    x[i] = std::ldexp(x[i], static_cast<int>((3 * r + c / 32) % 11) - 5);
    if (r % 5 == 1 && c >= 64) x[i] = 0.0f;
  }
  return RoundedTo<Bf16>(std::move(x));
}

LinearData Data(std::size_t tokens, std::size_t in, std::size_t out) {
  LinearData data{.tokens = tokens, .in = in, .out = out};
  data.x = Uneven(1, tokens, in, 1.0);
  data.w = Uneven(2, out, in, 0.1);
  data.dy = Uneven(3, tokens, out, 1e-4);
  return data;
}

OperandRecipe Operand(const char* dialect, int window, ElementRounding rounding, int hadamard = 0) {
  OperandRecipe recipe{.format = *FindDialect(dialect), .hadamard = hadamard};
  recipe.format->rounding = rounding;
  recipe.scale_window = window;
  return recipe;
}

constexpr ElementRounding kNearest = ElementRounding::kNearestEven,
                          kRandomly = ElementRounding::kStochastic16;

TEST_CASE("Linears with windows of scales on the GPU have the CPU's operands and products",
          "[gpu][recipes]") {
  if (NoGpu()) return;
  double worst = 0.0;
  for (const LinearData& data : {Data(128, 256, 128), Data(96, 144, 176)}) {
    for (const int window : {64, 128}) {
      for (const int hadamard : {0, 16}) {
        CAPTURE(window, hadamard, data.tokens);
        const OperandRecipe own = Operand("nvfp4.te", window, kNearest, hadamard),
                            random = Operand("nvfp4.te", window, kRandomly, hadamard),
                            whole = Operand("nvfp4.te", 0, kNearest, hadamard);
        for (const LinearRecipe& recipe : std::vector<LinearRecipe>{
                 {.fprop = {own, own}, .dgrad = {random, own}, .wgrad = {random, own}},
                 {.fprop = {own, whole}, .dgrad = {whole, own}, .wgrad = {random, whole}},
                 {.fprop = {whole, own}, .dgrad = {random, whole}, .wgrad = {whole, random}}}) {
          REQUIRE(HasWideOperands(recipe));
          worst = std::max(worst, CheckLinear(recipe, data));
        }
      }
    }
  }
  std::printf("linears with windows of scales: largest distance to the CPU's %.1e\n", worst);
}

TEST_CASE("Windows on the GPU in other formats, and beside scales of rows", "[gpu][recipes]") {
  if (NoGpu()) return;
  const LinearData data = Data(128, 256, 128);
  const OperandRecipe rows{.format = *FindDialect("nvfp4.te.row-scaled")};
  for (const char* name : {"nvfp4.torchao", "nvfp4.modelopt", "nvfp4.te.4over6.mse.256"}) {
    CAPTURE(name);
    const OperandRecipe own = Operand(name, 64, kNearest),
                        turned = Operand(name, 128, kRandomly, 64);
    CheckLinear({.fprop = {own, rows}, .dgrad = {rows, own}, .wgrad = {turned, turned}}, data);
  }
}

TEST_CASE("Operands on the GPU made of values under windows of scales", "[gpu][recipes]") {
  if (NoGpu()) return;
  const OperandRecipe own = Operand("nvfp4.te", 64, kNearest);
  OperandRecipe source = Operand("nvfp4.te", 128, kNearest),
                whole = Operand("nvfp4.te", 0, kNearest);
  source.from_fprop = whole.from_fprop = true;
  for (const OperandRecipe& backward : {source, whole}) {
    CheckLinear({.fprop = {own, own}, .dgrad = {own, backward}, .wgrad = {own, backward}},
                Data(128, 256, 128));
  }
}

TEST_CASE("A patch on the GPU gives back the residual under windows of scales", "[gpu][recipes]") {
  if (NoGpu()) return;
  OperandRecipe patched = Operand("nvfp4.te", 64, kNearest);
  patched.side = {.kind = SideTermKind::kPatch, .channels = 3};
  const OperandRecipe whole = Operand("nvfp4.te", 0, kNearest);
  CheckLinear({.fprop = {patched, whole}, .dgrad = {patched, whole}, .wgrad = {patched, patched}},
              Data(128, 256, 128));
}

}  // namespace
}  // namespace fp4lab::gpu
