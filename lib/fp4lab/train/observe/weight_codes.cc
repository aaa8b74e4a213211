#include "fp4lab/train/observe/weight_codes.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/formats/encode.h"
#include "fp4lab/quantize/statistics.h"
#include "fp4lab/spelling/dialect_json.h"

namespace fp4lab {
namespace {

constexpr std::string_view kDigits = "0123456789abcdef";

std::vector<std::uint8_t> Sampled(const ObservedOperand& weight) {
  const std::vector<std::uint8_t>& codes = weight.quantized.codes;
  const std::size_t stride = std::max<std::size_t>(1, DivideUp(codes.size(), kMostSampledCodes));
  std::vector<std::uint8_t> sample;
  for (std::size_t i = 0; i < codes.size(); i += stride) {
    const bool is_zero = Decode(weight.dialect.element, codes[i]) == 0.0f;
    sample.push_back(is_zero ? std::uint8_t{0} : codes[i]);
  }
  return sample;
}

// One digit a code if all codes have four bits, else two.
std::string TextOf(const std::vector<std::uint8_t>& codes, bool narrow) {
  std::string text;
  for (const std::uint8_t code : codes) {
    if (!narrow) text += kDigits[code >> 4];
    text += kDigits[code & 15];
  }
  return text;
}

std::vector<std::uint8_t> CodesOf(const std::string& text, bool narrow, const std::string& where) {
  const std::size_t digits = narrow ? 1 : 2;
  if (text.size() % digits != 0) throw Error(where, "has half a code");
  std::vector<std::uint8_t> codes;
  for (std::size_t i = 0; i < text.size(); i += digits) {
    std::size_t code = 0;
    for (std::size_t k = i; k < i + digits; ++k) {
      const std::size_t digit = kDigits.find(text[k]);
      if (digit == kDigits.npos) throw Error(where, "must be hexadecimal digits");
      code = 16 * code + digit;
    }
    codes.push_back(static_cast<std::uint8_t>(code));
  }
  return codes;
}

}  // namespace

CodeChanges WeightCodes::Observe(const std::string& linear, const ObservedOperand& weight) {
  const IeeeArithmetic ieee;
  Linear& known = linears_[linear];
  std::string format = fp4lab::ToJson(weight.dialect).dump() + " " +
                       std::to_string(weight.quantized.rows) + "x" +
                       std::to_string(weight.quantized.cols);
  if (known.format != format) known = {std::move(format), {}, {}};
  std::vector<std::uint8_t> now = Sampled(weight);
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  CodeChanges changes{kUnknown, kUnknown};
  std::size_t flips = 0, returns = 0;
  for (std::size_t i = 0; i < known.last.size(); ++i) {
    if (now[i] == known.last[i]) continue;
    ++flips;
    if (!known.before.empty() && now[i] == known.before[i]) ++returns;
  }
  const auto share = [&](std::size_t n) {
    return Percent(static_cast<double>(n), static_cast<double>(now.size()));
  };
  if (!known.last.empty()) changes.flips_percent = share(flips);
  if (!known.before.empty()) changes.returns_percent = share(returns);
  known.before = std::move(known.last);
  known.last = std::move(now);
  return changes;
}

Json WeightCodes::ToJson() const {
  const IeeeArithmetic ieee;
  Json json = Json::object();
  for (const auto& [name, linear] : linears_) {
    const auto is_narrow = [](const std::vector<std::uint8_t>& codes) {
      return std::all_of(codes.begin(), codes.end(), [](std::uint8_t code) { return code < 16; });
    };
    const bool narrow = is_narrow(linear.last) && is_narrow(linear.before);
    json[name] = {{"format", linear.format},
                  {"narrow", narrow},
                  {"last", TextOf(linear.last, narrow)},
                  {"before", TextOf(linear.before, narrow)}};
  }
  return json;
}

WeightCodes WeightCodes::Read(const Json& json, const std::string& where) {
  const IeeeArithmetic ieee;
  WeightCodes codes;
  JsonObject(json, where);
  for (const auto& [name, member] : json.items()) {
    JsonObject o(member, where);
    Linear linear;
    bool narrow = false;
    std::string last, before;
    o.Require("format", &linear.format);
    o.Require("narrow", &narrow);
    o.Require("last", &last);
    o.Require("before", &before);
    o.Finish();
    linear.last = CodesOf(last, narrow, o.Where("last"));
    linear.before = CodesOf(before, narrow, o.Where("before"));
    if (!linear.before.empty() && linear.before.size() != linear.last.size()) {
      throw Error(o.Where("before"), "has another number of codes than \"last\"");
    }
    codes.linears_[name] = std::move(linear);
  }
  return codes;
}

}  // namespace fp4lab
