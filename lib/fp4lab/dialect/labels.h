// The enumerators of a dialect's stages by name, as recipes in JSON spell them out.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "fp4lab/dialect/dialect.h"

namespace fp4lab {

std::string_view LabelOf(LevelTwo rule);
std::string_view LabelOf(BlockScale rule);
std::string_view LabelOf(ScaleEncoding rule);
std::string_view LabelOf(Factor rule);
std::string_view LabelOf(ElementRounding rule);
std::string_view LabelOf(Adaptive rule);
std::string_view LabelOf(NanRule rule);
std::string_view LabelOf(InfScale rule);
std::string_view LabelOf(BlockStatistic rule);  // of "clip"
std::string_view LabelOf(Unbias rule);
std::string_view LabelOf(ScaleRule rule);

// The last enumerator of each stage.
constexpr LevelTwo LastOf(LevelTwo) { return LevelTwo::kTensorFp8; }
constexpr BlockScale LastOf(BlockScale) { return BlockScale::kOneBlock; }
constexpr ScaleEncoding LastOf(ScaleEncoding) { return ScaleEncoding::kBinary32; }
constexpr Factor LastOf(Factor) { return Factor::kApproximate; }
constexpr ElementRounding LastOf(ElementRounding) { return ElementRounding::kStochastic32; }
constexpr Adaptive LastOf(Adaptive) { return Adaptive::kAbsMax; }
constexpr NanRule LastOf(NanRule) { return NanRule::kTensor; }
constexpr InfScale LastOf(InfScale) { return InfScale::kNumber; }
constexpr BlockStatistic LastOf(BlockStatistic) { return BlockStatistic::kQuest; }
constexpr Unbias LastOf(Unbias) { return Unbias::kMsEden; }
constexpr ScaleRule LastOf(ScaleRule) { return ScaleRule::kTensor; }

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
