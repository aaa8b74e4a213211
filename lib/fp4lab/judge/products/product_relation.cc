#include "fp4lab/judge/products/product_relation.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/judge/products/gemm_kernel.h"

namespace fp4lab {
namespace {

constexpr std::size_t kMostLines = 1024;
constexpr float kConstants[] = {-1.0f, 3.0f, 6.0f, 36.0f, 448.0f, 2688.0f};

using Causes = std::vector<ProductRelation>;

// Keeps the cause if every element of the claim is within its bound.
bool KeepIfInside(const GemmClaim& claim, const Accumulation& under, const char* name,
                  std::string what, Causes* causes) {
  const GemmJudgement j = JudgeGemm(claim, under);
  if (j.outside > 0) return false;
  causes->push_back({name, std::move(what), j.different});
  return true;
}

// The nearest of the factors that programs multiply by; 0 if none is within 1 %.
float NearFactor(float k) {
  std::vector<float> factors;
  for (const float c : kConstants) factors.insert(factors.end(), {c, 1.0f / c});
  for (int e = -24; e <= 24; ++e) {
    if (e != 0) factors.insert(factors.end(), {std::ldexp(1.0f, e), -std::ldexp(1.0f, e)});
  }
  const auto near = std::find_if(factors.begin(), factors.end(),
                                 [&](float f) { return std::fabs(k / f - 1.0f) < 0.01f; });
  return near == factors.end() ? 0.0f : *near;
}

void TryFactor(const GemmClaim& claim, const Accumulation& under, const Matrix<float>& right,
               const Matrix<float>& d, Causes* causes) {
  const auto largest =
      std::max_element(right.values.begin(), right.values.end(),
                       [](float a, float b) { return std::fabs(a) < std::fabs(b); });
  if (!std::isfinite(*largest) || *largest == 0.0f) return;
  const float got = d.values[static_cast<std::size_t>(largest - right.values.begin())];
  const float k = NearFactor(got / *largest);
  if (k == 0.0f || k == 1.0f) return;
  GemmClaim other = claim;
  other.alpha = claim.alpha * k;
  if (!std::isfinite(other.alpha)) return;
  KeepIfInside(other, under, "output-times",
               "multiplies the product by " + ShortestText(k) + " as well", causes);
}

// Functions of an element that lose its sign: d, with the sign or the value put back.
void TryFunctions(const GemmClaim& claim, const Accumulation& under, const Matrix<float>& right,
                  const Matrix<float>& d, Causes* causes) {
  Matrix<float> relu = d, magnitude = d;
  for (std::size_t i = 0; i < d.values.size(); ++i) {
    if (right.values[i] < 0.0f && d.values[i] == 0.0f) relu.values[i] = right.values[i];
    magnitude.values[i] = std::copysign(d.values[i], right.values[i]);
  }
  GemmClaim other = claim;
  other.d = relu.View();
  KeepIfInside(other, under, "output-relu", "writes 0 for negative elements", causes);
  other.d = magnitude.View();
  const bool negative =
      std::any_of(d.values.begin(), d.values.end(), [](float x) { return x < 0; });
  if (!negative) {
    KeepIfInside(other, under, "output-magnitude", "drops the signs of the product", causes);
  }
}

// Whether line i of d is about line j of the right product. Lines are rows, or columns.
bool IsAbout(MatrixView<const float> d, std::size_t i, MatrixView<const float> right,
             std::size_t j) {
  float largest = 0.0f;
  for (std::size_t k = 0; k < right.cols; ++k) largest = std::max(largest, std::fabs(right(j, k)));
  for (std::size_t k = 0; k < right.cols; ++k) {
    const float x = d(i, k), y = right(j, k);
    if (!(std::fabs(x - y) <= 0.01f * largest) && !(x != x && y != y)) return false;
  }
  return true;
}

// The line of the right product that each line of d is about; nullopt if a line is about none.
std::optional<std::vector<std::size_t>> LinesOf(MatrixView<const float> d,
                                                MatrixView<const float> right) {
  std::vector<std::size_t> lines(d.rows);
  for (std::size_t i = 0; i < d.rows; ++i) {
    std::size_t j = i;
    for (std::size_t tried = 0; !IsAbout(d, i, right, j); ++tried) {
      if (tried == d.rows) return std::nullopt;
      j = tried;
    }
    lines[i] = j;
  }
  return lines;
}

MmaOperand WithLines(const MmaOperand& x, const std::vector<std::size_t>& lines) {
  MmaOperand moved = x;
  const std::size_t scales = x.IsScaled() ? x.ScaleCols() : 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::copy_n(x.codes.begin() + static_cast<std::ptrdiff_t>(lines[i] * x.cols), x.cols,
                moved.codes.begin() + static_cast<std::ptrdiff_t>(i * x.cols));
    std::copy_n(x.scales.begin() + static_cast<std::ptrdiff_t>(lines[i] * scales), scales,
                moved.scales.begin() + static_cast<std::ptrdiff_t>(i * scales));
  }
  return moved;
}

std::string MovedText(const std::vector<std::size_t>& lines, const std::string& line) {
  const std::size_t n = lines.size(), shift = (n - lines[0]) % n;
  bool rolled = true;
  std::size_t moved = 0, first = n;
  for (std::size_t i = 0; i < n; ++i) {
    rolled = rolled && lines[i] == (i + n - shift) % n;
    if (lines[i] != i && moved++ == 0) first = i;
  }
  const std::string holds =
      line + " " + std::to_string(first) + " holds " + line + " " + std::to_string(lines[first]);
  if (rolled) {
    return "writes every " + line + " " + std::to_string(shift) + " " + line +
           (shift == 1 ? "" : "s") + " too late, the last ones first: " + holds;
  }
  return "writes " + std::to_string(moved) + " of " + std::to_string(n) + " " + line +
         "s of the product to other places: " + holds;
}

void TryLines(const GemmClaim& claim, const Accumulation& under, MatrixView<const float> right,
              MatrixView<const float> d, bool rows, Causes* causes) {
  if (d.rows > kMostLines || d.rows < 2) return;
  const auto lines = LinesOf(d, right);
  if (!lines) return;
  const MmaOperand moved = WithLines(rows ? claim.a : claim.b, *lines);
  const GemmClaim other{.a = rows ? moved : claim.a,
                        .b = rows ? claim.b : moved,
                        .d = claim.d,
                        .alpha = claim.alpha,
                        .output = claim.output};
  KeepIfInside(other, under, rows ? "output-rows-moved" : "output-columns-moved",
               MovedText(*lines, rows ? "row" : "column"), causes);
}

void TryOneNumber(const Matrix<float>& d, Causes* causes) {
  const float number = d.values[0];
  const auto same = [&](float x) { return x == number || (x != x && number != number); };
  if (d.values.size() < 4 || !std::all_of(d.values.begin(), d.values.end(), same)) {
    return;
  }
  causes->push_back({"output-of-one-number",
                     "writes " + ShortestText(number) + " everywhere, or nothing at all", 0});
}

MatrixView<const float> Turned(const Matrix<float>& x) {
  return {x.values.data(), x.cols, x.rows, 1, x.cols};
}

}  // namespace

std::vector<ProductRelation> FindProductRelations(const GemmClaim& claim,
                                                  const Accumulation& under) {
  const IeeeArithmetic ieee;
  Causes causes;
  const GemmKernel kernel = KernelOf(claim, under);
  if (claim.d.size() == 0 || !WhyNot(kernel).empty()) return causes;
  const Matrix<float> right = RunGemmKernel(kernel);
  Matrix<float> d(claim.d.rows, claim.d.cols);
  for (std::size_t i = 0; i < d.values.size(); ++i) d.values[i] = claim.d(i / d.cols, i % d.cols);
  TryOneNumber(d, &causes);
  if (!causes.empty()) return causes;
  TryFactor(claim, under, right, d, &causes);
  TryFunctions(claim, under, right, d, &causes);
  TryLines(claim, under, right.View(), d.View(), true, &causes);
  TryLines(claim, under, Turned(right), Turned(d), false, &causes);
  return causes;
}

}  // namespace fp4lab
