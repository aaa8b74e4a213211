// The enumerators of a dialect's stages by name, as recipes in JSON spell them out.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "fp4lab/dialect/dialect.h"

namespace fp4lab {

template <class Enum>
constexpr std::string_view LabelOf(Enum rule) {
  return WithFormula<std::string_view>(rule, LabelOfFormula{});
}

// All labels of an enumeration, in its order.
template <class Enum>
std::vector<std::string_view> LabelsOf() {
  std::vector<std::string_view> labels;
  for (std::uint8_t i = 0; i <= static_cast<std::uint8_t>(LastOf(Enum{})); ++i) {
    labels.push_back(LabelOf(static_cast<Enum>(i)));
  }
  return labels;
}

template <class Enum>
std::optional<Enum> FindLabel(std::string_view label) {
  for (std::uint8_t i = 0; i <= static_cast<std::uint8_t>(LastOf(Enum{})); ++i) {
    if (LabelOf(static_cast<Enum>(i)) == label) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace fp4lab
