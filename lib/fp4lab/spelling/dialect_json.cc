#include "fp4lab/spelling/dialect_json.h"

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/dialect/labels.h"
#include "fp4lab/io/renamed_key.h"
#include "fp4lab/spelling/dialect_keys.h"

namespace fp4lab {
namespace {

constexpr std::string_view kStart = "nvfp4.te";

std::vector<std::string> Strings(const std::vector<std::string_view>& views) {
  return {views.begin(), views.end()};
}

// The remedy for an unknown word: near words, if there are any, then all of them.
std::string Remedy(const std::string& word, const std::vector<std::string>& known) {
  const std::string near = DidYouMean(word, known, " ");
  if (near == " ") return DidYouMean(word, known);
  std::string all = near + " (one of:";
  for (const std::string& k : known) all += " " + k;
  return all + ")";
}

const Dialect& RowNamed(const std::string& name, const std::string& where) {
  if (const Dialect* row = FindDialect(name)) return *row;
  std::vector<std::string> known = NamesOf(Dialects());
  known.insert(known.begin(), "none");
  throw Error(where, "unknown format \"" + name + "\"; " +
                         DidYouMean(name, known, "`fp4lab dialects` lists them all"));
}

void ReadFormat(JsonObject* o, std::string_view key, FormatId* format) {
  if (!o->Has(key)) return;
  std::string name;
  o->Read(key, &name);
  if (name == "int4") name = Named(FormatId::kE0M3).name;
  const std::optional<FormatId> id = FindFormat(name);
  if (!id) {
    throw Error(o->Where(key),
                "unknown number format \"" + name + "\"; " + Remedy(name, NamesOf(kFormats)));
  }
  *format = *id;
}

// Reads a stage if the key is there.
template <class Enum>
void ReadStage(JsonObject* o, std::string_view key, Enum* stage) {
  if (!o->Has(key)) return;
  std::string label;
  o->Read(key, &label);
  const std::optional<Enum> found = FindLabel<Enum>(label);
  if (!found) {
    throw Error(o->Where(key),
                "unknown formula \"" + label + "\"; " + Remedy(label, Strings(LabelsOf<Enum>())));
  }
  *stage = *found;
}

// `d` with all formulas that belong to a block scale rule; element and block stay if the rule
// allows.
Dialect UnderRule(const Dialect& d, BlockScale rule) {
  return Canonical(DialectUnder(rule, d.element, d.block_rows, d.block_cols));
}

struct NamedRule {
  std::string_view name;
  BlockScale rule;
};
constexpr std::array kRules = {
    NamedRule{"nvfp4", BlockScale::kFolded}, NamedRule{"floor", BlockScale::kFloor},
    NamedRule{"ceil", BlockScale::kCeil},    NamedRule{"rceil", BlockScale::kRceil},
    NamedRule{"even", BlockScale::kEven},    NamedRule{"tensor", BlockScale::kOneBlock},
};

// The block scale rule that "rule" names, if the key is there.
std::optional<BlockScale> ReadRule(JsonObject* o) {
  if (!o->Has("rule")) return std::nullopt;
  std::string name;
  o->Read("rule", &name);
  for (const NamedRule& r : kRules) {
    if (r.name == name) return r.rule;
  }
  throw Error(o->Where("rule"),
              "unknown formula \"" + name + "\"; " + Remedy(name, NamesOf(kRules)));
}

// Whether "scale" is BF16: scales of binary32 whose t is a BF16 number.
bool ReadsBf16Scales(JsonObject* o) {
  std::string name;
  o->Read("scale", &name);
  return name == "bf16" || name == "bfloat16";
}

// Whether "scale" is a number, which is no format of scale bytes.
bool ReadsFloatScales(JsonObject* o) {
  if (!o->Has("scale")) return false;
  std::string name;
  o->Read("scale", &name);
  return name == "fp32" || name == "float32" || ReadsBf16Scales(o);
}

// Reads "element", "scale" and "rule", which choose the formulas together.
void ReadFormats(JsonObject* o, Dialect* d) {
  ReadFormat(o, "element", &d->element);
  if (!FormatOf(d->element).is_signed || FormatOf(d->element).bits > 8) {
    throw Error(o->Where("element"), "must be a signed format of at most 8 bits");
  }
  FormatId scale = d->scale;
  const bool floats = ReadsFloatScales(o);
  if (floats) {
    scale = FormatId::kE4M3;
  } else {
    ReadFormat(o, "scale", &scale);
  }
  const bool exponent = scale == FormatId::kE8M0;
  std::optional<BlockScale> rule;
  if (o->Has("scale") && exponent != (d->scale == FormatId::kE8M0)) {
    rule = exponent ? BlockScale::kRceil : BlockScale::kFolded;
  }
  if (const std::optional<BlockScale> read = ReadRule(o)) rule = read;
  if (rule) {
    *d = UnderRule(*d, *rule);
    if (*rule == BlockScale::kOneBlock) return;
    const bool rule_exponent = *rule != BlockScale::kFolded;
    if (o->Has("scale") && rule_exponent != exponent) {
      throw Error(
          o->Where("scale"),
          std::string("the rule ") + (rule_exponent ? std::string(LabelOf(*rule)) : "nvfp4") +
              " makes " +
              (rule_exponent ? "float8_e8m0fnu scales" : "scales with a fraction, no e8m0"));
    }
  }
  if (!o->Has("scale")) return;
  if (floats) {  // binary32 scales need no tensor scale to stay in range
    d->scale_encoding = ScaleEncoding::kBinary32;
    d->tensor_scale = TensorScaleRule::kNone;
    d->block_scale = ReadsBf16Scales(o) ? BlockScale::kDivideFirstBf16 : BlockScale::kNoTensorScale;
    return;
  }
  if (FormatOf(scale).bits > 8)
    throw Error(o->Where("scale"), "must be a format of 8 bits at most");
  d->scale = scale;
  if (!exponent) d->scale_max = MaxFinite(scale);
}

// Reads "target", "prescale", "clip" and "unbias": options of block scales beyond the rows of the
// table.
void ReadAdditions(JsonObject* o, const std::string& where, Dialect* d) {
  o->Read("target", &d->target);
  if (!(d->target >= 0.0f && d->target <= 2.0f * MaxFinite(d->element))) {
    throw Error(o->Where("target"), "must be a positive number, at most twice the largest element");
  }
  if (d->target == MaxFinite(d->element)) d->target = 0.0f;
  o->Read("prescale", &d->prescale);
  if (!(d->prescale > 0.0f && d->prescale <= 16.0f)) {
    throw Error(o->Where("prescale"), "must be a positive number, at most 16");
  }
  ReadStage(o, "clip", &d->statistic);
  ReadStage(o, "unbias", &d->unbias);
  const bool exponent = d->scale == FormatId::kE8M0;
  if (d->statistic == BlockStatistic::kQuest && d->block_rows == 0) {
    throw Error(o->Where("clip"), "is for block scales");
  }
  if (d->statistic == BlockStatistic::kQuest && exponent) {
    d->block_scale = BlockScale::kFloorLog2Quotient;
  }
  if (d->target != 0.0f && (d->block_rows == 0 || IsMicroscaling(d->block_scale))) {
    throw Error(o->Where("target"),
                "is for block scales that a quotient b/q makes, not for this rule");
  }
  const bool corrects = d->block_rows == 1 && 128 % d->block_cols == 0 && !exponent &&
                        d->scale_encoding != ScaleEncoding::kBinary32;
  if (d->unbias == Unbias::kMsEden && !corrects) {
    throw Error(where + "/unbias",
                "MS-EDEN is for blocks of one row, 8 to 128 wide, under scales with a fraction");
  }
}

void ReadBlock(JsonObject* o, Dialect* d) {
  if (!o->Has("block")) return;
  std::vector<std::int64_t> block;
  o->Read("block", &block);
  const bool pair = block.size() == 2;
  if (pair && block[1] == 0 && (block[0] == 0 || block[0] == 1)) {  // one scale, or one per row
    *d = UnderRule(*d, BlockScale::kOneBlock);
    d->row_scaled = block[0] == 1;
    return;
  }
  const bool width = pair && block[1] >= 8 && block[1] <= 128 && block[1] % 8 == 0;
  if (!width || (block[0] != 1 && block[0] != block[1])) {
    throw Error(o->Where("block"),
                "must be [1, N] or [N, N] with N = 8, 16 .. 128, [0, 0] for one scale a tensor or "
                "[1, 0] for one a row");
  }
  if (d->block_scale == BlockScale::kOneBlock && !o->Has("block_scale")) {
    throw Error(o->Where("block"), "must be [0, 0] or [1, 0] where there are no block scales");
  }
  d->block_rows = static_cast<int>(block[0]);
  d->block_cols = static_cast<int>(block[1]);
}

// The key of the tensor scale's formula, if one is given: "tensor_scale" may also be a bool, beside
// which files of older versions state the formula under another name.
std::optional<std::string_view> TensorScaleFormula(JsonObject* o) {
  const Json* given = o->Member("tensor_scale");
  const bool is_formula = given != nullptr && given->is_string();
  if (!o->Has(kOldTensorScale)) {
    return is_formula ? std::optional<std::string_view>("tensor_scale") : std::nullopt;
  }
  if (is_formula) {
    throw Error(o->Where(kOldTensorScale), "is the old name of \"tensor_scale\"; leave it out");
  }
  return kOldTensorScale;
}

// Whether there is a tensor scale at all, as a bool of "tensor_scale" says.
bool WantsTensorScale(JsonObject* o, const Dialect& d) {
  bool wanted = HasTensorScale(d);
  if (TensorScaleFormula(o) != "tensor_scale") o->Read("tensor_scale", &wanted);
  return wanted;
}

void ReadTensorScale(JsonObject* o, Dialect* d) {
  // CheckStages compares a bool with the formula beside it.
  const bool wanted = TensorScaleFormula(o) ? HasTensorScale(*d) : WantsTensorScale(o, *d);
  if (!wanted && HasTensorScale(*d)) {
    if (d->block_scale == BlockScale::kOneBlock) {
      throw Error(o->Where("tensor_scale"),
                  "cannot be false: the tensor scale is the only scale of this format");
    }
    d->tensor_scale = TensorScaleRule::kNone;
    d->block_scale = BlockScale::kNoTensorScale;
  } else if (wanted && !HasTensorScale(*d)) {
    throw Error(o->Where("tensor_scale"),
                "the format has no tensor scale; set \"like\" to a format that has one");
  }
  o->Read("row_scaled", &d->row_scaled);
  o->Read("scale_max", &d->scale_max);
  if (!(d->scale_max > 0.0f && d->scale_max <= MaxFinite(FormatId::kBF16))) {
    throw Error(o->Where("scale_max"), "must be a positive number");
  }
}

// The values of "signed_zeros": Dialect::keeps_negative_zero and never_negative_zero.
constexpr std::string_view kZeros[] = {"keep", "add_zero", "never"};
std::string_view ZerosOf(const Dialect& d) {
  if (d.never_negative_zero) return kZeros[2];
  return d.keeps_negative_zero ? kZeros[0] : kZeros[1];
}
void ReadZeros(JsonObject* o, Dialect* d) {
  std::string zeros(ZerosOf(*d));
  o->Read("signed_zeros", &zeros);
  if (zeros != kZeros[0] && zeros != kZeros[1] && zeros != kZeros[2]) {
    throw Error(o->Where("signed_zeros"), "must be \"keep\", \"add_zero\" or \"never\"");
  }
  if (zeros == ZerosOf(*d)) return;
  d->never_negative_zero = zeros == kZeros[2];
  d->keeps_negative_zero = zeros == kZeros[0];
}

struct IsExponentOf {
  template <class Rule>
  constexpr bool operator()(Rule) const {
    return Rule::kIsExponent;
  }
};
bool IsExponentScale(BlockScale rule) { return WithFormula<bool>(rule, IsExponentOf{}); }

// Throws Error for stages that contradict each other.
void CheckStages(JsonObject& o, const Dialect& d) {
  const bool blocks = d.block_rows > 0;
  if (blocks == (d.block_scale == BlockScale::kOneBlock)) {
    throw Error(o.Where("block_scale"),
                "blocks and the formula of the block scale contradict each other: \"one_block\" is "
                "for the blocks [0, 0] and [1, 0], which take no other");
  }
  if ((d.tensor_scale == TensorScaleRule::kTensorFp8) == blocks) {
    throw Error(o.Where(TensorScaleFormula(&o).value_or("tensor_scale")),
                "tensor scale is \"tensor_fp8\" where, and only where, there are no blocks");
  }
  if (WantsTensorScale(&o, d) != HasTensorScale(d)) {
    throw Error(o.Where("tensor_scale"), "contradicts \"level_two\"; leave one of them out");
  }
  if (d.row_scaled && !HasTensorScale(d)) {
    throw Error(o.Where("row_scaled"), "needs a format with a tensor scale");
  }
  const bool exponent = d.scale_encoding == ScaleEncoding::kExponent;
  if (blocks &&
      (exponent != (d.scale == FormatId::kE8M0) || exponent != IsExponentScale(d.block_scale))) {
    throw Error(o.Where(exponent == IsExponentScale(d.block_scale) ? "scale" : "block_scale"),
                "e8m0 scales, and no others, take a rule of exponents and the encoding "
                "\"exponent\"");
  }
  if (d.adaptive_fp16 && d.adaptive_decode) {
    throw Error(o.Where("adaptive_decode"),
                "contradicts adaptive_fp16, another form of the errors; remove one of them");
  }
  const bool of_exponents = d.factor == Factor::kPowerOfTwo ||
                            d.factor == Factor::kPowerOfTwoApproximate ||
                            d.factor == Factor::kDivideByWrapped;
  if (of_exponents && d.scale != FormatId::kE8M0) {
    throw Error(o.Where("factor"),
                "the factor \"" + std::string(LabelOf(d.factor)) + "\" is for e8m0 scales");
  }
  if (d.inf_scale == InfScale::kNumber && MaxExponent(d.element) < 1) {
    throw Error(o.Where("inf_scale"), "\"number\" is for elements whose largest is 2 or more");
  }
  if (d.nan_code >> FormatOf(d.element).bits > 0) {
    throw Error(o.Where("nan_code"), "must be a code of the element, of " +
                                         std::to_string(FormatOf(d.element).bits) + " bits, or -1");
  }
  if (d.row_scaled && d.block_rows > 1) {
    throw Error(o.Where("row_scaled"), "a block of several rows has no row's scale");
  }
  if (d.adaptive != Adaptive::kNo && (!blocks || d.block_rows > 32 || exponent)) {
    throw Error(o.Where("adaptive"),
                "four over six is for blocks of at most 32 rows under scales with a fraction");
  }
}

void PutStage(Json* json, std::string_view key, std::string_view label, std::string_view start) {
  if (label != start) (*json)[std::string(key)] = label;
}

// The object from which ReadDialect makes `d`, with every stage that differs from the starting row.
Json SpelledOut(const Dialect& d) {
  const bool exponent = d.scale == FormatId::kE8M0 && d.block_rows > 0;
  Json json{{"like", d.block_rows == 0 ? "fp8_e4m3"
                     : exponent        ? "mxfp4.rceil"
                                       : kStart},
            {"element", Named(d.element).short_name}};
  Dialect start = *FindDialect(json["like"].get<std::string>());
  if (d.block_rows == 0) {
    if (d.row_scaled) json["block"] = {1, 0};
  } else {
    const bool floats = d.scale_encoding == ScaleEncoding::kBinary32;
    json["scale"] = floats ? "fp32" : Named(d.scale).short_name;
    if (floats) {
      start.scale_encoding = ScaleEncoding::kBinary32;
      start.tensor_scale = TensorScaleRule::kNone;
      start.block_scale = BlockScale::kNoTensorScale;
    }
    json["block"] = {d.block_rows, d.block_cols};
    if (!exponent) start.scale_max = MaxFinite(d.scale);
    if (!exponent && !HasTensorScale(d) && !floats) {
      json["tensor_scale"] = false;
      start.tensor_scale = TensorScaleRule::kNone;
      start.block_scale = BlockScale::kNoTensorScale;
    }
    if (d.row_scaled) json["row_scaled"] = true;
  }
  if (d.scale_max != start.scale_max) json["scale_max"] = d.scale_max;
  if (d.target != 0.0f) json["target"] = d.target;
  if (d.prescale != 1.0f) json["prescale"] = d.prescale;
  PutStage(&json, "clip", LabelOf(d.statistic), LabelOf(start.statistic));
  if (d.statistic == BlockStatistic::kQuest && exponent) {
    start.block_scale = BlockScale::kFloorLog2Quotient;
  }
  PutStage(&json, "unbias", LabelOf(d.unbias), LabelOf(start.unbias));
  PutStage(&json, "adaptive", LabelOf(d.adaptive), LabelOf(start.adaptive));
  if (d.adaptive_fp16) json["adaptive_fp16"] = true;
  if (d.adaptive_decode) json["adaptive_decode"] = true;
  PutStage(&json, "tensor_scale", LabelOf(d.tensor_scale), LabelOf(start.tensor_scale));
  PutStage(&json, "block_scale", LabelOf(d.block_scale), LabelOf(start.block_scale));
  PutStage(&json, "scale_encoding", LabelOf(d.scale_encoding), LabelOf(start.scale_encoding));
  PutStage(&json, "factor", LabelOf(d.factor), LabelOf(start.factor));
  PutStage(&json, "element_rounding", LabelOf(d.rounding), LabelOf(start.rounding));
  PutStage(&json, "nan", LabelOf(d.nan), LabelOf(start.nan));
  PutStage(&json, "inf_scale", LabelOf(d.inf_scale), LabelOf(start.inf_scale));
  PutStage(&json, "signed_zeros", ZerosOf(d), ZerosOf(start));
  if (d.nan_scale >= 0) json["nan_scale"] = d.nan_scale;
  if (d.nan_code >= 0) json["nan_code"] = d.nan_code;
  return json;
}

void ReadNanByte(JsonObject* o, std::string_view key, std::int16_t* byte) {
  if (!o->Has(key)) return;
  int value = 0;
  o->Read(key, &value);
  if (value < -1 || value > 255) throw Error(o->Where(key), "must be a byte, or -1 for none");
  *byte = static_cast<std::int16_t>(value);
}

}  // namespace

Dialect ReadDialectKeys(JsonObject& o, const std::string& where, Dialect d) {
  const IeeeArithmetic ieee;
  for (const DialectKey& known : DialectKeys()) o.Member(known.key);  // for the remedy of a typo
  ReadFormats(&o, &d);
  ReadBlock(&o, &d);
  ReadTensorScale(&o, &d);
  ReadAdditions(&o, where, &d);
  ReadStage(&o, "adaptive", &d.adaptive);
  o.Read("adaptive_fp16", &d.adaptive_fp16);
  o.Read("adaptive_decode", &d.adaptive_decode);
  if (const auto key = TensorScaleFormula(&o)) ReadStage(&o, *key, &d.tensor_scale);
  ReadStage(&o, "block_scale", &d.block_scale);
  ReadStage(&o, "scale_encoding", &d.scale_encoding);
  ReadStage(&o, "factor", &d.factor);
  ReadStage(&o, "element_rounding", &d.rounding);
  ReadStage(&o, "nan", &d.nan);
  ReadStage(&o, "inf_scale", &d.inf_scale);
  ReadZeros(&o, &d);
  ReadNanByte(&o, "nan_scale", &d.nan_scale);
  ReadNanByte(&o, "nan_code", &d.nan_code);
  o.Finish();
  CheckStages(o, d);
  return d;
}

Dialect ReadDialect(const Json& json, const std::string& where) {
  const IeeeArithmetic ieee;
  if (json.is_string()) return RowNamed(json.get<std::string>(), where);
  JsonObject o(json, where);
  for (const DialectKey& known : DialectKeys()) o.Member(known.key);
  std::string like(kStart);
  o.Read("like", &like);
  Dialect d = RowNamed(like, o.Where("like"));
  if (IsStochastic(d)) d = WithOwnRounding(d);
  d = ReadDialectKeys(o, where, d);
  if (RandomBitsOf(d.rounding) != 0) {
    throw Error(o.Where("element_rounding"), "stochastic rounding is the operand's \"rounding\"");
  }
  return Canonical(d);
}

Json DialectFields(const Dialect& d) {
  const IeeeArithmetic ieee;
  return {{"element", Named(d.element).name},
          {"scale", d.scale_encoding == ScaleEncoding::kBinary32 ? "fp32" : Named(d.scale).name},
          {"block", {d.block_rows, d.block_cols}},
          {"row_scaled", d.row_scaled},
          {"scale_max", d.scale_max},
          {"target", d.target},
          {"prescale", d.prescale},
          {"clip", LabelOf(d.statistic)},
          {"unbias", LabelOf(d.unbias)},
          {"adaptive", LabelOf(d.adaptive)},
          {"adaptive_fp16", d.adaptive_fp16},
          {"adaptive_decode", d.adaptive_decode},
          {"tensor_scale", LabelOf(d.tensor_scale)},
          {"block_scale", LabelOf(d.block_scale)},
          {"scale_encoding", LabelOf(d.scale_encoding)},
          {"factor", LabelOf(d.factor)},
          {"element_rounding", LabelOf(d.rounding)},
          {"nan", LabelOf(d.nan)},
          {"inf_scale", LabelOf(d.inf_scale)},
          {"signed_zeros", ZerosOf(d)},
          {"nan_scale", d.nan_scale},
          {"nan_code", d.nan_code}};
}

namespace {

// An object of the keys in which `d` differs from `row`; null if these keys do not express all
// differences.
Json DifferenceFrom(const Dialect& row, const Dialect& d) {
  if (row.tensor_scale != d.tensor_scale || row.factor != d.factor || row.scale != d.scale ||
      row.scale_encoding != d.scale_encoding || IsStochastic(row)) {
    return nullptr;
  }
  Json json{{"like", row.name}};
  const auto put = [&json](const char* key, const Json& value, bool differs) {
    if (differs) json[key] = value;
  };
  put("element", Named(d.element).short_name, d.element != row.element);
  put("block", {d.block_rows, d.block_cols},
      d.block_rows != row.block_rows || d.block_cols != row.block_cols);
  put("row_scaled", d.row_scaled, d.row_scaled != row.row_scaled);
  put("scale_max", d.scale_max, d.scale_max != row.scale_max);
  put("target", d.target, d.target != row.target);
  put("prescale", d.prescale, d.prescale != row.prescale);
  put("adaptive", LabelOf(d.adaptive), d.adaptive != row.adaptive);
  put("clip", LabelOf(d.statistic), d.statistic != row.statistic);
  put("unbias", LabelOf(d.unbias), d.unbias != row.unbias);
  const bool same = SameFormulas(ReadDialect(json, ""), d);
  return same ? json : Json(nullptr);
}

// `d` as its differences from the nearest row, or as all stages (SpelledOut) if no row is near.
Json Spelled(const Dialect& d) {
  Json shortest;
  for (const Dialect& row : Dialects()) {
    Json json;
    try {
      json = DifferenceFrom(row, d);
    } catch (const Error&) {  // the row does not allow one of the keys
      continue;
    }
    if (!json.is_null() && (shortest.is_null() || json.size() < shortest.size())) shortest = json;
  }
  return shortest.is_null() ? SpelledOut(d) : shortest;
}

}  // namespace

Json ToJson(const Dialect& dialect) {
  const IeeeArithmetic ieee;
  Dialect d = IsStochastic(dialect) ? WithOwnRounding(dialect) : dialect;
  const Dialect* named = FindDialect(d.name);
  if (named != nullptr && SameFormulas(*named, d)) return std::string(d.name);
  d = Canonical(d);
  return d.name.empty() ? Spelled(d) : Json(std::string(d.name));
}

}  // namespace fp4lab
