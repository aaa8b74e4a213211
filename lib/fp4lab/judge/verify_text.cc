// Verdicts as text and as JSON.
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <string>

#include "fp4lab/formats/format.h"
#include "fp4lab/judge/verify.h"

namespace fp4lab {
namespace {

// Shortest text that reads back as the same float.
std::string Number(float x) {
  char buffer[32];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, x).ptr};
}

std::string Hex(std::uint32_t bits, int digits) {
  char buffer[16];
  std::snprintf(buffer, sizeof buffer, "0x%0*X", digits, bits);
  return buffer;
}

struct Part {
  const char* name;
  const PartVerdict& verdict;
  const char* place;  // what row and col count
  FormatId format;    // level 2: binary32, by `is_float`
  bool is_float;
};

std::string Written(const Part& part, std::uint32_t bits) {
  if (part.is_float) return Hex(bits, 8) + " (" + Number(std::bit_cast<float>(bits)) + ")";
  const int digits = FormatOf(part.format).bits > 4 ? 2 : 1;
  return Hex(bits, digits) + " (" + Number(Decode(part.format, bits)) + ")";
}

std::string PartText(const Part& part) {
  const PartVerdict& v = part.verdict;
  std::string text = part.name;
  text.resize(8, ' ');
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
  return {"scales", v.scales, "scale", d.scale, false};
}
Part LevelTwoOf(const Dialect& d, const Verdict& v) {
  return {"level 2", v.level_two, "number", d.scale, true};
}

}  // namespace

std::string Headline(const Dialect& dialect, const Verdict& v) {
  const std::string name(dialect.name);
  if (v.Equal()) return name + ": equal\n";
  if (v.OnlyLevelTwo()) return name + ": DIFFERENT, in the tensor number only\n";
  if (!v.Accepted()) return name + ": DIFFERENT\n";
  return name + ": within the allowed set (" + std::to_string(v.codes.different) + " of " +
         std::to_string(v.codes.total) + " codes and " + std::to_string(v.scales.different) +
         " of " + std::to_string(v.scales.total) + " scales differ from its IEEE member)\n";
}

std::string VerdictText(const Dialect& dialect, const Verdict& verdict) {
  std::string text = PartText(CodesOf(dialect, verdict));
  if (verdict.scales.total != 0) text += PartText(ScalesOf(dialect, verdict));
  if (verdict.has_level_two) {
    text += PartText(LevelTwoOf(dialect, verdict));
    if (const auto& reading = verdict.level_two_reading) {
      text += "  it is " + reading->looks + "\n  do: " + reading->remedy + "\n";
    }
  } else if (HasLevelTwo(dialect)) {
    text += "level 2 not compared: the answer stores none\n";
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
  Json json = {{"dialect", dialect.name},
               {"verdict", verdict.Equal()      ? "equal"
                           : verdict.Accepted() ? "within-set"
                                                : "different"},
               {"equal", verdict.Equal()},
               {"accepted", verdict.Accepted()},
               {"only_level_two", verdict.OnlyLevelTwo()},
               {"only_other_bytes", verdict.OnlyOtherBytes()},
               {"codes", PartJson(CodesOf(dialect, verdict))},
               {"scales", PartJson(ScalesOf(dialect, verdict))},
               {"level_two", nullptr},
               {"padding_set", verdict.padding_set}};
  if (verdict.has_level_two) json["level_two"] = PartJson(LevelTwoOf(dialect, verdict));
  if (const auto& reading = verdict.level_two_reading) {
    json["level_two"]["reading"] = ToJson(*reading);
  }
  if (verdict.allowed) {
    json["allowed"] = {{"ok", verdict.allowed->ok},
                       {"scales_outside", verdict.allowed->scales_outside},
                       {"codes_outside", verdict.allowed->codes_outside}};
  }
  return json;
}

}  // namespace fp4lab
