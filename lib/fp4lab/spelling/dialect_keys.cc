#include "fp4lab/spelling/dialect_keys.h"

#include <array>

#include "fp4lab/dialect/dialect.h"
#include "fp4lab/dialect/labels.h"

namespace fp4lab {
namespace {

constexpr std::string_view kLabel = "a label, below";

constexpr std::array kKeys = {
    DialectKey{"like", "a name of `fp4lab dialects` (`nvfp4.te` when absent)",
               "the row that the other keys modify"},
    DialectKey{"element", "`e2m1`, `e2m3`, `e3m2`, `e4m3`, `e5m2`, `int4`",
               "the format of elements; `int4` is the uniform grid of 4 bits, E0M3"},
    DialectKey{"scale", "`e4m3`, `ue4m3`, `ue5m3`, `e5m2`, `e8m0`, `fp32`, `bf16`",
               "the format of block scales; `fp32` is not rounded, `bf16` is numbers of BF16, and "
               "both have no tensor scale"},
    DialectKey{"rule", "`nvfp4`, `floor`, `ceil`, `rceil`, `even`, `tensor`",
               "all formulas of that scale rule at once. When absent, those of `like`; if `scale` "
               "asks for the other kind of scales, `rceil` for E8M0 and `nvfp4` else"},
    DialectKey{"block", "`[1, N]` or `[N, N]`, N = 8, 16 .. 128; `[0, 0]`; `[1, 0]`",
               "rows and columns that share a scale; `[0, 0]` is one scale per tensor, `[1, 0]` "
               "one per row"},
    DialectKey{"row_scaled", "`true`, `false`", "the tensor scale is one per row"},
    DialectKey{"scale_max", "a number above 0",
               "the block scale that the tensor scale aims at; the largest of the scale format "
               "when absent"},
    DialectKey{"target", "a number, at most twice the largest element",
               "the value that a block's amax is mapped to; the largest element when absent (6 * "
               "16/17 leaves head room for stochastic rounding)"},
    DialectKey{"prescale", "a number in (0, 16]",
               "elements are multiplied by it under their scale, and the product is divided by it"},
    DialectKey{"clip", kLabel, "how the scale of a block follows from its elements"},
    DialectKey{"unbias", kLabel, "block scales corrected and rounded at random"},
    DialectKey{"adaptive", kLabel, "four over six: each block takes the better of two scales"},
    DialectKey{"adaptive_fp16", "`true`, `false`", "four over six compares errors in FP16"},
    DialectKey{"adaptive_decode", "`true`, `false`", "its errors are those of value * s * D"},
    DialectKey{"tensor_scale", "a label, below; or `false`",
               "S and D, the tensor scale to encode and to decode; `false`: no scale above the "
               "block scales. Older files call it `level_two`"},
    DialectKey{"block_scale", kLabel, "t, the block scale before it is rounded"},
    DialectKey{"scale_encoding", kLabel, "the stored byte of t; `up` and `down` round E4M3 scales"},
    DialectKey{"factor", kLabel, "e, with which an element becomes v"},
    DialectKey{"element_rounding", kLabel,
               "the code of v; stochastic rounding is the operand's `rounding`, outside of the "
               "format"},
    DialectKey{"nan", kLabel, "what a NaN element does to its block"},
    DialectKey{"inf_scale", kLabel, "what an infinite maximum does to an E8M0 scale"},
    DialectKey{"signed_zeros", "`keep`, `add_zero`, `never`",
               "whether a code of value 0 keeps its sign; `add_zero` makes v = -0 positive"},
    DialectKey{"nan_scale", "a byte, or -1", "the byte stored for the scale of a block with a NaN"},
    DialectKey{"nan_code", "a byte, or -1", "the byte stored for a NaN element"},
};

// The text of a formula; empty for formulas that have none.
struct TextIfAny {
  template <class F>
  constexpr std::string_view operator()(F) const {
    if constexpr (requires { F::kText; }) {
      return F::kText;
    } else {
      return "";
    }
  }
};

// What labels mean whose formulas have no text of their own.
struct LabelText {
  std::string_view key, label, text;
};
constexpr std::array kLabelTexts = {
    LabelText{"clip", "none", "the block's amax is its largest magnitude"},
    LabelText{"clip", "quest", "the block's amax follows from its standard deviation"},
    LabelText{"unbias", "none", "scales are rounded as `scale_encoding` says"},
    LabelText{"unbias", "ms_eden",
              "MS-EDEN: scales corrected for the block's bias, rounded at random"},
    LabelText{"adaptive", "none", "a block has one scale"},
    LabelText{"inf_scale", "rule", "the block scale's own rule"},
};
std::string_view TextOfLabel(std::string_view key, std::string_view label) {
  for (const LabelText& t : kLabelTexts) {
    if (t.key == key && t.label == label) return t.text;
  }
  return "";
}

// A cell of a table: "|" would end it.
std::string Cell(std::string_view text) {
  std::string cell;
  for (const char c : text) cell += c == '|' ? std::string("\\|") : std::string(1, c);
  return cell;
}

template <class Enum>
std::string Labels(std::string_view key) {
  std::string text = "\n`" + std::string(key) + "`\n\n| label | formula |\n|---|---|\n";
  for (std::uint8_t i = 0; i <= static_cast<std::uint8_t>(LastOf(Enum{})); ++i) {
    const auto rule = static_cast<Enum>(i);
    std::string_view formula = WithFormula<std::string_view>(rule, TextIfAny{});
    if (formula.empty()) formula = TextOfLabel(key, LabelOf(rule));
    text += "| `" + std::string(LabelOf(rule)) + "` | " + Cell(formula) + " |\n";
  }
  return text;
}

}  // namespace

std::span<const DialectKey> DialectKeys() { return kKeys; }

std::string DialectKeysText() {
  std::string text = "| key | values | what it sets |\n|---|---|---|\n";
  for (const DialectKey& k : kKeys) {
    text += "| `" + std::string(k.key) + "` | " + Cell(k.values) + " | " + Cell(k.meaning) + " |\n";
  }
  return text + Labels<BlockStatistic>("clip") + Labels<Unbias>("unbias") +
         Labels<Adaptive>("adaptive") + Labels<TensorScaleRule>("tensor_scale") +
         Labels<BlockScale>("block_scale") + Labels<ScaleEncoding>("scale_encoding") +
         Labels<Factor>("factor") + Labels<ElementRounding>("element_rounding") +
         Labels<NanRule>("nan") + Labels<InfScale>("inf_scale");
}

}  // namespace fp4lab
