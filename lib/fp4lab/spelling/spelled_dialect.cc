#include "fp4lab/spelling/spelled_dialect.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/dialect/kept.h"
#include "fp4lab/io/renamed_key.h"
#include "fp4lab/spelling/dialect_json.h"

namespace fp4lab {
namespace {

// By these `fp4lab dialects NAME --json` describes a row; they follow from the other keys.
constexpr std::string_view kDescriptions[] = {"name",
                                              "version",
                                              "source",
                                              "note",
                                              "stages",
                                              "behaviours",
                                              "constant",
                                              "element_bits",
                                              "formula",
                                              "random_bits",
                                              "approximate",
                                              "stochastic",
                                              "takes_random_bits",
                                              "has_tensor_scale"};

// The stages of which an object without "base" has every one.
constexpr std::string_view kStages[] = {
    "element",     "scale",          "block",       "tensor_scale",
    "block_scale", "scale_encoding", "factor",      "element_rounding",
    "nan",         "inf_scale",      "signed_zeros"};
constexpr std::size_t kWithRule = 3;  // so many of these beside "rule"

const Dialect& BaseNamed(const std::string& name, const std::string& where) {
  if (const Dialect* row = FindDialect(name)) return *row;
  throw Error(where, "unknown dialect \"" + name + "\"; " +
                         DidYouMean(name, NamesOf(Dialects()), "`fp4lab dialects` lists them"));
}

// The dialect that the keys of `o` change: the row of "base" or "like". An object without either
// states its stages.
Dialect ReadBase(JsonObject& o) {
  std::string base, like;
  o.Read("base", &base);
  o.Read("like", &like);
  if (o.Has("base") && o.Has("like")) {
    throw Error(o.Where("like"), "is another word for \"base\"; leave one of them out");
  }
  if (o.Has("base")) return BaseNamed(base, o.Where("base"));
  if (o.Has("like")) return BaseNamed(like, o.Where("like"));
  const std::size_t needed = o.Has("rule") ? kWithRule : std::size(kStages);
  for (std::size_t i = 0; i < needed; ++i) {
    const bool is_renamed = kStages[i] == "tensor_scale" && o.Has(kOldTensorScale);
    if (o.Has(kStages[i]) || is_renamed) continue;
    throw Error(o.Where(kStages[i]),
                "is missing; give it, or \"base\": the name of the row that the keys change");
  }
  return {};
}

// Refuses what training computes and the judging commands do not.
void CheckJudged(const JsonObject& o, const Dialect& d) {
  if (d.unbias != Unbias::kNone) {
    throw Error(o.Where("unbias"),
                "must be \"none\": corrected scales are of training recipes, and no kernel is "
                "judged by them");
  }
  if (d.target != 0.0f && d.scale_encoding == ScaleEncoding::kExponent) {
    throw Error(o.Where("target"),
                "must be 0 under e8m0 scales, whose rules fix what an amax is "
                "mapped to");
  }
  if (d.statistic != BlockStatistic::kAmax) {
    throw Error(
        o.Where("clip"),
        "must be \"none\": scales from a standard deviation are of training recipes, and no "
        "kernel is judged by them");
  }
  if (d.scale_encoding != ScaleEncoding::kBinary32) return;
  if (IsApproximate(d)) {
    throw Error(o.Where("scale"),
                "must be a format of one byte under formulas with approximate instructions, whose "
                "sets of answers are of scale bytes");
  }
  if (d.nan_scale >= 0) {
    throw Error(o.Where("nan_scale"), "must be -1: scales of binary32 have no bytes");
  }
  if (d.adaptive != Adaptive::kNo) {
    throw Error(o.Where("adaptive"),
                "must be \"none\" under scales of binary32: four over six chooses between scale "
                "bytes");
  }
}

// Dialect::keeps_negative_zero has no effect where no zero is negative; rows have either value.
Dialect WithOneZero(Dialect d) {
  if (d.never_negative_zero) d.keeps_negative_zero = false;
  return d;
}

const Dialect* RowOf(const Dialect& d) {
  for (const Dialect& row : Dialects()) {
    if (SameFormulas(WithOneZero(row), WithOneZero(d))) return &row;
  }
  return nullptr;
}

// Reads the object; the result has the name of its base.
Dialect Read(const Json& json, const std::string& where) {
  JsonObject o(json, where);
  for (const std::string_view key : kDescriptions) o.Member(key);
  Dialect d = ReadDialectKeys(o, where, ReadBase(o));
  CheckJudged(o, d);
  return d;
}

// The fields of all rows, in the table's order.
const std::vector<Json>& RowFields() {
  static const std::vector<Json> fields = [] {
    std::vector<Json> list;
    for (const Dialect& row : Dialects()) list.push_back(DialectFields(row));
    return list;
  }();
  return fields;
}

// An object of the fewest keys that Read reads as `d`: the first row with the fewest other fields
// and these fields, or, if no row gives it, all fields.
std::string NameOf(const Dialect& d) {
  const Json own = DialectFields(d);
  std::vector<Json> objects{own};
  for (std::size_t i = 0; i < RowFields().size(); ++i) {
    Json object{{"base", Dialects()[i].name}};
    for (const auto& [key, value] : own.items()) {
      if (RowFields()[i].at(key) != value) object[key] = value;
    }
    objects.push_back(std::move(object));
  }
  std::stable_sort(objects.begin(), objects.end(),
                   [](const Json& a, const Json& b) { return a.size() < b.size(); });
  for (const Json& object : objects) {
    try {
      if (SameFormulas(WithOneZero(Read(object, "")), WithOneZero(d))) return object.dump();
    } catch (const Error&) {  // this base does not allow one of the keys alone
    }
  }
  Expects(false, "all fields of a dialect spell it out");
  return {};
}

}  // namespace

const Dialect& SpelledDialect(const Json& json, const std::string& where) {
  const IeeeArithmetic ieee;
  const Dialect d = WithOneZero(Read(json, where));
  if (const Dialect* row = RowOf(d)) return *row;
  return KeepDialect(d, NameOf(d));
}

const Dialect* DialectNamed(std::string_view text, const std::string& where) {
  const IeeeArithmetic ieee;
  if (const Dialect* known = FindDialect(text)) return known;
  if (!text.starts_with('{')) return nullptr;
  return &SpelledDialect(ParseJson(text, where), where);
}

const Dialect* DialectOfText(const std::string& text, const std::string& where) {
  const IeeeArithmetic ieee;
  if (text.ends_with(".json") && !text.starts_with('{')) {
    return &SpelledDialect(ReadJsonFile(text), text);
  }
  return DialectNamed(text, where);
}

bool SpellsDialectOut(std::string_view text) {
  return text.starts_with('{') || text.ends_with(".json");
}

}  // namespace fp4lab
