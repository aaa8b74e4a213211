#include "fp4lab/train/recipe_json.h"

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/suggest.h"

namespace fp4lab {
namespace {

struct NamedRule {
  ScaleRule rule;
  std::string_view name;
};

constexpr std::array kRules = {
    NamedRule{ScaleRule::kNvfp4, "nvfp4"}, NamedRule{ScaleRule::kFloor, "floor"},
    NamedRule{ScaleRule::kCeil, "ceil"},   NamedRule{ScaleRule::kRceil, "rceil"},
    NamedRule{ScaleRule::kEven, "even"},   NamedRule{ScaleRule::kTensor, "tensor"},
};

FormatId ReadFormatId(JsonObject* o, std::string_view key) {
  std::string name;
  o->Require(key, &name);
  const std::optional<FormatId> id = FindFormat(name);
  if (!id) {
    throw Error(o->Where(key),
                "unknown number format \"" + name + "\"; " + DidYouMean(name, NamesOf(kFormats)));
  }
  return *id;
}

ScaleRule ReadRule(JsonObject* o) {
  std::string name;
  o->Require("rule", &name);
  for (const NamedRule& r : kRules) {
    if (r.name == name) return r.rule;
  }
  throw Error(o->Where("rule"),
              "unknown scale rule \"" + name + "\"; " + DidYouMean(name, NamesOf(kRules)));
}

// The rule decides what the scale is stored in; blocks are 1xN or NxN, N = 16 or 32.
void CheckBlockFormat(const JsonObject& o, const BlockFormat& format) {
  if (!FormatOf(format.element).is_signed || FormatOf(format.element).bits > 8) {
    throw Error(o.Where("element"), "must be a signed format of at most 8 bits");
  }
  if (format.rule == ScaleRule::kTensor) {
    if (format.block_rows != 0 || format.block_cols != 0) {
      throw Error(o.Where("block"), "must be [0, 0] where one scale serves the tensor");
    }
    return;
  }
  const FormatId scale = format.rule == ScaleRule::kNvfp4 ? FormatId::kE4M3 : FormatId::kE8M0;
  if (format.scale != scale) {
    throw Error(o.Where("scale"), "this rule makes " + std::string(Named(scale).name) + " scales");
  }
  if ((format.block_cols != 16 && format.block_cols != 32) ||
      (format.block_rows != 1 && format.block_rows != format.block_cols)) {
    throw Error(o.Where("block"), "must be [1, 16], [16, 16], [1, 32] or [32, 32]");
  }
}

BlockFormat ReadCustomFormat(const Json& json, const std::string& where) {
  JsonObject o(json, where);
  BlockFormat format;
  format.element = ReadFormatId(&o, "element");
  format.scale = ReadFormatId(&o, "scale");
  format.rule = ReadRule(&o);
  std::vector<std::int64_t> block;
  o.Require("block", &block);
  if (block.size() != 2 || block[0] < 0 || block[0] > 32 || block[1] < 0 || block[1] > 32) {
    throw Error(o.Where("block"), "must be [rows, cols], each at most 32");
  }
  format.block_rows = static_cast<int>(block[0]);
  format.block_cols = static_cast<int>(block[1]);
  o.Finish();
  CheckBlockFormat(o, format);
  return format;
}

}  // namespace

BlockFormat ReadBlockFormat(const Json& json, const std::string& where) {
  if (!json.is_string()) return ReadCustomFormat(json, where);
  const std::string name = json.get<std::string>();
  if (const std::optional<BlockFormat> format = FindBlockFormat(name)) return *format;
  std::vector<std::string> known = NamesOf(kBlockFormats);
  known.insert(known.begin(), "none");
  throw Error(where, "unknown block format \"" + name + "\"; " + DidYouMean(name, known));
}

Json ToJson(const BlockFormat& format) {
  for (const NamedBlockFormat& f : kBlockFormats) {
    if (f.format == format) return std::string(f.name);
  }
  std::string rule;
  for (const NamedRule& r : kRules) {
    if (r.rule == format.rule) rule = r.name;
  }
  return {{"element", std::string(Named(format.element).short_name)},
          {"scale", std::string(Named(format.scale).short_name)},
          {"block", {format.block_rows, format.block_cols}},
          {"rule", rule}};
}

void ReadOperand(const Json& json, const std::string& where, OperandRecipe* operand) {
  JsonObject o(json, where);
  if (const Json* format = o.Member("format")) {
    operand->format = *format == "none"
                          ? std::nullopt
                          : std::optional(ReadBlockFormat(*format, o.Where("format")));
    if (!operand->format) operand->rounding = Rounding::kNearestEven;
  }
  std::string rounding = operand->rounding == Rounding::kStochastic ? "stochastic" : "nearest_even";
  o.Read("rounding", &rounding);
  if (rounding != "stochastic" && rounding != "nearest_even") {
    throw Error(o.Where("rounding"),
                "must be \"nearest_even\" or \"stochastic\", not \"" + rounding + "\"");
  }
  if (rounding == "stochastic" && !operand->format) {
    throw Error(o.Where("rounding"), "an operand that is not quantized has no rounding to choose");
  }
  operand->rounding = rounding == "stochastic" ? Rounding::kStochastic : Rounding::kNearestEven;
  o.Read("hadamard", &operand->hadamard);
  if (operand->hadamard != 0 && operand->hadamard != 16 && operand->hadamard != 32) {
    throw Error(o.Where("hadamard"), "must be 0, 16 or 32");
  }
  o.Finish();
}

Json ToJson(const OperandRecipe& operand) {
  return {{"format", operand.format ? ToJson(*operand.format) : Json("none")},
          {"rounding", operand.rounding == Rounding::kStochastic ? "stochastic" : "nearest_even"},
          {"hadamard", operand.hadamard}};
}

}  // namespace fp4lab
