#include "fp4lab/study/report/figures/published_ratio.h"

#include "fp4lab/base/error.h"
#include "fp4lab/spelling/dialect_json.h"

namespace fp4lab::study {
namespace {

// Whether an operand of a resolved recipe has E2M1 elements under such scales.
bool IsFp4(const Json& operand, FormatId scale, int width) {
  const Json format = operand.value("format", Json());
  const Json none("none");
  if (format.is_null() || format == none) return false;
  try {
    const Dialect d = ReadDialect(format, "");
    return d.element == FormatId::kE2M1 && d.scale == scale && d.block_rows > 0 &&
           d.block_cols == width;
  } catch (const Error&) {  // a name of an older version
    return false;
  }
}

// Whether all operands of the arm's linears have E2M1 elements under such scales.
bool HasFp4Operands(const Results& results, const std::string& arm, FormatId scale, int width) {
  const Json& arms = results.study.at("arms");
  if (!arms.contains(arm) || !arms[arm].contains("recipe")) return false;
  const Json& recipe = arms[arm]["recipe"];
  for (const char* gemm : {"fprop", "dgrad", "wgrad"}) {
    if (!recipe.is_object() || !recipe.contains(gemm)) return false;
    for (const auto& [name, operand] : recipe[gemm].items()) {
      if (!IsFp4(operand, scale, width)) return false;
    }
  }
  return true;
}

}  // namespace

bool ComparesMxfp4WithNvfp4(const Results& results, const std::string& format,
                            const std::string& reference) {
  return HasFp4Operands(results, format, FormatId::kE8M0, 32) &&
         HasFp4Operands(results, reference, FormatId::kE4M3, 16);
}

}  // namespace fp4lab::study
