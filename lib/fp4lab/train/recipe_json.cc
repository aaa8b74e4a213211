#include "fp4lab/train/recipe_json.h"

#include <algorithm>
#include <array>
#include <optional>

#include "fp4lab/base/error.h"
#include "fp4lab/base/suggest.h"
#include "fp4lab/train/dialect_json.h"

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

std::string RoundingName(const std::optional<Dialect>& format) {
  if (format && IsStochastic(*format)) return std::string(kRandom);
  const bool cut = format && format->rounding == ElementRounding::kTowardZero;
  return std::string(cut ? kCut : kNearest);
}

// The rounding of a row that is no stochastic one is "nearest_even" here, whatever its ties do.
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
    operand->random = source->generator;
  } else if (rounding == kCut) {
    format.rounding = ElementRounding::kTowardZero;
  } else if (named) {
    format = WithOwnRounding(format);
  }
  if (!IsStochastic(format)) operand->random = RandomGenerator::kPhilox;
  operand->format = format;
}

// Without what "rounding" says.
Json FormatJson(const Dialect& format) {
  return ToJson(format.rounding == ElementRounding::kTowardZero ? WithOwnRounding(format) : format);
}

}  // namespace

void ReadOperand(const Json& json, const std::string& where, OperandRecipe* operand) {
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
  o.Read("hadamard", &operand->hadamard);
  if (operand->hadamard != 0 && operand->hadamard != 16 && operand->hadamard != 32) {
    throw Error(o.Where("hadamard"), "must be 0, 16 or 32");
  }
  o.Finish();
}

Json ToJson(const OperandRecipe& operand) {
  Json json{{"format", operand.format ? FormatJson(*operand.format) : Json("none")},
            {"rounding", RoundingName(operand.format)},
            {"hadamard", operand.hadamard}};
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
