#include "fp4lab/recipe/recipe_inheritance.h"

#include <array>
#include <string_view>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/recipe/recipe.h"
#include "fp4lab/spelling/dialect_json.h"

namespace fp4lab {
namespace {

struct OperandName {
  std::string_view gemm, operand;
};
// In the order of OperandsOf.
constexpr std::array kOperandNames = {OperandName{"fprop", "input"}, OperandName{"fprop", "weight"},
                                      OperandName{"dgrad", "grad"},  OperandName{"dgrad", "weight"},
                                      OperandName{"wgrad", "grad"},  OperandName{"wgrad", "input"}};
static_assert(kOperandNames.size() == kLinearOperands);

// The recipe's base with its options and switches, without what follows them.
Recipe BaseOf(Json recipe, const std::string& where) {
  for (const char* key : {"fprop", "dgrad", "wgrad", "delayed_scaling", "accumulation",
                          "forward_only", "backward_only", "then"}) {
    recipe.erase(key);
  }
  return ReadRecipe(recipe, where);
}

// The parts that `resolved` has from `base`, with the keys of the operand's JSON that replace them.
struct Kept {
  std::vector<std::string> parts, keys;
};
Kept KeptOf(const Json& json, const OperandRecipe& base, const OperandRecipe& resolved,
            const std::string& where) {
  Kept kept;
  const auto keep = [&](const char* key, bool stays, std::string part) {
    if (!stays || json.contains(key)) return;
    kept.parts.push_back(std::move(part));
    kept.keys.push_back("\"" + std::string(key) + "\"");
  };
  const bool own_random = resolved.format && IsStochastic(ReadDialect(json.at("format"), where));
  const bool random = base.format && IsStochastic(*base.format) && resolved.format &&
                      IsStochastic(*resolved.format) && !own_random;
  keep("rounding", random,
       random ? "stochastic rounding with " +
                    std::to_string(RandomBitsOf(resolved.format->rounding)) + " bits"
              : "");
  keep("hadamard", base.hadamard != 0 && resolved.hadamard == base.hadamard,
       "the Hadamard transform of " + std::to_string(base.hadamard) + " elements");
  keep("from", base.from_fprop && resolved.from_fprop, "fprop's values as its source");
  keep("side", base.side && resolved.side == base.side, "its side term");
  keep("scale_window", base.scale_window != 0 && resolved.scale_window == base.scale_window,
       "its outer scale per 1x" + std::to_string(base.scale_window));
  keep("delayed_scaling", base.delayed.length > 0 && resolved.delayed == base.delayed,
       "delayed scaling");
  return kept;
}

}  // namespace

std::vector<std::string> InheritedParts(const Json& recipe, const std::string& where) {
  const IeeeArithmetic ieee;
  std::vector<std::string> lines;
  if (!recipe.is_object()) return lines;
  const auto add = [&](const Json& of, const std::string& place) {
    for (std::string& line : InheritedParts(of, place)) lines.push_back(std::move(line));
  };
  if (IsListOfRules(recipe)) {
    std::size_t i = 0;
    for (const Json& rule : recipe["rules"]) {
      add(rule["recipe"], where + "/rules/" + std::to_string(i++) + "/recipe");
    }
    add(recipe["rest"], where + "/rest");
    return lines;
  }
  const Recipe base = BaseOf(recipe, where), resolved = ReadRecipe(recipe, where);
  const auto base_operands = OperandsOf(base.linear), operands = OperandsOf(resolved.linear);
  for (std::size_t i = 0; i < kOperandNames.size(); ++i) {
    const auto& [gemm, operand] = kOperandNames[i];
    if (!recipe.contains(gemm) || !recipe[gemm].contains(operand)) continue;
    const Json& json = recipe[gemm][operand];
    if (!json.contains("format") || *operands[i] == *base_operands[i]) continue;
    const std::string place = where + "/" + std::string(gemm) + "/" + std::string(operand);
    const Kept kept = KeptOf(json, *base_operands[i], *operands[i], place);
    if (kept.parts.empty()) continue;
    lines.push_back(place + ": keeps " + Joined(kept.parts, ", ") + " of " + base.base +
                    "; to choose, state " + Joined(kept.keys, ", "));
  }
  if (recipe.contains("then")) add(recipe["then"]["recipe"], where + "/then/recipe");
  return lines;
}

}  // namespace fp4lab
