#include "fp4lab/recipe/recipe_json.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/recipe/recipe_blocks.h"
#include "fp4lab/spelling/dialect_json.h"

namespace fp4lab {
namespace {

struct StochasticRounding {
  int bits;
  ElementRounding rounding;
};
constexpr std::array kStochastic = {
    StochasticRounding{4, ElementRounding::kStochastic4},
    StochasticRounding{8, ElementRounding::kStochastic8},
    StochasticRounding{16, ElementRounding::kStochastic16},
    StochasticRounding{32, ElementRounding::kStochastic32},
};

constexpr std::string_view kNearest = "nearest_even", kCut = "toward_zero", kRandom = "stochastic";
constexpr std::string_view kMostRecent = "most_recent";

std::string RoundingName(const std::optional<Dialect>& format) {
  if (format && IsStochastic(*format)) return std::string(kRandom);
  const bool cut = format && format->rounding == ElementRounding::kTowardZero;
  return std::string(cut ? kCut : kNearest);
}

// Reads "rounding", "random_bits" and "random". "nearest_even" stands for a row's own rounding that
// is neither stochastic nor toward zero, whatever the row does with ties.
void ReadRounding(JsonObject* o, OperandRecipe* operand) {
  std::string rounding = RoundingName(operand->format);
  const bool named = o->Has("rounding");
  o->Read("rounding", &rounding);
  if (rounding != kNearest && rounding != kCut && rounding != kRandom) {
    throw Error(o->Where("rounding"),
                "must be \"nearest_even\", \"toward_zero\" or "
                "\"stochastic\", not \"" +
                    rounding + "\"");
  }
  int bits = operand->format && IsStochastic(*operand->format)
                 ? RandomBitsOf(operand->format->rounding)
                 : 16;
  o->Read("random_bits", &bits);
  std::string generator;
  for (const NamedGenerator& g : kRandomGenerators) {
    if (g.generator == operand->random) generator = g.name;
  }
  o->Read("random", &generator);
  for (const char* key : {"random_bits", "random"}) {
    if (o->Has(key) && rounding != kRandom) {
      throw Error(o->Where(key), "is for \"rounding\": \"stochastic\"");
    }
  }
  if (!operand->format) {
    if (rounding != kNearest) {
      throw Error(o->Where("rounding"),
                  "an operand that is not quantized has no rounding to choose");
    }
    return;
  }
  Dialect format = *operand->format;
  if (rounding == kRandom) {
    const auto row = std::find_if(kStochastic.begin(), kStochastic.end(),
                                  [&](const StochasticRounding& r) { return r.bits == bits; });
    if (row == kStochastic.end()) throw Error(o->Where("random_bits"), "must be 4, 8, 16 or 32");
    const auto source = std::find_if(kRandomGenerators.begin(), kRandomGenerators.end(),
                                     [&](const NamedGenerator& g) { return g.name == generator; });
    if (source == kRandomGenerators.end()) {
      throw Error(o->Where("random"), "unknown generator \"" + generator + "\"; " +
                                          DidYouMean(generator, NamesOf(kRandomGenerators)));
    }
    format.rounding = row->rounding;
    if (!Feeds(source->generator, format)) {
      throw Error(o->Where(o->Has("random_bits") ? "random_bits" : "random"),
                  "the generator \"" + generator +
                      "\" has 8 bits for an element (\"random_bits\": 8) and none for scales "
                      "(\"unbias\")");
    }
    operand->random = source->generator;
  } else if (rounding == kCut) {
    format.rounding = ElementRounding::kTowardZero;
  } else if (named && (IsStochastic(format) || format.rounding == ElementRounding::kTowardZero)) {
    format = WithOwnRounding(format);
  }
  if (!IsStochastic(format)) operand->random = RandomGenerator::kPhilox;
  operand->format = format;
}

// Reads "hadamard": a size, or an object of size and signs.
void ReadHadamard(JsonObject* o, OperandRecipe* operand) {
  const Json* json = o->Member("hadamard");
  if (json == nullptr) return;
  std::string place = o->Where("hadamard");
  if (json->is_object()) {
    JsonObject members(*json, place);
    place = members.Where("size");
    members.Require("size", &operand->hadamard);
    std::string name = "te";
    members.Read("signs", &name);
    const auto row = std::find_if(kHadamardSignSources.begin(), kHadamardSignSources.end(),
                                  [&](const NamedSignSource& s) { return s.name == name; });
    if (row == kHadamardSignSources.end()) {
      throw Error(members.Where("signs"), "unknown signs \"" + name + "\"; " +
                                              DidYouMean(name, NamesOf(kHadamardSignSources)));
    }
    operand->signs = row->source;
    members.Finish();
  } else {
    o->Read("hadamard", &operand->hadamard);
    operand->signs = HadamardSignSource::kTransformerEngine;
  }
  const bool known = std::find(kHadamardSizes.begin(), kHadamardSizes.end(), operand->hadamard) !=
                     kHadamardSizes.end();
  if (operand->hadamard != 0 && !known) {
    throw Error(place, "must be 0, 2, 4, 8, 16, 32, 64 or 128");
  }
  if (operand->hadamard == 0) operand->signs = HadamardSignSource::kTransformerEngine;
}

// The row of a table that the member names; `value` is the name when absent, "": it may not be.
template <class Table>
const auto& ReadRow(JsonObject* o, std::string_view key, std::string value, const Table& table,
                    const char* what) {
  if (value.empty()) {
    o->Require(key, &value);
  } else {
    o->Read(key, &value);
  }
  const auto row =
      std::find_if(table.begin(), table.end(), [&](const auto& r) { return r.name == value; });
  if (row != table.end()) return *row;
  throw Error(o->Where(key), std::string("unknown ") + what + " \"" + value + "\"; " +
                                 DidYouMean(value, NamesOf(table)));
}

// Reads "side": the name of a term without channels, or an object.
void ReadSide(JsonObject* o, OperandRecipe* operand) {
  const Json* json = o->Member("side");
  if (json == nullptr) return;
  SideTerm& side = operand->side;
  side = {};
  if (!json->is_object()) {
    side.kind = ReadRow(o, "side", "", kSideTerms, "side term").kind;
    if (!Named(side.kind).has_channels) return;
    throw Error(o->Where("side"), "\"" + std::string(Named(side.kind).name) +
                                      "\" needs \"channels\": write {\"term\": \"" +
                                      std::string(Named(side.kind).name) + "\", \"channels\": 8}");
  }
  JsonObject members(*json, o->Where("side"));
  const NamedSideTerm& term = ReadRow(&members, "term", "", kSideTerms, "side term");
  side.kind = term.kind;
  if (term.has_channels) {
    ReadBlocks(&members, "channels", &side.channels, &side.percent, "channels");
    if (side.channels < 1 && side.percent == 0.0) {
      throw Error(members.Where("channels"),
                  "must be a number of channels above 0, or a share of them such as \"1%\"");
    }
    side.by = ReadRow(&members, "by", std::string(kChannelStatistics[0].name), kChannelStatistics,
                      "statistic")
                  .statistic;
  }
  members.Finish();
}

void ReadScaleWindow(JsonObject* o, OperandRecipe* operand) {
  o->Read("scale_window", &operand->scale_window);
  const bool known = operand->scale_window == 0 ||
                     std::find(kScaleWindows.begin(), kScaleWindows.end(), operand->scale_window) !=
                         kScaleWindows.end();
  if (!known) throw Error(o->Where("scale_window"), "must be 0, 64 or 128");
}

// The format without its rounding, which the key "rounding" states.
Json FormatJson(const Dialect& format) {
  return ToJson(format.rounding == ElementRounding::kTowardZero ? WithOwnRounding(format) : format);
}

}  // namespace

void ReadOperand(const Json& json, const std::string& where, OperandRecipe* operand) {
  const IeeeArithmetic ieee;
  JsonObject o(json, where);
  if (const Json* format = o.Member("format")) {
    const bool random = operand->format && IsStochastic(*operand->format);
    const ElementRounding rounding =
        random ? operand->format->rounding : ElementRounding::kNearestEven;
    operand->format.reset();
    if (*format != "none") {
      operand->format = ReadDialect(*format, o.Where("format"));
      if (random && !IsStochastic(*operand->format)) operand->format->rounding = rounding;
    }
  }
  ReadRounding(&o, operand);
  ReadHadamard(&o, operand);
  std::string from(operand->from_fprop ? "fprop" : "tensor");
  o.Read("from", &from);
  if (from != "fprop" && from != "tensor") {
    throw Error(o.Where("from"), "must be \"tensor\" or \"fprop\"");
  }
  operand->from_fprop = from == "fprop";
  ReadScaleWindow(&o, operand);
  if (o.Member("delayed_scaling") != nullptr) ReadDelayed(&o, &operand->delayed);
  if (operand->delayed.length > 0 && !CanBeDelayed(*operand)) {
    throw Error(o.Where("delayed_scaling"), "is for formats with one scale for the tensor");
  }
  ReadSide(&o, operand);
  o.Finish();
}

void ReadDelayed(JsonObject* o, DelayedScaling* delayed) {
  const IeeeArithmetic ieee;
  constexpr int kMost = 1 << 14;
  *delayed = {};
  const Json* json = o->Member("delayed_scaling");
  if (json == nullptr || *json == false) return;
  JsonObject members(*json, o->Where("delayed_scaling"));
  int length = 1024;
  std::string algorithm = "max";
  members.Read("amax_history_len", &length);
  members.Read("amax_compute_algo", &algorithm);
  members.Finish();
  if (length < 1 || length > kMost) {
    throw Error(members.Where("amax_history_len"), "must be 1 to " + std::to_string(kMost));
  }
  if (algorithm != "max" && algorithm != kMostRecent) {
    throw Error(members.Where("amax_compute_algo"), "must be \"max\" or \"most_recent\"");
  }
  *delayed = {static_cast<std::uint16_t>(length), algorithm == kMostRecent};
}

bool CanBeDelayed(const OperandRecipe& operand) {
  return operand.format && HasTensorScale(*operand.format) && !operand.format->row_scaled &&
         operand.scale_window == 0;
}

Json HadamardJson(const OperandRecipe& operand) {
  if (operand.signs == HadamardSignSource::kTransformerEngine) return operand.hadamard;
  const auto row =
      std::find_if(kHadamardSignSources.begin(), kHadamardSignSources.end(),
                   [&](const NamedSignSource& s) { return s.source == operand.signs; });
  return {{"size", operand.hadamard}, {"signs", row->name}};
}

Json SideJson(const SideTerm& side) {
  const IeeeArithmetic ieee;
  const NamedSideTerm& term = Named(side.kind);
  if (!term.has_channels) return term.name;
  const auto by = std::find_if(kChannelStatistics.begin(), kChannelStatistics.end(),
                               [&](const auto& row) { return row.statistic == side.by; });
  return {
      {"term", term.name}, {"channels", BlocksJson(side.channels, side.percent)}, {"by", by->name}};
}

namespace {

// A side term of the resolved JSON in words: "8 hot channels (amax) in high precision".
std::string SideText(const Json& side) {
  const std::string name =
      side.is_object() ? side.at("term").get<std::string>() : side.get<std::string>();
  const auto row = std::find_if(kSideTerms.begin(), kSideTerms.end(),
                                [&](const NamedSideTerm& term) { return term.name == name; });
  const std::string text(row->text);
  if (!row->has_channels) return text;
  const Json& channels = side.at("channels");
  return (channels.is_string() ? channels.get<std::string>() : channels.dump()) +
         " hot channels (" + side.at("by").get<std::string>() + ") " + text;
}

// An object of "format" in words: "nvfp4.quartet2 with target 6.072, unbias ms_eden".
std::string FormatText(const Json& format) {
  std::string text = format.value("like", "");
  const char* separator = " with ";
  for (const auto& [key, value] : format.items()) {
    if (key == "like") continue;
    std::string words = value.is_string() ? value.get<std::string>() : value.dump();
    if (value.is_array()) words = value[0].dump() + "x" + value[1].dump();
    if (value.is_number_float()) {
      char number[32];
      std::snprintf(number, sizeof number, "%.6g", value.get<double>());
      words = number;
    }
    text += separator + key + " " + words;
    separator = ", ";
  }
  return text;
}

}  // namespace

std::string OperandText(const Json& operand) {
  const IeeeArithmetic ieee;
  const Json& format = operand.at("format");
  std::string text = format.is_string() ? format.get<std::string>() : FormatText(format);
  if (text == "none") text = "-";
  if (const std::string rounding = operand.value("rounding", ""); rounding != kNearest) {
    text += ", " + rounding;
  }
  for (const char* key : {"random_bits", "random"}) {
    if (operand.contains(key)) text += ", " + std::string(key) + " " + operand[key].dump();
  }
  const Json hadamard = operand.value("hadamard", Json(0));
  if (hadamard.is_object()) {
    text +=
        ", H" + hadamard.at("size").dump() + " signs " + hadamard.at("signs").get<std::string>();
  } else if (hadamard != 0) {
    text += ", H" + hadamard.dump();
  }
  if (operand.value("from", "") == "fprop") text += ", of fprop's values";
  if (operand.contains("delayed_scaling")) {
    const Json& delayed = operand["delayed_scaling"];
    text += ", delayed scaling (" + delayed.at("amax_compute_algo").get<std::string>() + " of " +
            delayed.at("amax_history_len").dump() + ")";
  }
  if (operand.contains("scale_window")) {
    text += ", an outer scale per 1x" + operand["scale_window"].dump();
  }
  if (operand.contains("side")) text += ", " + SideText(operand["side"]);
  return text;
}

Json ToJson(const OperandRecipe& operand) {
  const IeeeArithmetic ieee;
  Json json{{"format", operand.format ? FormatJson(*operand.format) : Json("none")},
            {"rounding", RoundingName(operand.format)},
            {"hadamard", HadamardJson(operand)}};
  if (operand.from_fprop) json["from"] = "fprop";
  if (const DelayedScaling& d = operand.delayed; d.length > 0) {
    json["delayed_scaling"] = {
        {"amax_history_len", d.length},
        {"amax_compute_algo", d.most_recent ? kMostRecent : std::string_view("max")}};
  }
  if (operand.side) json["side"] = SideJson(operand.side);
  if (operand.scale_window != 0) json["scale_window"] = operand.scale_window;
  if (!operand.format || !IsStochastic(*operand.format)) return json;
  const int bits = RandomBitsOf(operand.format->rounding);
  if (bits != 16) json["random_bits"] = bits;
  for (const NamedGenerator& g : kRandomGenerators) {
    if (g.generator == operand.random && operand.random != RandomGenerator::kPhilox) {
      json["random"] = g.name;
    }
  }
  return json;
}

}  // namespace fp4lab
