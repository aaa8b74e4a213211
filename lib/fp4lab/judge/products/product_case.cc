#include "fp4lab/judge/products/product_case.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/base/random.h"
#include "fp4lab/formats/format.h"

namespace fp4lab {
namespace {

using Bytes = std::initializer_list<std::uint8_t>;

std::uint32_t Word(std::uint64_t seed, std::size_t i) {
  return RandomStream{.seed = seed}.Bits32(i);
}

// E2M1 elements, all codes; the scale of a block is one of `scales`.
MmaOperand Fp4(std::size_t rows, std::size_t cols, int group, FormatId scale, std::uint64_t seed,
               Bytes scales) {
  MmaOperand x{.rows = rows,
               .cols = cols,
               .format = FormatOf(FormatId::kE2M1),
               .group = group,
               .scale_format = FormatOf(scale)};
  for (std::size_t i = 0; i < rows * cols; ++i) x.codes.push_back(Word(seed, i) >> 28);
  for (std::size_t i = 0; i < rows * x.ScaleCols(); ++i) {
    x.scales.push_back(scales.begin()[(Word(seed + 1, i) >> 8) % scales.size()]);
  }
  return x;
}

// NVFP4 with scales of 1/2, 1 and 2.
MmaOperand Nvfp4(std::size_t rows, std::size_t cols, std::uint64_t seed) {
  return Fp4(rows, cols, 16, FormatId::kE4M3, seed, {0x30, 0x38, 0x40});
}

// Whole numbers from -most to most, as elements without scales.
MmaOperand Integers(FormatId format, std::size_t rows, std::size_t cols, std::uint64_t seed,
                    int most) {
  Matrix<float> x(rows, cols);
  const auto choices = static_cast<std::uint32_t>(2 * most + 1);
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    x.values[i] = static_cast<float>(static_cast<int>((Word(seed, i) >> 8) % choices) - most);
  }
  return MakeMmaOperand(FormatOf(format), x.View());
}

void SetRow(MmaOperand& x, std::size_t row, std::uint32_t code) {
  std::fill_n(x.codes.begin() + static_cast<std::ptrdiff_t>(row * x.cols), x.cols, code);
}

void SetScale(MmaOperand& x, std::size_t row, std::size_t block, std::uint8_t byte) {
  x.scales[row * x.ScaleCols() + block] = byte;
}

// Scale bytes that kernels read otherwise: 0x7F in one block of each operand, subnormals, and
// signs.
ProductCase Nvfp4ScaleBytes() {
  ProductCase c{.name = "nvfp4-scale-bytes",
                .what = "E4M3 scale bytes: NaN, subnormals, the upper bit",
                .a = Nvfp4(16, 32, 61),
                .b = Fp4(12, 32, 16, FormatId::kE4M3, 63, {0x38, 0x40})};
  for (std::size_t r = 0; r < 7; ++r) SetScale(c.a, r, 1, static_cast<std::uint8_t>(r + 1));
  for (std::size_t r = 8; r < 12; ++r) SetScale(c.a, r, 0, 0xB8);
  SetScale(c.a, 13, 0, 0x7F);
  SetScale(c.b, 4, 1, 0x7F);
  return c;
}

// E8M0 scales from end to end: under 2^-127 stands 2^126.
ProductCase Mxfp4ScaleBytes() {
  ProductCase c{.name = "mxfp4-scale-bytes",
                .what = "E8M0 scale bytes: 0x00, 0xFF, and bytes that differ",
                .a = Fp4(12, 96, 32, FormatId::kE8M0, 71, {126, 127, 128}),
                .b = Fp4(12, 96, 32, FormatId::kE8M0, 73, {126, 127, 128})};
  for (std::size_t r = 0; r < 12; ++r) {
    SetScale(c.a, r, 0, static_cast<std::uint8_t>(r % 3));
    SetScale(c.b, r, 0, 253);
  }
  SetScale(c.a, 5, 2, 0xFF);
  SetScale(c.b, 3, 1, 0xFF);
  return c;
}

ProductCase Fp8Specials() {
  ProductCase c{.name = "e4m3-nan",
                .what = "NaN elements",
                .a = Integers(FormatId::kE4M3, 8, 16, 81, 4),
                .b = Integers(FormatId::kE4M3, 8, 16, 82, 4)};
  c.a.codes[3 * 16 + 5] = 0x7F;
  c.b.codes[6 * 16 + 2] = 0xFF;
  return c;
}

ProductCase Infinities() {
  ProductCase c{.name = "e5m2-infinity",
                .what = "infinite elements, times zero as well",
                .a = Integers(FormatId::kE5M2, 8, 16, 83, 3),
                .b = Integers(FormatId::kE5M2, 8, 16, 84, 3)};
  c.a.codes[2 * 16 + 4] = 0x7C;
  c.a.codes[5 * 16 + 9] = 0xFC;
  c.b.codes[1 * 16 + 4] = 0;
  return c;
}

// Subnormal elements k 2^-9 in the half of A, whole numbers in B.
ProductCase Subnormals() {
  ProductCase c{.name = "e4m3-subnormals",
                .what = "subnormal elements",
                .a = Integers(FormatId::kE4M3, 8, 16, 85, 2),
                .b = Integers(FormatId::kE4M3, 8, 16, 86, 7)};
  for (std::size_t i = 0; i < c.a.codes.size(); i += 2) {
    c.a.codes[i] = (Word(87, i) >> 29) | (Word(88, i) >> 31 << 7);
  }
  return c;
}

// Sums that are ties of the output, and sums beyond 65504: E4M3's 448 in the first row of A.
ProductCase Output(std::string_view name, std::string_view what, GemmOutput output, float alpha) {
  ProductCase c{.name = name,
                .what = what,
                .a = Integers(FormatId::kE4M3, 16, 16, 91, 15),
                .b = Integers(FormatId::kE4M3, 16, 16, 92, 15),
                .alpha = alpha,
                .output = output};
  SetRow(c.a, 0, 0x7E);
  SetRow(c.b, 0, Encode(FormatId::kE4M3, 15.0f));
  SetRow(c.b, 1, Encode(FormatId::kE4M3, -15.0f));
  return c;
}

// y = -1/4 at (0, 0), the rest small: with alpha = 2^-24 the result is -0, or subnormal.
ProductCase Fp16Subnormals() {
  ProductCase c{.name = "fp16-subnormals",
                .what = "subnormal results in FP16, and -0",
                .a = Integers(FormatId::kE4M3, 8, 16, 93, 6),
                .b = Integers(FormatId::kE4M3, 8, 16, 94, 6),
                .alpha = 0x1p-24f,
                .output = GemmOutput::kFp16};
  SetRow(c.a, 0, 0);
  SetRow(c.b, 0, 0);
  c.a.codes[0] = Encode(FormatId::kE4M3, -0.5f);
  c.b.codes[0] = Encode(FormatId::kE4M3, 0.5f);
  return c;
}

// Whole numbers, with alpha and beta that are powers of two: every order gives one answer.
ProductCase AddedC() {
  ProductCase c{.name = "e4m3-c-and-beta",
                .what = "C and beta",
                .a = Integers(FormatId::kE4M3, 12, 16, 103, 9),
                .b = Integers(FormatId::kE4M3, 20, 16, 104, 9),
                .alpha = 0.5f,
                .beta = -0.25f};
  c.c = Matrix<float>(12, 20);
  for (std::size_t i = 0; i < c.c.values.size(); ++i) {
    c.c.values[i] = static_cast<float>(Word(105, i) % 512) - 200.0f;
  }
  return c;
}

// E4M3 elements of all exponents along a long K: the sum depends on its order.
ProductCase LongSum() {
  ProductCase c{.name = "e4m3-long-sum",
                .what = "precision of partial sums",
                .a = Integers(FormatId::kE4M3, 4, 512, 95, 0),
                .b = Integers(FormatId::kE4M3, 4, 512, 96, 0),
                .order_free = false};
  for (std::size_t i = 0; i < c.a.codes.size(); ++i) {
    for (auto [x, seed] : {std::pair{&c.a, 97u}, std::pair{&c.b, 98u}}) {
      const std::uint32_t byte = Word(seed, i) >> 24;
      x->codes[i] = (byte & 0x7F) == 0x7F ? byte - 1 : byte;
    }
  }
  return c;
}

const Accumulation& Exact() { return *FindAccumulation("exact"); }

// Applies a deviation, unless the kernel cannot run with it.
void TryOn(const WrongGemm& wrong, GemmKernel& kernel) {
  GemmKernel changed = kernel;
  if (wrong.Apply(changed) && WhyNot(changed).empty()) kernel = std::move(changed);
}

}  // namespace

GemmClaim ClaimOf(const ProductCase& c, MatrixView<const float> d) {
  return {.a = c.a,
          .b = c.b,
          .d = d,
          .alpha = c.alpha,
          .output = c.output,
          .tensor_scale_a = c.tensor_scale_a,
          .tensor_scale_b = c.tensor_scale_b,
          .before = c.before.View(),
          .c = c.c.View(),
          .beta = c.beta};
}

std::vector<ProductCase> MakeProductCases() {
  const IeeeArithmetic ieee;
  constexpr float kScaleA = 0x1.23456p-5f, kScaleB = 0x1.abcdep-4f;
  std::vector<ProductCase> cases = {
      {.name = "nvfp4-tails",
       .what = "ends of rows, columns and K, nibbles, block scales",
       .a = Nvfp4(24, 248, 11),
       .b = Nvfp4(40, 248, 13)},
      {.name = "nvfp4-square",
       .what = "operands exchanged, the last block of K",
       .a = Nvfp4(16, 64, 21),
       .b = Nvfp4(16, 64, 23)},
      {.name = "nvfp4-tensor-scales",
       .what = "alpha and its factors",
       .a = Nvfp4(8, 32, 31),
       .b = Nvfp4(12, 32, 33),
       .alpha = kScaleA * kScaleB,
       .tensor_scale_a = kScaleA,
       .tensor_scale_b = kScaleB},
      {.name = "rows-beyond-128",
       .what = "a last tile of rows that is not full",
       .a = Nvfp4(136, 32, 41),
       .b = Nvfp4(8, 32, 43)},
      {.name = "columns-beyond-128",
       .what = "a last tile of columns that is not full",
       .a = Nvfp4(8, 32, 45),
       .b = Nvfp4(136, 32, 47)},
      {.name = "scale-tiles-of-a",
       .what = "the order of A's scales",
       .a = Nvfp4(128, 64, 51),
       .b = Nvfp4(4, 64, 53)},
      {.name = "scale-tiles-of-b",
       .what = "the order of B's scales",
       .a = Nvfp4(4, 64, 55),
       .b = Nvfp4(128, 64, 57)},
      Nvfp4ScaleBytes(),
      Mxfp4ScaleBytes(),
      {.name = "e4m3-square",
       .what = "transposed operands",
       .a = Integers(FormatId::kE4M3, 16, 16, 65, 15),
       .b = Integers(FormatId::kE4M3, 16, 16, 66, 15)},
      Fp8Specials(),
      Infinities(),
      Subnormals(),
      Output("bf16-output", "ties of BF16, and sums beyond FP16", GemmOutput::kBf16, 1.0f),
      Output("fp16-output", "ties of FP16, and sums beyond it", GemmOutput::kFp16, 1.0f),
      Fp16Subnormals(),
      LongSum(),
      AddedC(),
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    ProductCase& c = cases[i];
    c.before = Matrix<float>(c.a.rows, c.b.rows);
    for (std::size_t j = 0; j < c.before.values.size(); ++j) {
      c.before.values[j] = static_cast<float>(1 + Word(100 + i, j) % 64);
    }
  }
  return cases;
}

ProductBench::ProductBench(std::vector<ProductCase> cases)
    : cases_(std::move(cases)), wrong_(WrongGemms()) {
  const IeeeArithmetic ieee;
  for (const ProductCase& c : cases_) {
    right_.push_back(RunGemmKernel(KernelOf(ClaimOf(c, {}), Exact())));
  }
  answers_.resize(wrong_.size());
  ParallelFor(wrong_.size(), [&](std::size_t w) {
    answers_[w].resize(cases_.size());
    for (std::size_t c = 0; c < cases_.size(); ++c) {
      GemmKernel kernel = KernelOf(ClaimOf(cases_[c], {}), Exact());
      TryOn(wrong_[w], kernel);
      Matrix<float> answer = RunGemmKernel(kernel);
      if (!SameProduct(answer, right_[c])) answers_[w][c] = std::move(answer);
    }
  });
}

const Matrix<float>& ProductBench::Answer(std::size_t w, std::size_t c) const {
  return answers_[w][c] ? *answers_[w][c] : right_[c];
}

std::vector<Matrix<float>> ProductBench::AnswersOf(std::span<const std::size_t> w) const {
  const IeeeArithmetic ieee;
  std::vector<Matrix<float>> answers;
  for (const ProductCase& c : cases_) {
    GemmKernel kernel = KernelOf(ClaimOf(c, {}), Exact());
    for (const std::size_t i : w) TryOn(wrong_[i], kernel);
    answers.push_back(RunGemmKernel(kernel));
  }
  return answers;
}

bool ProductBench::IsRight(std::size_t c, const Matrix<float>& answer) const {
  const IeeeArithmetic ieee;
  if (SameProduct(answer, right_[c])) return true;
  if (cases_[c].order_free) return false;
  if (answer.rows != right_[c].rows || answer.cols != right_[c].cols) return false;
  return JudgeGemm(ClaimOf(cases_[c], answer.View()), Exact()).outside == 0;
}

std::vector<std::size_t> ProductBench::Name(
    std::span<const std::optional<Matrix<float>>> answers) const {
  const IeeeArithmetic ieee;
  std::vector<bool> right(cases_.size(), true);
  for (std::size_t c = 0; c < cases_.size(); ++c) right[c] = !answers[c] || IsRight(c, *answers[c]);
  std::vector<std::size_t> names;
  if (std::find(right.begin(), right.end(), false) == right.end()) return names;
  for (std::size_t w = 0; w < wrong_.size(); ++w) {
    bool fits = true;
    for (std::size_t c = 0; c < cases_.size() && fits; ++c) {
      if (!answers[c]) continue;
      fits = answers_[w][c] ? SameProduct(*answers[c], *answers_[w][c]) : right[c];
    }
    if (fits) names.push_back(w);
  }
  return names;
}

}  // namespace fp4lab
