// Classes of recipes by what their GEMMs multiply, for a league's tables.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "fp4lab/recipe/recipe.h"
#include "fp4lab/train/config.h"

namespace fp4lab::study {

// The operands of fprop: the wider one, and the scales of a 4-bit input. NVFP4: E4M3 on blocks of
// 16 under a scale of the tensor.
enum class ForwardClass { kNvfp4, kOther4, kMxfp4, k8Bits, kWide };
inline constexpr std::array<std::string_view, 5> kForwardClasses = {"NVFP4", "another 4-bit format",
                                                                    "MXFP4", "8 bits", "BF16"};
ForwardClass ForwardClassOf(const Recipe& recipe);

// Which GEMMs of which blocks multiply elements of how many bits.
inline constexpr std::array<std::string_view, 12> kPlanClasses = {
    "8 bits or BF16 in all GEMMs",
    "BF16 forward, 4 bits backward",
    "8 bits forward, 4 bits backward",
    "NVFP4 forward, 8 bits or BF16 backward",
    "NVFP4",
    "another 4-bit format forward",
    "MXFP4 forward, 8 bits or BF16 backward",
    "MXFP4",
    "NVFP4 or alike, some blocks in BF16",
    "NVFP4 in some linears only",
    "MXFP4, some blocks in BF16",
    "NVFP4, BF16 in some GEMMs at the end"};
inline constexpr std::size_t kEightBitPlan = 0, kNvfp4Plan = 4;
std::size_t PlanClassOf(const Recipe& recipe, const ModelConfig& model);  // of kPlanClasses

// Whether the recipe leaves linears, blocks or the end of training to wider products.
bool IsPartial(const Recipe& recipe, const ModelConfig& model);

// How many of the six operands are transformed by a Hadamard transform, are rounded stochastically,
// choose between two scales a block (four over six), and have scales corrected by MS-EDEN. Recipes
// that follow in "then" do not count.
struct RecipeExtras {
  int hadamard = 0, stochastic = 0, two_scales = 0, ms_eden = 0;
  friend bool operator==(const RecipeExtras&, const RecipeExtras&) = default;
};
RecipeExtras ExtrasOf(const Recipe& recipe);

}  // namespace fp4lab::study
