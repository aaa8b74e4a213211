#include "fp4lab/study/report/tables/operand_name.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace fp4lab::study {

OperandName ParseOperandName(const std::string& name) {
  std::string rest = name;
  const auto take_last = [&] {
    const std::size_t dot = rest.rfind('.');
    const std::string last = dot == rest.npos ? rest : rest.substr(dot + 1);
    rest = dot == rest.npos ? "" : rest.substr(0, dot);
    return last;
  };
  OperandName parts;
  parts.operand = take_last();
  parts.gemm = take_last();
  parts.linear = rest;
  if (rest.starts_with("blocks.")) {
    const std::size_t dot = rest.find('.', 7);
    parts.block = rest.substr(7, dot - 7);
    parts.linear = dot == rest.npos ? "" : rest.substr(dot + 1);
  }
  return parts;
}

std::size_t PlaceOfGemm(const std::string& gemm) {
  constexpr std::array<std::string_view, 3> kGemms = {"fprop", "dgrad", "wgrad"};
  return static_cast<std::size_t>(std::find(kGemms.begin(), kGemms.end(), gemm) - kGemms.begin());
}

std::string LabelWithUnit(const Diagnostic& diagnostic) {
  const std::string label(diagnostic.label);
  return diagnostic.unit.empty() ? label : label + ", " + std::string(diagnostic.unit);
}

}  // namespace fp4lab::study
