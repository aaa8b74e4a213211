// Formula<enumerator>: a struct per enumerator of a stage, with label, text and function of the
// formula.
#pragma once

#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

namespace fp4lab {

// Example: Formula<Factor::kReciprocal>. The header of a stage defines the enumeration and LastOf,
// its last enumerator, and documents the members of its structs: block_scale_rules.h,
// tensor_scale_rules.h, scale_encodings.h, factors.h, element_roundings.h, other_rules.h. All
// structs have kLabel, the name in JSON; most have kText, the formula with its roundings.
//
// To add a formula: add an enumerator before the last and its struct. A struct without a required
// member does not compile, because every use ranges over the whole enumeration.
//
// Arithmetic is binary32, RNE, subnormals kept, nothing contracted; fl(.) is one rounding.
template <auto kEnumerator>
struct Formula;

// Returns use(Formula<enumerator>{}) for an enumerator known at run time. `use` is a functor, not a
// lambda, because device code calls WithFormula.
template <class Result, class Enum, class Use, std::size_t... kIndex>
constexpr Result WithFormula(Enum enumerator, const Use& use, std::index_sequence<kIndex...>) {
  Result result{};
  static_cast<void>(((static_cast<std::size_t>(enumerator) == kIndex &&
                      (result = use(Formula<static_cast<Enum>(kIndex)>{}), true)) ||
                     ...));
  return result;
}
template <class Result, class Enum, class Use>
constexpr Result WithFormula(Enum enumerator, const Use& use) {
  constexpr std::size_t kCount = static_cast<std::size_t>(LastOf(Enum{})) + 1;
  return WithFormula<Result>(enumerator, use, std::make_index_sequence<kCount>());
}

// The base of formulas whose answer is a set: those computed by approximate instructions
// (dialect/approximate.h has the results that are allowed).
struct ApproximateFormula {};
struct FormulaIsApproximate {
  template <class F>
  constexpr bool operator()(F) const {
    return std::is_base_of_v<ApproximateFormula, F>;
  }
};

struct LabelOfFormula {
  template <class F>
  constexpr std::string_view operator()(F) const {
    return F::kLabel;
  }
};
struct TextOfFormula {
  template <class F>
  constexpr std::string_view operator()(F) const {
    return F::kText;
  }
};
struct ShortOfFormula {
  template <class F>
  constexpr auto operator()(F) const {
    return F::kShort;
  }
};

}  // namespace fp4lab
