// The table of wrong GEMM kernels.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "fp4lab/formats/format.h"
#include "fp4lab/judge/products/gemm_kernel.h"
#include "fp4lab/judge/products/scale_readings.h"

namespace fp4lab {
namespace {

bool NibblesSwapped(MmaOperand& x) {
  if (x.format.bits != 4) return false;
  const std::vector<std::uint32_t> before = x.codes;
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c + 1 < x.cols; c += 2) {
      std::swap(x.codes[r * x.cols + c], x.codes[r * x.cols + c + 1]);
    }
  }
  return x.codes != before;
}

// The operand read as (cols, rows): of square operands alone, whose scales stay where they are.
bool Transposed(MmaOperand& x) {
  if (x.rows != x.cols || x.IsScaled()) return false;
  const std::vector<std::uint32_t> before = x.codes;
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) x.codes[c * x.rows + r] = before[r * x.cols + c];
  }
  return x.codes != before;
}

// Scales of block k taken for block k + 1, the first for itself.
bool ScalesOfBefore(MmaOperand& x) {
  if (!x.IsScaled()) return false;
  const std::vector<std::uint8_t> before = x.scales;
  const std::size_t cols = x.ScaleCols();
  for (std::size_t i = 0; i < x.scales.size(); ++i) {
    if (i % cols != 0) x.scales[i] = before[i - 1];
  }
  return x.scales != before;
}

// The rows of scales of the first row for all rows.
bool ScalesOfFirstRow(MmaOperand& x) {
  if (!x.IsScaled()) return false;
  const std::vector<std::uint8_t> before = x.scales;
  for (std::size_t i = 0; i < x.scales.size(); ++i) x.scales[i] = before[i % x.ScaleCols()];
  return x.scales != before;
}

bool SignsDropped(MmaOperand& x) {
  bool changed = false;
  for (std::uint32_t& code : x.codes) {
    changed = changed || (code & SignBit(x.format)) != 0;
    code &= ~SignBit(x.format);
  }
  return changed;
}

// The grid of scales read column by column: byte (r, c) from place c rows + r.
bool ScalesColumnMajor(MmaOperand& x) {
  if (!x.IsScaled()) return false;
  const std::vector<std::uint8_t> before = x.scales;
  const std::size_t cols = x.ScaleCols();
  for (std::size_t i = 0; i < before.size(); ++i) {
    x.scales[i] = before[i % cols * x.rows + i / cols];
  }
  return x.scales != before;
}

// Scales in tiles of 128x4 read as if they were linear, or the reverse; only of whole tiles, as the
// bytes of other grids are not of equal number.
bool ScalesInOtherOrder(MmaOperand& x, bool stored_in_tiles) {
  const std::size_t cols = x.ScaleCols();
  if (!x.IsScaled() || x.rows % 128 != 0 || cols % 4 != 0) return false;
  const std::vector<std::uint8_t> before = x.scales;
  for (std::size_t i = 0; i < before.size(); ++i) {
    const std::size_t in_tiles = Offset128x4(i / cols, i % cols, cols);
    stored_in_tiles ? x.scales[in_tiles] = before[i] : x.scales[i] = before[in_tiles];
  }
  return x.scales != before;
}

template <class Change>
bool ChangeCodes(MmaOperand& x, Change change) {
  bool changed = false;
  for (std::uint32_t& code : x.codes) {
    const std::uint32_t other = change(code);
    changed = changed || other != code;
    code = other;
  }
  return changed;
}

bool SubnormalsAsZero(MmaOperand& x) {
  return ChangeCodes(x, [f = x.format](std::uint32_t code) {
    return (code & MagnitudeMask(f)) >> f.mantissa_bits == 0 ? code & SignBit(f) : code;
  });
}

bool NansAsZero(MmaOperand& x) {
  return ChangeCodes(x, [f = x.format](std::uint32_t code) { return IsNan(f, code) ? 0u : code; });
}

// 0x7F of E4M3 is 480, as the bits say.
bool NansAsNumbers(MmaOperand& x) {
  if (x.format.specials != Specials::kNan) return false;
  const bool has = std::any_of(x.codes.begin(), x.codes.end(),
                               [&](std::uint32_t code) { return IsNan(x.format, code); });
  x.format.specials = Specials::kNone;
  return has;
}

bool InfinitiesAsLargest(MmaOperand& x) {
  return ChangeCodes(x, [f = x.format](std::uint32_t code) {
    return IsInf(f, code) ? (code & SignBit(f)) | MaxFiniteCode(f) : code;
  });
}

template <class Change>
bool InBoth(GemmKernel& k, Change change) {
  const bool in_a = change(k.a), in_b = change(k.b);
  return in_a || in_b;
}

void Clear(MmaOperand& x, std::size_t from, std::size_t to) {
  for (std::size_t r = 0; r < x.rows; ++r) {
    std::fill_n(x.codes.begin() + static_cast<std::ptrdiff_t>(r * x.cols + from), to - from, 0u);
  }
}

// The last columns of K that do not fill `unit` columns are left out; K below `unit` is kept.
bool TailDropped(GemmKernel& k, std::size_t unit) {
  const std::size_t whole = k.a.cols / unit * unit;
  if (whole == k.a.cols || whole == 0) return false;
  Clear(k.a, whole, k.a.cols);
  Clear(k.b, whole, k.b.cols);
  return true;
}

std::size_t BlockWidth(const GemmKernel& k) {
  return k.a.IsScaled() ? static_cast<std::size_t>(k.a.group) : 16;
}

// The last block of K is left out, or the first.
bool BlockDropped(GemmKernel& k, bool first) {
  const std::size_t width = BlockWidth(k);
  if (k.a.cols <= width) return false;
  first ? Clear(k.a, 0, width) : Clear(k.a, (k.a.cols - 1) / width * width, k.a.cols);
  return true;
}

// The last block of K, or the first, once more at the end of K.
void AppendBlock(MmaOperand& x, std::size_t from, std::size_t width) {
  const MmaOperand old = x;
  const std::size_t end = from + width;
  x.cols += width;
  x.codes.clear();
  x.scales.clear();
  for (std::size_t r = 0; r < old.rows; ++r) {
    const auto codes = old.Row(r);
    x.codes.insert(x.codes.end(), codes.begin(), codes.end());
    x.codes.insert(x.codes.end(), codes.begin() + static_cast<std::ptrdiff_t>(from),
                   codes.begin() + static_cast<std::ptrdiff_t>(end));
    if (!old.IsScaled()) continue;
    const auto scales = old.ScaleRow(r);
    x.scales.insert(x.scales.end(), scales.begin(), scales.end());
    x.scales.push_back(scales[from / static_cast<std::size_t>(old.group)]);
  }
}

// The last whole block of a K that is whole blocks is counted twice.
bool LastBlockTwice(GemmKernel& k) {
  const std::size_t width = BlockWidth(k);
  if (k.a.cols < 2 * width || k.a.cols % width != 0 || k.a.group != k.b.group) return false;
  const std::size_t from = k.a.cols - width;
  AppendBlock(k.a, from, width);
  AppendBlock(k.b, from, width);
  return true;
}

bool SetAlpha(GemmKernel& k, float alpha) {
  const bool changed = k.alpha != alpha;
  k.alpha = alpha;
  return changed;
}

template <class T>
bool Set(T& member, T value) {
  const bool changed = member != value;
  member = value;
  return changed;
}

// Rows (of A) or columns (rows of B) beyond the last whole tile are not written. Fewer than a tile
// are written.
bool TailUnwritten(std::size_t& written, std::size_t all, std::size_t tile) {
  const std::size_t whole = all / tile * tile;
  if (whole == all || whole == 0) return false;
  written = whole;
  return true;
}

bool TailKept(GemmKernel& k, std::size_t& written, std::size_t all, std::size_t tile) {
  if (k.before.size() == 0 || !TailUnwritten(written, all, tile)) return false;
  k.keeps_rest = true;
  return true;
}

bool BForA(GemmKernel& k) {
  if (k.a.rows != k.b.rows || !(k.a.format == k.b.format) || k.a.group != k.b.group) return false;
  k.a = k.b;
  return true;
}

bool AForB(GemmKernel& k) {
  if (k.a.rows != k.b.rows || !(k.a.format == k.b.format) || k.a.group != k.b.group) return false;
  k.b = k.a;
  return true;
}

// On operands that the accumulation does not take, the kernel stays as it is.
bool SumUnder(GemmKernel& k, std::string_view name) {
  const Accumulation* other = FindAccumulation(name);
  if (k.under == other || k.a.format.bits != 8 || !WhyNot(*other, k.a, k.b).empty()) return false;
  k.under = other;
  return true;
}

bool PromoteEvery128(GemmKernel& k) {
  GemmKernel other = k;
  other.sums = PartialSums::kPromoted128;
  if (k.a.IsScaled() || !WhyNot(other).empty()) return false;
  k.sums = other.sums;
  return true;
}

bool SetBeta(GemmKernel& k, float beta) {
  if (k.c.size() == 0 || k.beta == 0.0f) return false;
  return Set(k.beta, beta);
}

bool Narrow(const GemmKernel& k) { return k.output != GemmOutput::kFp32; }

using In = GemmKernel;

// clang-format off
constexpr auto kTable = std::to_array<GemmDeviation>({
    // Reading the operands.
    {"a-scales-missing", "leaves the block scales of A out", [](In& in) { return IgnoreScales(in.a); }},
    {"b-scales-missing", "leaves the block scales of B out", [](In& in) { return IgnoreScales(in.b); }},
    {"nibbles-swapped", "reads the two codes of every byte of one operand in the wrong order",
     [](In& in) { return NibblesSwapped(in.a); }},  // of B: the same products in another order
    {"a-transposed", "reads A transposed", [](In& in) { return Transposed(in.a); }},
    {"b-transposed", "reads B transposed", [](In& in) { return Transposed(in.b); }},
    {"a-scales-of-block-before", "takes the scales of A from the block before",
     [](In& in) { return ScalesOfBefore(in.a); }},
    {"b-scales-of-block-before", "takes the scales of B from the block before",
     [](In& in) { return ScalesOfBefore(in.b); }},
    {"a-scales-of-first-row", "takes the scales of A's first row for all rows",
     [](In& in) { return ScalesOfFirstRow(in.a); }},
    {"b-scales-of-first-row", "takes the scales of B's first row for all rows",
     [](In& in) { return ScalesOfFirstRow(in.b); }},
    {"a-signs-dropped", "drops the signs of A", [](In& in) { return SignsDropped(in.a); }},
    {"b-signs-dropped", "drops the signs of B", [](In& in) { return SignsDropped(in.b); }},
    {"a-scales-column-major", "reads the grid of A's scales column by column", [](In& in) { return ScalesColumnMajor(in.a); }},
    {"b-scales-column-major", "reads the grid of B's scales column by column", [](In& in) { return ScalesColumnMajor(in.b); }},
    {"a-scales-linear-as-128x4", "reads the linear scales of A as tiles of 128x4",
     [](In& in) { return ScalesInOtherOrder(in.a, false); }},
    {"b-scales-linear-as-128x4", "reads the linear scales of B as tiles of 128x4",
     [](In& in) { return ScalesInOtherOrder(in.b, false); }},
    {"a-scales-128x4-as-linear", "reads A's tiles of 128x4 scales as linear ones",
     [](In& in) { return ScalesInOtherOrder(in.a, true); }},
    {"b-scales-128x4-as-linear", "reads B's tiles of 128x4 scales as linear ones",
     [](In& in) { return ScalesInOtherOrder(in.b, true); }},
    {"element-subnormals-as-0", "reads subnormal elements as 0", [](In& in) { return InBoth(in, SubnormalsAsZero); }},
    {"element-nan-as-0", "reads NaN elements as 0", [](In& in) { return InBoth(in, NansAsZero); }},
    {"element-nan-as-480", "reads the E4M3 element 0x7F as 480, not as NaN",
     [](In& in) { return InBoth(in, NansAsNumbers); }},
    {"element-inf-as-largest", "reads infinite elements as the largest finite number",
     [](In& in) { return InBoth(in, InfinitiesAsLargest); }},
    {"b-in-the-place-of-a", "multiplies B by itself", BForA},
    {"a-in-the-place-of-b", "multiplies A by itself", AForB},
    // The sum.
    {"k-tail-of-32-dropped", "leaves out the end of K that does not fill 32 elements",
     [](In& in) { return TailDropped(in, 32); }},
    {"k-tail-of-64-dropped", "leaves out the end of K that does not fill 64 elements",
     [](In& in) { return TailDropped(in, 64); }},
    {"k-tail-of-128-dropped", "leaves out the end of K that does not fill 128 elements",
     [](In& in) { return TailDropped(in, 128); }},
    {"k-last-block-dropped", "leaves out the last block of K",
     [](In& in) { return BlockDropped(in, false); }},
    {"k-first-block-dropped", "leaves out the first block of K",
     [](In& in) { return BlockDropped(in, true); }},
    {"k-last-block-twice", "counts the last block of K twice", LastBlockTwice},
    {"sum-in-bf16", "rounds every partial sum to BF16", [](In& in) { return Set(in.sums, PartialSums::kBf16); }},
    {"sum-in-fp16", "rounds every partial sum to FP16", [](In& in) { return Set(in.sums, PartialSums::kFp16); }},
    {"sum-of-bf16-halves", "rounds the sums over both halves of K to BF16 and adds them",
     [](In& in) { return Set(in.sums, PartialSums::kBf16Splits); }},
    {"sum-of-hopper-fp8", "keeps 14 bits of a sum, as an FP8 wgmma of Hopper does",
     [](In& in) { return SumUnder(in, "hopper.wgmma.f8.f32"); }},
    {"sum-of-ada-fp8", "keeps 14 bits of a sum of 16 products, as an FP8 mma of Ada does",
     [](In& in) { return SumUnder(in, "ada.f8.f32"); }},
    {"sum-promoted-every-128", "adds FP8 wgmma sums of Hopper over 128 elements in binary32",
     PromoteEvery128},
    // Alpha.
    {"alpha-missing", "leaves alpha out", [](In& in) { return SetAlpha(in, 1.0f); }},
    {"alpha-twice", "multiplies by alpha twice",
     [](In& in) { return SetAlpha(in, in.alpha * in.alpha); }},
    {"alpha-inverted", "divides by alpha", [](In& in) { return SetAlpha(in, 1.0f / in.alpha); }},
    {"alpha-in-bf16", "rounds alpha to BF16",
     [](In& in) { return SetAlpha(in, Decode(FormatId::kBF16, Encode(FormatId::kBF16, in.alpha))); }},
    {"a-tensor-scale-missing", "leaves the tensor scale of A out",
     [](In& in) { return SetAlpha(in, in.alpha / in.tensor_scale_a); }},
    {"b-tensor-scale-missing", "leaves the tensor scale of B out",
     [](In& in) { return SetAlpha(in, in.alpha / in.tensor_scale_b); }},
    // C.
    {"c-not-added", "does not add C", [](In& in) { return SetBeta(in, 0.0f); }},
    {"beta-missing", "adds C without beta", [](In& in) { return SetBeta(in, 1.0f); }},
    {"beta-by-alpha", "multiplies C by alpha and beta", [](In& in) { return SetBeta(in, in.alpha * in.beta); }},
    // Output.
    {"adds-what-d-held", "adds the product to what D held before", [](In& in) { return in.before.size() > 0 && Set(in.adds_before, true); }},
    {"output-transposed", "writes the transposed product", [](In& in) { return Set(in.transposed_output, true); }},
    {"row-tail-of-16-zero", "leaves rows that do not fill 16 zero",
     [](In& in) { return TailUnwritten(in.rows_written, in.a.rows, 16); }},
    {"row-tail-of-128-zero", "leaves rows that do not fill 128 zero",
     [](In& in) { return TailUnwritten(in.rows_written, in.a.rows, 128); }},
    {"column-tail-of-16-zero", "leaves columns that do not fill 16 zero",
     [](In& in) { return TailUnwritten(in.cols_written, in.b.rows, 16); }},
    {"column-tail-of-128-zero", "leaves columns that do not fill 128 zero",
     [](In& in) { return TailUnwritten(in.cols_written, in.b.rows, 128); }},
    {"row-tail-of-16-kept", "does not write rows that do not fill 16",
     [](In& in) { return TailKept(in, in.rows_written, in.a.rows, 16); }},
    {"row-tail-of-128-kept", "does not write rows that do not fill 128",
     [](In& in) { return TailKept(in, in.rows_written, in.a.rows, 128); }},
    {"column-tail-of-16-kept", "does not write columns that do not fill 16",
     [](In& in) { return TailKept(in, in.cols_written, in.b.rows, 16); }},
    {"column-tail-of-128-kept", "does not write columns that do not fill 128",
     [](In& in) { return TailKept(in, in.cols_written, in.b.rows, 128); }},
    {"output-through-bf16", "rounds the sum to BF16 and then to the output's type",
     [](In& in) { return in.output != GemmOutput::kBf16 && Set(in.finish, Finish::kThroughBf16); }},
    {"output-through-fp16", "rounds the sum to FP16 and then to the output's type",
     [](In& in) { return in.output != GemmOutput::kFp16 && Set(in.finish, Finish::kThroughFp16); }},
    {"output-toward-zero", "truncates the output",
     [](In& in) { return Narrow(in) && Set(in.finish, Finish::kTowardZero); }},
    {"output-ties-away", "rounds ties of the output away from zero",
     [](In& in) { return Narrow(in) && Set(in.finish, Finish::kTiesAway); }},
    {"output-saturates", "writes the largest finite number where the output overflows",
     [](In& in) { return Narrow(in) && Set(in.finish, Finish::kSaturates); }},
    {"output-subnormals-as-0", "writes 0 for subnormal results", [](In& in) { return Set(in.finish, Finish::kFlushes); }},
    {"output-nan-as-0", "writes 0 for NaN", [](In& in) { return Set(in.finish, Finish::kNanAsZero); }},
    {"output-inf-as-nan", "writes NaN for an infinity", [](In& in) { return Set(in.finish, Finish::kInfinityAsNan); }},
    {"output-negative-zero-as-0", "writes +0 for -0", [](In& in) { return Set(in.finish, Finish::kDropsNegativeZero); }},
});
// clang-format on

}  // namespace

std::span<const GemmDeviation> GemmDeviations() { return kTable; }

}  // namespace fp4lab
