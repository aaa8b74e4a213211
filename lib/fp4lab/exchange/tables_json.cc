#include "fp4lab/exchange/tables_json.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/dialect/describe.h"
#include "fp4lab/spelling/dialect_json.h"

namespace fp4lab {

namespace {

// Ascending codes of a format for which `holds` is true.
std::vector<std::uint32_t> CodesWhere(const Format& format,
                                      bool (*holds)(const Format&, std::uint32_t)) {
  std::vector<std::uint32_t> codes;
  for (std::uint32_t code = 0; code < 1u << format.bits; ++code) {
    if (holds(format, code)) codes.push_back(code);
  }
  return codes;
}

}  // namespace

Json FormatJson(const NamedFormat& named) {
  const IeeeArithmetic ieee;
  const Format& f = named.format;
  const bool has_subnormals = f.mantissa_bits > 0;
  return {{"name", named.name},
          {"short_name", named.short_name},
          {"bits", f.bits},
          {"signed", f.is_signed},
          {"exponent_bits", f.exponent_bits},
          {"mantissa_bits", f.mantissa_bits},
          {"bias", f.bias},
          {"max", Decode(f, MaxFiniteCode(f))},
          {"max_code", MaxFiniteCode(f)},
          {"min_normal", Decode(f, has_subnormals ? 1u << f.mantissa_bits : 0u)},
          {"min_subnormal", has_subnormals ? Json(Decode(f, 1)) : Json(nullptr)},
          {"inf_codes", CodesWhere(f, IsInf)},
          {"nan_codes", CodesWhere(f, IsNan)}};
}

Json DialectJson(const Dialect& d) {
  const IeeeArithmetic ieee;
  Json stages = Json::object();
  for (const DialectLine& line : Describe(d)) {
    const std::string stage(line.stage);
    stages[stage] = stages.contains(stage)
                        ? Json(stages[stage].get<std::string>() + "; " + line.text)
                        : Json(line.text);
  }
  Json json = DialectFields(d);
  json.update({{"name", d.name},
               {"version", d.version},
               {"source", d.source},
               {"note", d.note},
               {"element_bits", FormatOf(d.element).bits},
               {"has_tensor_scale", HasTensorScale(d)},
               {"constant", HasTensorScale(d) ? TensorScaleConstant(d) : 0.0f},
               {"approximate", IsApproximate(d)},
               {"stochastic", IsStochastic(d)},
               {"random_bits", RandomBitsOf(d.rounding)},
               {"takes_random_bits", TakesRandomBits(d)},
               {"stages", std::move(stages)}});
  return json;
}

}  // namespace fp4lab
