// What explain found, for people.
#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "fp4lab/dialect/describe.h"
#include "fp4lab/dialect/stages.h"
#include "fp4lab/judge/explain.h"

namespace fp4lab {
namespace {

std::string Decimal(double x) {
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, static_cast<float>(x)).ptr;
  return std::string(buffer, end);
}
std::string Hex(std::uint32_t bits, int digits) {
  std::string text = "0x";
  for (int bit = 4 * digits - 4; bit >= 0; bit -= 4) text += "0123456789abcdef"[bits >> bit & 0xFu];
  return text;
}
std::string Hex(float x) { return Hex(std::bit_cast<std::uint32_t>(x), 8); }
std::string Percent(std::size_t part, std::size_t whole) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.3g %%",
                whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole));
  return buffer;
}
std::string Plural(std::size_t n, const std::string& noun) {
  return std::to_string(n) + " " + noun + (n == 1 ? "" : "s");
}

// ---- The formulas as the stage table names them

std::string LevelLabel(const Dialect& d) {
  const std::string c = Decimal(LevelTwoConstant(d));
  if (d.level_two == LevelTwo::kMultiplier || d.level_two == LevelTwo::kTwoDivisions) {
    return "S = 1 / (amax / " + c + ")";
  }
  return "S = " + c + " / amax";
}

std::string ScaleLabel(const Dialect& d) {
  std::string text(ShortFormulaOf(d.block_scale));
  if (d.block_scale == BlockScale::kOneBlock) return text;
  for (std::size_t at = text.find('q'); at != std::string::npos; at = text.find('q', at)) {
    text.replace(at, 1, Decimal(TargetOf(d)));
  }
  return text;
}

// The bare formulas; guards against zeros and overflow are left out.
struct FactorFormula {
  Factor rule;
  std::string_view text;
};
constexpr std::array kFactorFormulas = {
    FactorFormula{Factor::kReciprocal, "e = 1 / (s * D)"},
    FactorFormula{Factor::kReciprocalNan, "e = 1 / (s * D)"},
    FactorFormula{Factor::kReciprocalApproximate, "e = 1 / (s * D)"},
    FactorFormula{Factor::kReciprocalInfinite, "e = 1 / (s * D)"},
    FactorFormula{Factor::kReciprocalOrZero, "e = 1 / (s * D)"},
    FactorFormula{Factor::kReciprocalOpen, "e = 1 / (s * D)"},
    FactorFormula{Factor::kReciprocalGuarded, "e = 1 / (s * (1/S))"},
    FactorFormula{Factor::kApproximate, "e = 1 / (s * (1/S))"},
    FactorFormula{Factor::kEncodeOverScale, "e = S / s"},
    FactorFormula{Factor::kEncodeOverScaleOpen, "e = S / s"},
    FactorFormula{Factor::kEncodeTimesRcp, "e = S * (1/s)"},
    FactorFormula{Factor::kEncodeTimesApproximate, "e = S * (1/s)"},
    FactorFormula{Factor::kTwoSteps, "1/s"},
    FactorFormula{Factor::kBf16, "e = bf16(S / s)"},
    FactorFormula{Factor::kRcpLevelOverScale, "e = (1/D) / s"},
    FactorFormula{Factor::kDivideByProduct, "divisor = s * D"},
    FactorFormula{Factor::kDivideByQuotient, "divisor = s / S"},
    FactorFormula{Factor::kDivideByScale, "divisor = s"},
    FactorFormula{Factor::kDivideByNormal, "divisor = max(s, FLT_MIN)"},
    FactorFormula{Factor::kSearch, "divisor = s"},
    FactorFormula{Factor::kPowerOfTwo, "e = 1 / s"},
    FactorFormula{Factor::kTensorScale, "e = S"},
};
std::string FactorLabel(const Dialect& d) {
  for (const FactorFormula& row : kFactorFormulas) {
    if (row.rule == d.factor) return std::string(row.text);
  }
  return Divides(d.factor) ? "divisor" : "e, the factor";
}

std::string ScaledLabel(const Dialect& d) {
  if (Divides(d.factor)) return "v = x / divisor";
  return d.factor == Factor::kTwoSteps ? "v = (x / D) * (1/s)" : "v = x * e";
}

// ---- The table of stages

struct Row {
  std::string stage, our_bits, our_value, their_bits, their_value;
};

std::string Range(float low, float high, bool hex) {
  if (!(low <= high)) return hex ? "none" : "";
  return (hex ? Hex(low) : Decimal(low)) + " .. " + (hex ? Hex(high) : Decimal(high));
}

std::vector<Row> StageRows(const Kernel& kernel, const Explanation& e) {
  const Dialect& d = kernel.dialect;
  const Trace& o = e.ours;
  const TheirElement& t = e.theirs;
  const int digits = (FormatOf(d.element).bits + 3) / 4;
  const auto plain = [](const std::string& stage, float value) {
    return Row{stage, Hex(value), Decimal(value), "", ""};
  };
  std::vector<Row> rows = {plain("x", o.x)};
  if (HasLevelTwo(d)) {
    rows.push_back(plain("amax of the " + std::string(d.row_scaled ? "row" : "tensor"), o.amax));
    rows.push_back(plain(LevelLabel(d), o.encode));
    rows.push_back(plain("D = 1 / S", o.decode));
    if (d.level_two == LevelTwo::kMultiplier || d.level_two == LevelTwo::kTwoDivisions) {
      rows.back().stage = "D = amax / " + Decimal(LevelTwoConstant(d));
    }
  }
  if (d.block_rows > 0) {
    rows.push_back(plain("b = amax of the block", o.block_amax));
    Row before = plain(ScaleLabel(d), o.scale_before);
    if (t.has_scale && t.scale_low <= t.scale_high) {
      before.their_bits = Range(t.scale_low, t.scale_high, true);
      before.their_value = Range(t.scale_low, t.scale_high, false);
    }
    rows.push_back(before);
    Row byte{"scale byte, s", Hex(o.scale_byte, 2), Decimal(o.scale), "", ""};
    if (t.has_scale) {
      byte.their_bits = Hex(t.scale_byte, 2);
      byte.their_value = Decimal(t.scale);
    }
    rows.push_back(byte);
  }
  Row factor = plain(FactorLabel(d), o.factor), scaled = plain(ScaledLabel(d), o.scaled);
  if (t.has_scale && t.scale_byte != o.scale_byte) {
    factor.their_bits = Hex(t.factor);
    factor.their_value = Decimal(t.factor) + " (from their s)";
  }
  if (t.has_code) {
    scaled.their_bits = "|v|: " + Range(t.scaled_low, t.scaled_high, true);
    scaled.their_value = Range(t.scaled_low, t.scaled_high, false);
  }
  rows.push_back(factor);
  rows.push_back(scaled);
  Row code{"code", Hex(o.code, digits), Decimal(Decode(d.element, o.code)), "", ""};
  if (t.has_code) {
    code.their_bits = Hex(t.code, digits);
    code.their_value = Decimal(t.value);
  }
  rows.push_back(code);
  return rows;
}

std::string StageTable(const std::vector<Row>& rows) {
  std::size_t stage = 5, bits = 4, value = 0, their_bits = 6;
  for (const Row& r : rows) {
    stage = std::max(stage, r.stage.size());
    bits = std::max(bits, r.our_bits.size());
    value = std::max(value, r.our_value.size());
    their_bits = std::max(their_bits, r.their_bits.size());
  }
  const auto padded = [](std::string text, std::size_t width) {
    text.resize(std::max(text.size(), width), ' ');
    return text;
  };
  const auto line = [&](const Row& r) {
    std::string text = "  " + padded(r.stage, stage) + "   " + padded(r.our_bits, bits) + "  " +
                       padded(r.our_value, value) + "   " + padded(r.their_bits, their_bits) +
                       "  " + r.their_value;
    text.erase(text.find_last_not_of(' ') + 1);
    return text + "\n";
  };
  std::string text = line({"stage", "ours", "", "theirs", ""});
  for (const Row& r : rows) text += line(r);
  return text;
}

std::string Ulps(double ulps) {
  if (ulps == 0) return "is exactly a tie";
  if (ulps >= 0x1p31) return "is far from any tie";
  return "lies " + Plural(static_cast<std::size_t>(ulps), "ulp") + " from the nearest tie";
}

std::string Distances(const Kernel& kernel, const Explanation& e) {
  std::string text;
  if (kernel.dialect.block_rows > 0) {
    text += "  t " + Ulps(e.ours.scale_tie_ulps) + "; v " + Ulps(e.ours.code_tie_ulps) + ".\n";
  } else {
    text += "  v " + Ulps(e.ours.code_tie_ulps) + ".\n";
  }
  const TheirElement& t = e.theirs;
  if (t.has_scale && t.has_code && t.scale_byte != e.ours.scale_byte) {
    text += t.code == t.code_from_their_scale
                ? "  Their code follows from their scale: the scale is where the two part.\n"
                : "  Their code does not follow from their scale either.\n";
  } else if (t.has_scale && t.has_code && t.code != e.ours.code) {
    text += "  The scales agree here: the two part at the element.\n";
  }
  return text;
}

// Places alone explain it: the stages of another element stand beside ours.
bool IsLayout(const SearchResult& causes) {
  if (causes.exact.empty() || causes.exact[0].dialect != nullptr) return false;
  const std::vector<const Deviation*>& parts = causes.exact[0].deviations;
  return std::all_of(parts.begin(), parts.end(),
                     [](const Deviation* d) { return d->stage == Stage::kLayout; });
}

std::string Summary(const Kernel& kernel, const Explanation& e) {
  const MatchCounts& c = e.counts;
  std::string text = "Different from " + std::string(kernel.dialect.name) + "\n";
  text += "  codes    " + std::to_string(c.codes_differ) + " of " + std::to_string(c.codes) +
          " differ (" + Percent(c.codes_differ, c.codes) + "), in " +
          Plural(e.extent.rows_with_codes, "row") + "\n";
  if (c.scales > 0) {
    text += "  scales   " + std::to_string(c.scales_differ) + " of " + std::to_string(c.scales) +
            " differ (" + Percent(c.scales_differ, c.scales) + ")\n";
  }
  if (c.level_two_differs) {
    text += "  level 2  " + (e.level_two ? Text(*e.level_two) : "the stored number differs") + "\n";
  }
  if (!c.comparable) text += "  sizes    not those of the layout that was asked for\n";
  text += e.same_values ? "  values   all equal: other bytes for the same numbers\n"
                        : "  values   differ as well\n";
  const std::string where = Text(e.extent);
  if (!where.empty()) text += "  where    " + where + "\n";
  return text;
}

}  // namespace

std::string Text(const Kernel& kernel, const Explanation& e) {
  if (e.equal) {
    return "Equal: " + Plural(e.counts.codes, "code") + " and " + Plural(e.counts.scales, "scale") +
           " are those of " + std::string(kernel.dialect.name) + "\n";
  }
  std::string text = Summary(kernel, e);
  if (e.OnlyLevelTwo()) return text + "\n" + CauseText(kernel, e);
  text +=
      "\nThe first difference: row " + std::to_string(e.ours.row) + ", column " +
      std::to_string(e.ours.col) + "\n" + StageTable(StageRows(kernel, e)) +
      (IsLayout(e.causes) ? "  Theirs is what stands where the layout that was asked for has it.\n"
                          : Distances(kernel, e)) +
      "\n";
  return text + CauseText(kernel, e);
}

}  // namespace fp4lab
