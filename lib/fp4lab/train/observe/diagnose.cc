#include "fp4lab/train/observe/diagnose.h"

#include <cmath>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/spelling/dialect_json.h"

namespace fp4lab {
namespace {

// Adds the diagnostics that were measured to `json`, under the names in the member `key` of
// Diagnostic.
Json WithNumbers(Json json, const TensorStatistics& tensor, std::string_view Diagnostic::*key) {
  std::size_t i = 0;
  for (const Diagnostic& diagnostic : Diagnostics()) {
    const double value = tensor.values.numbers[i++];
    if (std::isfinite(value)) json[std::string(diagnostic.*key)] = value;
  }
  return json;
}

}  // namespace

TensorStatistics MeasureOperand(const std::string& linear, const ObservedOperand& operand) {
  const IeeeArithmetic ieee;
  const Json format = ToJson(operand.dialect);
  return {linear + "." + std::string(OperandName(operand.operand)),
          format.is_string() ? format.get<std::string>() : format.dump(),
          MeasureQuantization(operand.dialect, operand.before, operand.quantized).values};
}

Json ToJson(const TensorStatistics& tensor) {
  const IeeeArithmetic ieee;
  return WithNumbers({{"name", tensor.name}, {"format", tensor.format}}, tensor, &Diagnostic::key);
}

TensorStatistics ReadTensorStatistics(const Json& json, const std::string& where) {
  const IeeeArithmetic ieee;
  JsonObject o(json, where);
  TensorStatistics tensor;
  o.Require("name", &tensor.name);
  o.Require("format", &tensor.format);
  std::size_t i = 0;
  for (const Diagnostic& diagnostic : Diagnostics()) {
    double& value = tensor.values.numbers[i++];
    const Json* member = o.Member(diagnostic.key);
    if (member != nullptr && !member->is_null()) o.Read(diagnostic.key, &value);
  }
  return tensor;
}

Json LogLine(std::int64_t step, const TensorStatistics& tensor) {
  const IeeeArithmetic ieee;
  return WithNumbers({{"step", step}, {"name", tensor.name}, {"format", tensor.format}}, tensor,
                     &Diagnostic::log_key);
}

}  // namespace fp4lab
