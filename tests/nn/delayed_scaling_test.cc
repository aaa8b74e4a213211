#include "fp4lab/nn/delayed_scaling.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "fp4lab/nn/linear.h"
#include "fp4lab/quantize/quantize.h"
#include "fp4lab/recipe/recipe.h"
#include "tests/support/catch.h"
#include "tests/support/values.h"

namespace fp4lab {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr std::size_t kTokens = 64, kIn = 96, kOut = 32;

TEST_CASE("The next step's amax is the largest of the history, or the last one", "[nn]") {
  const DelayedScaling max{.length = 3}, last{.length = 3, .most_recent = true};
  std::array<float, 4> numbers = {0, 5, 9, 7};
  AdvanceAmaxHistory(max, numbers.data());
  CHECK(numbers == std::array<float, 4>{9, 0, 5, 9});
  numbers[1] = 2;
  AdvanceAmaxHistory(last, numbers.data());
  CHECK(numbers == std::array<float, 4>{2, 0, 2, 5});
  AdvanceAmaxHistory(last, numbers.data());  // a step without an amax keeps the scale
  CHECK(numbers == std::array<float, 4>{2, 0, 0, 2});
  numbers[1] = kInf;
  AdvanceAmaxHistory(max, numbers.data());
  CHECK(numbers == std::array<float, 4>{2, 0, kInf, 0});

  const DelayedScaling one{.length = 1, .most_recent = true};
  std::array<float, 2> short_history = {3, 4};
  AdvanceAmaxHistory(one, short_history.data());
  CHECK(short_history == std::array<float, 2>{4, 0});
  AdvanceAmaxHistory({.length = 0, .most_recent = true}, short_history.data());
  CHECK(short_history == std::array<float, 2>{4, 0});
}

struct Tensors {
  Matrix<float> x, w, dy;
};

Tensors Normal() {
  return {NormalMatrix(1, kTokens, kIn), NormalMatrix(2, kOut, kIn),
          NormalMatrix(3, kTokens, kOut)};
}

struct Results {
  std::vector<float> y, dx, dw;
  friend bool operator==(const Results&, const Results&) = default;
};

Results Run(const LinearRecipe& recipe, const Tensors& t, const LinearCall& call) {
  LinearWeight weight;
  weight.w = t.w.View();
  LinearScratch scratch;
  Matrix<float> y(kTokens, kOut), dx(kTokens, kIn), dw(kOut, kIn);
  LinearForward(recipe, call, {t.x.View()}, &weight, &scratch, Write::kOverwrite, y.View());
  LinearBackward(recipe, call, {t.x.View()}, &weight, {t.dy.View()}, &scratch, dx.View(),
                 dw.View());
  return {y.values, dx.values, dw.values};
}

// The recipe, and the same with an amax history of two steps for every operand.
struct Recipes {
  LinearRecipe current, delayed;
};

Recipes RecipesOf(const char* base) {
  const Json scaling = {{"amax_history_len", 2}};
  return {ReadRecipe(base, "test").linear,
          ReadRecipe({{"base", base}, {"delayed_scaling", scaling}}, "test").linear};
}

// For each operand: the amax in use, then two floats of history.
using Histories = std::array<float, kLinearOperands * 3>;

LinearCall CallWith(Histories* histories, bool records) {
  return {.random = {42, 7, 1000},
          .histories = {.numbers = histories->data(), .stride = 3, .records = records}};
}

// The operands' amaxes of a run with current scaling; 0 where an operand is another's transpose.
std::array<float, kLinearOperands> Amaxes(const LinearRecipe& recipe, const Tensors& t) {
  std::array<float, kLinearOperands> amaxes = {};
  const OperandObserver observer = [&](const ObservedOperand& seen) {
    amaxes[seen.operand] = seen.options.amax[0];
  };
  Run(recipe, t, {.random = {42, 7, 1000}, .observer = &observer});
  return amaxes;
}

TEST_CASE("Under its own amaxes delayed scaling gives the bits of current scaling", "[nn]") {
  const bool records = GENERATE(false, true);
  const Tensors t = Normal();
  for (const char* base : {"te_fp8_currentscaling", "te_nvfp4"}) {
    CAPTURE(base);
    const Recipes recipes = RecipesOf(base);
    const std::array<float, kLinearOperands> amaxes = Amaxes(recipes.current, t);
    CHECK(amaxes[kFpropInput] > 1.0f);
    Histories histories = {};
    for (std::size_t k = 0; k < amaxes.size(); ++k) histories[3 * k] = amaxes[k];
    CHECK(Run(recipes.delayed, t, CallWith(&histories, records)) ==
          Run(recipes.current, t, {.random = {42, 7, 1000}}));
    for (std::size_t k = 0; k < amaxes.size(); ++k) {
      CAPTURE(k, records);
      const bool is_weight = k == kFpropWeight || k == kDgradWeight;
      CHECK(histories[3 * k] == amaxes[k]);
      CHECK(histories[3 * k + 1] == (records || is_weight ? amaxes[k] : 0.0f));
      CHECK(histories[3 * k + 2] == 0.0f);
    }
  }
}

void Clamp(Matrix<float>* x, float limit) {
  for (float& v : x->values) v = std::clamp(v, -limit, limit);
}

TEST_CASE("Elements beyond the amax of the steps before saturate", "[nn]") {
  const Tensors t = Normal();
  const Recipes recipes = RecipesOf("te_fp8_currentscaling");
  Histories histories = {};
  for (std::size_t k = 0; k < kLinearOperands; ++k) histories[3 * k] = 0.5f;
  Tensors clamped = t;
  for (Matrix<float>* x : {&clamped.x, &clamped.w, &clamped.dy}) Clamp(x, 0.5f);
  CHECK(Run(recipes.delayed, t, CallWith(&histories, true)) ==
        Run(recipes.current, clamped, {.random = {42, 7, 1000}}));
  // The history has the tensors' amaxes, not those that were in use.
  CHECK(histories[3 * kFpropInput + 1] == Amaxes(recipes.current, t)[kFpropInput]);
}

TEST_CASE("Before there is a history the scale is 1", "[nn]") {
  const Tensors t = Normal();
  const Recipes recipes = RecipesOf("te_fp8_currentscaling");
  Histories none = {}, largest = {};
  for (const LinearOperand k : {kFpropInput, kFpropWeight, kDgradWeight, kWgradInput}) {
    largest[3 * k] = 448.0f;
  }
  for (const LinearOperand k : {kDgradGrad, kWgradGrad}) largest[3 * k] = 57344.0f;
  CHECK(Run(recipes.delayed, t, CallWith(&none, true)) ==
        Run(recipes.delayed, t, CallWith(&largest, true)));
}

}  // namespace
}  // namespace fp4lab
