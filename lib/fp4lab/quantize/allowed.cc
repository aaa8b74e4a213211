// IsAllowed: whether an answer is among those that the error of the approximate instructions
// allows.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/dialect/approximate.h"
#include "fp4lab/dialect/stages.h"
#include "fp4lab/quantize/blocks.h"
#include "fp4lab/quantize/diagnostics/statistic.h"
#include "fp4lab/quantize/quantize.h"

namespace fp4lab {
namespace {

// A block of an answer, with the elements that it quantizes.
struct AnswerBlock {
  const Dialect& dialect;
  const TensorScale& tensor;
  MatrixView<const float> x;
  MatrixView<const std::uint8_t> codes;
  std::uint8_t byte;
  float scale_value;  // in place of the byte, if scales are numbers
};

// The number of codes that differ from the codes under factor e.
std::size_t WrongCodes(const AnswerBlock& block, float s, float e) {
  std::size_t wrong = 0;
  for (std::size_t r = 0; r < block.x.rows; ++r) {
    for (std::size_t c = 0; c < block.x.cols; ++c) {
      const float x = block.x(r, c);
      const float v = Scaled(block.dialect, x, e, block.tensor);
      wrong += CodeOf(block.dialect, x, s, v, 0) != block.codes(r, c);
    }
  }
  return wrong;
}

// Whether a code lies between the codes of the two ends of e, or equals one of them if one end is
// NaN.
bool LiesBetween(const AnswerBlock& block, float s, FloatInterval e, float x, std::uint8_t code) {
  const Dialect& d = block.dialect;
  const float v0 = Scaled(d, x, e.lower, block.tensor), v1 = Scaled(d, x, e.upper, block.tensor);
  const std::uint8_t first = CodeOf(d, x, s, v0, 0), last = CodeOf(d, x, s, v1, 0);
  if (v0 != v0 || v1 != v1) return code == first || code == last;
  return std::min(first, last) <= code && code <= std::max(first, last);
}

constexpr std::uint32_t kMostFactors = 256;

// The least number of wrong codes over all factors in the interval, because all elements of a block
// share one factor. If the interval holds too many factors to try (next to a flushed subnormal),
// each element is judged by the interval's ends, which allows more.
std::size_t CodesOutside(const AnswerBlock& block, float s, FloatInterval e) {
  const std::uint32_t first = std::bit_cast<std::uint32_t>(e.lower);
  const std::uint32_t last = std::bit_cast<std::uint32_t>(e.upper);
  if (e.lower != e.lower || first >= last) return WrongCodes(block, s, e.lower);
  if (last - first <= kMostFactors) {
    std::size_t least = block.x.size();
    for (std::uint32_t bits = first; bits <= last && least > 0; ++bits) {
      least = std::min(least, WrongCodes(block, s, std::bit_cast<float>(bits)));
    }
    return least;
  }
  std::size_t outside = 0;
  for (std::size_t r = 0; r < block.x.rows; ++r) {
    for (std::size_t c = 0; c < block.x.cols; ++c) {
      outside += !LiesBetween(block, s, e, block.x(r, c), block.codes(r, c));
    }
  }
  return outside;
}

struct Verdict {
  bool scale_outside = false;
  std::size_t codes_outside = 0;
};

// The verdict on a block of an approximate dialect. The codes are judged under the answer's scale
// byte, even if that is outside the set.
Verdict Judge(const AnswerBlock& block) {
  const Dialect& d = block.dialect;
  const float b = MaxMagnitudeOf(block.x, d.nan != NanRule::kElement);
  const FloatInterval t = ScaleInterval(d, b, block.tensor);
  const std::uint8_t least = ScaleByteOf(d, b, t.lower), most = ScaleByteOf(d, b, t.upper);
  const float s = ScaleValueOf(d, block.byte);
  return {block.byte < std::min(least, most) || block.byte > std::max(least, most),
          CodesOutside(block, s, FactorInterval(d, b, s, block.byte, block.tensor))};
}

// The verdict on a block of an exact dialect: equality with the reference's block.
Verdict Compare(const AnswerBlock& block, const Quantized& want, const BlockGrid& grid,
                std::size_t row, std::size_t col) {
  Verdict verdict;
  const std::size_t at = row / grid.block_rows * grid.cols + col / grid.block_cols;
  if (!want.scale_values.empty()) {
    verdict.scale_outside = std::bit_cast<std::uint32_t>(want.scale_values[at]) !=
                            std::bit_cast<std::uint32_t>(block.scale_value);
  } else if (grid.stores_scales) {
    verdict.scale_outside = want.scales[at] != block.byte;
  }
  for (std::size_t r = 0; r < block.x.rows; ++r) {
    for (std::size_t c = 0; c < block.x.cols; ++c) {
      verdict.codes_outside += want.codes[(row + r) * want.cols + col + c] != block.codes(r, c);
    }
  }
  return verdict;
}

// The tensor scales that a kernel may have: one pair, or all pairs that approximate instructions
// allow.
std::vector<TensorScale> PossibleTensorScales(const Dialect& d, const TensorScale& exact) {
  if (d.tensor_scale != TensorScaleRule::kEncodeApproximate || exact.amax == 0.0f) return {exact};
  const FloatInterval quotient = DivApprox(TensorScaleConstant(d), exact.amax);
  std::vector<TensorScale> levels;
  const auto add = [&](float s) {
    const float encode = s == 0.0f ? 1.0f : ClampToMax(s);
    const FloatInterval decode = RcpApprox(encode);
    const auto last = std::bit_cast<std::uint32_t>(decode.upper);
    for (auto bits = std::bit_cast<std::uint32_t>(decode.lower); bits <= last; ++bits) {
      levels.push_back({encode, std::bit_cast<float>(bits), exact.amax});
    }
  };
  if (quotient.lower == 0.0f) add(0.0f);
  if (quotient.upper == 0.0f) return levels;
  const auto last = std::bit_cast<std::uint32_t>(quotient.upper);
  const auto first = quotient.lower == 0.0f ? last : std::bit_cast<std::uint32_t>(quotient.lower);
  for (std::uint32_t bits = first; bits <= last; ++bits) add(std::bit_cast<float>(bits));
  return levels;
}

// An answer, with its input and dialect.
struct Answer {
  const Dialect& dialect;
  MatrixView<const float> x;
  const Quantized& q;
  BlockGrid grid;
  Quantized want;  // the only right answer of a dialect that is not approximate
};

// Adds the verdict on the blocks of one row of blocks.
void JudgeRow(const Answer& answer, std::size_t i, const TensorScale& tensor, Allowed* allowed) {
  const BlockGrid& grid = answer.grid;
  const Quantized& q = answer.q;
  const MatrixView<const std::uint8_t> codes(q.codes.data(), q.rows, q.cols);
  const std::size_t row = i * grid.block_rows;
  for (std::size_t j = 0; j < grid.cols; ++j) {
    const std::size_t col = j * grid.block_cols;
    const MatrixView<const float> elements = grid.Block(answer.x, i, j);
    const AnswerBlock block{answer.dialect,
                            tensor,
                            elements,
                            codes.Block(row, col, elements.rows, elements.cols),
                            q.scales.empty() ? std::uint8_t{0} : q.scales[i * grid.cols + j],
                            q.scale_values.empty() ? 0.0f : q.scale_values[i * grid.cols + j]};
    const Verdict verdict =
        IsApproximate(answer.dialect) ? Judge(block) : Compare(block, answer.want, grid, row, col);
    if (allowed->ok && (verdict.scale_outside || verdict.codes_outside > 0)) {
      allowed->ok = false;
      allowed->first_row = row;
      allowed->first_col = col;
    }
    allowed->scales_outside += verdict.scale_outside ? 1 : 0;
    allowed->codes_outside += verdict.codes_outside;
  }
}

Allowed JudgeAll(const Answer& answer, const std::vector<float>& amax) {
  Allowed allowed;
  for (std::size_t i = 0; i < answer.grid.rows; ++i) {
    JudgeRow(answer, i, TensorScaleOfRow(answer.dialect, amax, i * answer.grid.block_rows),
             &allowed);
  }
  return allowed;
}

// The verdict under the best of the possible levels; the whole tensor has one level.
Allowed JudgeUnderEach(const Answer& answer, const std::vector<TensorScale>& levels) {
  std::optional<Allowed> best;
  for (const TensorScale& tensor : levels) {
    Allowed allowed;
    for (std::size_t i = 0; i < answer.grid.rows; ++i) JudgeRow(answer, i, tensor, &allowed);
    if (!best || allowed.scales_outside + allowed.codes_outside <
                     best->scales_outside + best->codes_outside) {
      best = allowed;
    }
    if (best->ok) break;
  }
  return *best;
}

}  // namespace

Allowed IsAllowed(const Dialect& dialect, MatrixView<const float> x, const Quantized& q,
                  const DialectOptions& options) {
  const IeeeArithmetic ieee;
  CheckOptions(dialect, x, options);
  const BlockGrid grid(dialect, x.rows, x.cols);
  Expects(q.rows == x.rows && q.cols == x.cols && q.order == CodeOrder::kBytes &&
              q.codes.size() == x.size(),
          "one code per element and byte");
  const bool floats = dialect.scale_encoding == ScaleEncoding::kBinary32;
  Expects(!grid.stores_scales ||
              (floats ? q.scale_values.size() : q.scales.size()) == grid.rows * grid.cols,
          "one scale per block");
  const std::vector<float> amax = TensorAmaxes(dialect, x, options);
  const Answer answer{dialect, x, q, grid,
                      IsApproximate(dialect) ? Quantized{} : QuantizeAs(dialect, x, options)};
  if (dialect.tensor_scale != TensorScaleRule::kEncodeApproximate) return JudgeAll(answer, amax);
  return JudgeUnderEach(answer, PossibleTensorScales(dialect, TensorScaleOfRow(dialect, amax, 0)));
}

}  // namespace fp4lab
