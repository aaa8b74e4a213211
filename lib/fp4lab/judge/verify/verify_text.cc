// Verdicts as text and as JSON.
#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/judge/verify/verify.h"

namespace fp4lab {
namespace {

struct Part {
  const char* name;
  const PartVerdict& verdict;
  const char* place;  // the noun for a (row, col): "element", "scale", "number"
  FormatId format;    // of codes or scales; unused if is_float (the tensor scale: binary32)
  bool is_float;
  ScaleType type = ScaleType::kByte;  // of scales that are numbers
};

std::string Written(const Part& part, std::uint32_t bits) {
  if (part.is_float)
    return HexText(bits, 8) + " (" + ShortestText(std::bit_cast<float>(bits)) + ")";
  if (part.type != ScaleType::kByte) {
    return HexText(bits, static_cast<int>(2 * Named(part.type).bytes)) + " (" +
           ShortestText(ScaleValueOf(part.type, part.format, bits)) + ")";
  }
  const int digits = FormatOf(part.format).bits > 4 ? 2 : 1;
  return HexText(bits, digits) + " (" + ShortestText(Decode(part.format, bits)) + ")";
}

std::string PartText(const Part& part) {
  const PartVerdict& v = part.verdict;
  std::string text = part.name;
  text.resize(std::max<std::size_t>(8, text.size() + 1), ' ');
  if (v.different == 0) return text + "equal (" + std::to_string(v.total) + ")\n";
  text += std::to_string(v.different) + " of " + std::to_string(v.total) + " differ";
  if (v.same_value != 0) {
    text += ", " + (v.same_value == v.different ? "all" : std::to_string(v.same_value)) +
            " of them with the same value";
  }
  text += "\n";
  for (const Difference& d : v.first) {
    text += "  " + std::string(part.place) + " (" + std::to_string(d.row) + ", " +
            std::to_string(d.col) + "): expected " + Written(part, d.expected) + ", got " +
            Written(part, d.got) + (d.same_value ? ", the same value" : "") + "\n";
  }
  return text;
}

Json PartJson(const Part& part) {
  Json first = Json::array();
  for (const Difference& d : part.verdict.first) {
    first.push_back({{"row", d.row},
                     {"col", d.col},
                     {"expected", d.expected},
                     {"got", d.got},
                     {"same_value", d.same_value}});
  }
  return {{"total", part.verdict.total},
          {"different", part.verdict.different},
          {"same_value", part.verdict.same_value},
          {"first", std::move(first)}};
}

Part CodesOf(const Dialect& d, const Verdict& v) {
  return {"codes", v.codes, "element", d.element, false};
}
Part ScalesOf(const Dialect& d, const Verdict& v) {
  return {"scales", v.scales, "scale", d.scale, false, v.scale_type};
}
Part TensorScalePart(const Dialect& d, const Verdict& v) {
  return {"tensor scale", v.tensor_scale, "number", d.scale, true};
}

}  // namespace

std::string Headline(const Dialect& dialect, const Verdict& v) {
  const IeeeArithmetic ieee;
  const std::string name(dialect.name);
  if (v.Equal()) return name + ": equal\n";
  if (v.OnlyTensorScale()) return name + ": DIFFERENT, in the tensor scale only\n";
  if (!v.Accepted()) return name + ": DIFFERENT\n";
  return name + ": within the allowed set (" + std::to_string(v.codes.different) + " of " +
         std::to_string(v.codes.total) + " codes and " + std::to_string(v.scales.different) +
         " of " + std::to_string(v.scales.total) + " scales differ from its IEEE member)\n";
}

std::string VerdictText(const Dialect& dialect, const Verdict& verdict) {
  const IeeeArithmetic ieee;
  std::string text = PartText(CodesOf(dialect, verdict));
  if (verdict.scales.total != 0) text += PartText(ScalesOf(dialect, verdict));
  if (const std::size_t nan = verdict.scales.nan_for_largest; nan != 0) {
    text += "  " + std::to_string(nan) + " of them " + (nan == 1 ? "is" : "are") +
            " NaN where the scale saturates\n  do: clamp scales to " +
            ShortestText(MaxFinite(dialect.scale)) + " before they are cast\n";
  }
  if (verdict.has_tensor_scale) {
    text += PartText(TensorScalePart(dialect, verdict));
    if (const auto& reading = verdict.tensor_scale_reading) {
      text += "  it is " + reading->looks + "\n  do: " + reading->remedy + "\n";
    }
  } else if (HasTensorScale(dialect)) {
    text += "tensor scale not compared: the answer stores none\n";
  }
  if (verdict.checks_padding) {
    text += "padding " + (verdict.padding_set == 0
                              ? std::string("all 0\n")
                              : std::to_string(verdict.padding_set) + " bytes are not 0\n");
  }
  if (verdict.allowed) {
    const Allowed& a = *verdict.allowed;
    text +=
        a.ok ? "codes and scales lie within the allowed set of " + std::string(dialect.name) + "\n"
             : "outside the allowed set: " + std::to_string(a.scales_outside) + " scales, " +
                   std::to_string(a.codes_outside) + " codes, the first at (" +
                   std::to_string(a.first_row) + ", " + std::to_string(a.first_col) + ")\n";
  }
  if (verdict.OnlyOtherBytes()) text += "the values are the same, the bytes are not\n";
  return text;
}

Json VerdictJson(const Dialect& dialect, const Verdict& verdict) {
  const IeeeArithmetic ieee;
  Json json = {{"dialect", dialect.name},
               {"verdict", verdict.Equal()      ? "equal"
                           : verdict.Accepted() ? "within-set"
                                                : "different"},
               {"equal", verdict.Equal()},
               {"accepted", verdict.Accepted()},
               {"only_tensor_scale", verdict.OnlyTensorScale()},
               {"only_other_bytes", verdict.OnlyOtherBytes()},
               {"codes", PartJson(CodesOf(dialect, verdict))},
               {"scales", PartJson(ScalesOf(dialect, verdict))},
               {"scales_nan_for_largest", verdict.scales.nan_for_largest},
               {"tensor_scale", nullptr},
               {"padding_set", verdict.padding_set}};
  if (verdict.has_tensor_scale) json["tensor_scale"] = PartJson(TensorScalePart(dialect, verdict));
  if (const auto& reading = verdict.tensor_scale_reading) {
    json["tensor_scale"]["reading"] = ToJson(*reading);
  }
  if (verdict.allowed) {
    json["allowed"] = {{"ok", verdict.allowed->ok},
                       {"scales_outside", verdict.allowed->scales_outside},
                       {"codes_outside", verdict.allowed->codes_outside}};
  }
  return json;
}

}  // namespace fp4lab
