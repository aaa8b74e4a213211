// The text of an explanation.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/dialect/describe.h"
#include "fp4lab/dialect/stages.h"
#include "fp4lab/judge/explain/explain.h"

namespace fp4lab {
namespace {

std::string Hex(float x) { return HexText(std::bit_cast<std::uint32_t>(x), 8); }
std::string Percent(std::size_t part, std::size_t whole) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.3g %%",
                whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole));
  return buffer;
}

// ---- The formulas as the stage table names them

// `text` with the level's constant in the place of C.
std::string WithConstantOf(const Dialect& d, std::string_view text) {
  std::string with(text);
  const std::size_t at = with.find('C');
  return at == std::string::npos ? with : with.replace(at, 1, ShortestText(TensorScaleConstant(d)));
}

std::string ScaleLabel(const Dialect& d) {
  std::string text(ShortFormulaOf(d.block_scale));
  if (d.block_scale == BlockScale::kOneBlock) return text;
  for (std::size_t at = text.find('q'); at != std::string::npos; at = text.find('q', at)) {
    text.replace(at, 1, ShortestText(TargetOf(d)));
  }
  return text;
}

std::string ScaledLabel(const Dialect& d) {
  const ElementScaling scaling = ScalingOf(d.factor);
  if (HasDivisor(d.factor)) return "v = x / divisor";
  return scaling == ElementScaling::kTwoSteps ? "v = (x / D) * (1/s)" : "v = x * e";
}

// ---- The table of stages

struct Row {
  std::string stage, our_bits, our_value, their_bits, their_value;
};

std::string Range(float low, float high, bool hex) {
  if (!(low <= high)) return hex ? "none" : "";
  return (hex ? Hex(low) : ShortestText(low)) + " .. " + (hex ? Hex(high) : ShortestText(high));
}

std::vector<Row> StageRows(const Kernel& kernel, const Explanation& e) {
  const Dialect& d = kernel.dialect;
  const Trace& o = e.ours;
  const TheirElement& t = e.theirs;
  const int digits = DivideUp(FormatOf(d.element).bits, 4);
  const auto plain = [](const std::string& stage, float value) {
    return Row{stage, Hex(value), ShortestText(value), "", ""};
  };
  std::vector<Row> rows = {plain("x", o.x)};
  if (HasTensorScale(d)) {
    rows.push_back(plain("amax of the " + std::string(d.row_scaled ? "row" : "tensor"), o.amax));
    const auto tensor = WithFormula<TensorScaleShort>(d.tensor_scale, ShortOfFormula{});
    rows.push_back(plain(WithConstantOf(d, tensor.encode), o.encode));
    rows.push_back(plain(WithConstantOf(d, tensor.decode), o.decode));
  }
  if (d.block_rows > 0) {
    rows.push_back(plain("b = amax of the block", o.block_amax));
    Row before = plain(ScaleLabel(d), o.scale_before);
    if (t.has_scale && t.scale_low <= t.scale_high) {
      before.their_bits = Range(t.scale_low, t.scale_high, true);
      before.their_value = Range(t.scale_low, t.scale_high, false);
    }
    rows.push_back(before);
    const ScaleType type = ScaleTypeOf(d, kernel.layout);
    const bool is_byte = type == ScaleType::kByte;
    const std::uint32_t ours = is_byte ? o.scale_byte : ScaleCodeOf(type, d.scale, o.scale);
    const int width = static_cast<int>(2 * Named(type).bytes);
    Row scale{is_byte ? "scale byte, s" : "stored scale, s", HexText(ours, width),
              ShortestText(o.scale), "", ""};
    if (t.has_scale) {
      scale.their_bits = HexText(t.scale_code, width);
      scale.their_value = ShortestText(t.scale);
    }
    rows.push_back(scale);
  }
  Row factor = plain(std::string(ShortFormulaOf(d.factor)), o.factor),
      scaled = plain(ScaledLabel(d), o.scaled);
  if (t.has_scale && t.scale_differs) {
    factor.their_bits = Hex(t.factor);
    factor.their_value = ShortestText(t.factor) + " (from their s)";
  }
  if (t.has_code) {
    scaled.their_bits = "|v|: " + Range(t.scaled_low, t.scaled_high, true);
    scaled.their_value = Range(t.scaled_low, t.scaled_high, false);
  }
  rows.push_back(factor);
  rows.push_back(scaled);
  Row code{"code", HexText(o.code, digits), ShortestText(Decode(d.element, o.code)), "", ""};
  if (t.has_code) {
    code.their_bits = HexText(t.code, digits);
    code.their_value = ShortestText(t.value);
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
  return "lies " + CountText(static_cast<std::size_t>(ulps), "ulp") + " from the nearest tie";
}

std::string Distances(const Kernel& kernel, const Explanation& e) {
  std::string text;
  if (kernel.dialect.block_rows > 0) {
    text += "  t " + Ulps(e.ours.scale_tie_ulps) + "; v " + Ulps(e.ours.code_tie_ulps) + ".\n";
  } else {
    text += "  v " + Ulps(e.ours.code_tie_ulps) + ".\n";
  }
  const TheirElement& t = e.theirs;
  if (t.has_scale && t.has_code && t.scale_differs) {
    text += t.code == t.code_from_their_scale
                ? "  Their code follows from their scale: the first difference is the scale.\n"
                : "  Their code does not follow from their scale either.\n";
  } else if (t.has_scale && t.has_code && t.code != e.ours.code) {
    text += "  The scales are equal: the first difference is the element.\n";
  }
  return text;
}

// Whether the first cause is a layout alone. Their numbers in the table of stages are then those of
// another element.
bool IsLayout(const SearchResult& causes) {
  if (causes.exact.empty() || causes.exact[0].dialect != nullptr) return false;
  const std::vector<const Deviation*>& parts = causes.exact[0].deviations;
  return std::all_of(parts.begin(), parts.end(),
                     [](const Deviation* d) { return d->stage == Stage::kLayout; });
}

// The reading of the stored number. Beside parts with an amax of their own, it is that of a part,
// whatever else it may look like.
std::string NumberText(const Explanation& e) {
  if (!e.tensor_scale) return "the stored number differs";
  const std::vector<Cause>& exact = e.causes.exact;
  const bool parts =
      !exact.empty() && std::any_of(exact[0].deviations.begin(), exact[0].deviations.end(),
                                    [](const Deviation* d) { return d->name == "amax-of-parts"; });
  if (!parts) return Text(*e.tensor_scale);
  TensorScaleReading reading = *e.tensor_scale;
  reading.looks = "the number of a part, see the cause";
  return Text(reading);
}

std::string Summary(const Kernel& kernel, const Explanation& e) {
  const MatchCounts& c = e.counts;
  std::string text = "Different from " + std::string(kernel.dialect.name) + "\n";
  text += "  codes    " + std::to_string(c.codes_differ) + " of " + std::to_string(c.codes) +
          " differ (" + Percent(c.codes_differ, c.codes) + "), in " +
          CountText(e.extent.rows_with_codes, "row") + "\n";
  if (c.scales > 0) {
    text += "  scales   " + std::to_string(c.scales_differ) + " of " + std::to_string(c.scales) +
            " differ (" + Percent(c.scales_differ, c.scales) + ")\n";
  }
  if (c.tensor_scale_differs) text += "  tensor scale  " + NumberText(e) + "\n";
  if (!c.comparable) text += "  sizes    differ from the layout that was asked for\n";
  text += e.same_values ? "  values   all equal: other bytes for the same numbers\n"
                        : "  values   differ as well\n";
  const std::string where = Text(e.extent);
  if (!where.empty()) text += "  where    " + where + "\n";
  return text;
}

}  // namespace

std::string Text(const Kernel& kernel, const Explanation& e) {
  const IeeeArithmetic ieee;
  if (e.equal) {
    return "Equal: " + CountText(e.counts.codes, "code") + " and " +
           CountText(e.counts.scales, "scale") + " are those of " +
           std::string(kernel.dialect.name) + "\n";
  }
  std::string text = Summary(kernel, e);
  if (e.OnlyTensorScale()) return text + "\n" + CauseText(kernel, e);
  text += "\nThe first difference: row " + std::to_string(e.ours.row) + ", column " +
          std::to_string(e.ours.col) + "\n" + StageTable(StageRows(kernel, e)) +
          (IsLayout(e.causes) ? "  \"theirs\" are the kernel's bytes at this element's place in "
                                "the layout that was asked for.\n"
                              : Distances(kernel, e)) +
          "\n";
  return text + CauseText(kernel, e);
}

}  // namespace fp4lab
