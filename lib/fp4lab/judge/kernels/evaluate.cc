#include "fp4lab/judge/kernels/evaluate.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "fp4lab/base/interrupt.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/dialect/stages.h"
#include "fp4lab/quantize/diagnostics/statistic.h"

namespace fp4lab {
namespace {

bool IsSubnormal(float x) { return x != 0.0f && Magnitude(x) < kFloatMin; }
float Flushed(float x) { return IsSubnormal(x) ? std::copysign(0.0f, x) : x; }
float RoundedTo(FormatId format, float x) {
  return Decode(format, Encode(format, x, Rounding::kNearestEven, 0, Overflow::kSpecial));
}
float RoundedTo(const std::optional<FormatId>& format, float x) {
  return format ? RoundedTo(*format, x) : x;
}

float LargestSigned(MatrixView<const float> x) {
  float largest = 0.0f;
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) largest = std::max(largest, x(r, c));
  }
  return largest;
}

// ---- Scale bytes by rules that no dialect has

std::uint8_t PowerOfTwoBelow(const Format& f, float t) {
  const std::uint32_t code = Encode(f, t, Rounding::kTowardZero);
  if (IsNan(f, code)) return static_cast<std::uint8_t>(code);
  const std::uint32_t fraction = (1u << f.mantissa_bits) - 1;
  return static_cast<std::uint8_t>(code > fraction ? code & ~fraction : std::bit_floor(code));
}

std::uint8_t OtherScaleByte(OtherEncoding encoding, FormatId scale, float t) {
  const Format& f = FormatOf(scale);
  switch (encoding) {
    case OtherEncoding::kHalfUp:
      return static_cast<std::uint8_t>(t > MaxFinite(scale) ? Encode(f, t)
                                                            : EncodeTiesAway(scale, t));
    case OtherEncoding::kTowardZero:
      return static_cast<std::uint8_t>(Encode(f, t, Rounding::kTowardZero));
    case OtherEncoding::kUp:
      return static_cast<std::uint8_t>(Encode(f, t, Rounding::kTowardPositive));
    case OtherEncoding::kPowerOfTwo:
      return PowerOfTwoBelow(f, t);
    case OtherEncoding::kPowerOfTwoUp:
    case OtherEncoding::kNo:
      break;
  }
  return static_cast<std::uint8_t>(Encode(f, t));
}

// Whether a cast that does not saturate makes t NaN.
bool OverflowsToNan(const Format& f, float t) {
  return IsNan(f, Encode(f, t, Rounding::kNearestEven, 0, Overflow::kSpecial));
}

std::uint8_t AdjustedByte(const ScalePlan& plan, FormatId scale, float t, std::uint8_t byte) {
  const Format& f = FormatOf(scale);
  if (plan.overflow_is_nan && OverflowsToNan(f, t)) byte = static_cast<std::uint8_t>(NanCode(f));
  if (plan.subnormals_flushed && byte < 1u << f.mantissa_bits) byte = 0;
  if (IsNan(f, byte))
    return plan.nan_is_largest ? static_cast<std::uint8_t>(MaxFiniteCode(f)) : byte;
  const int most = static_cast<int>(MaxFiniteCode(f));
  return plan.offset == 0 ? byte
                          : static_cast<std::uint8_t>(std::clamp(byte + plan.offset, 0, most));
}

// The value of a scale as an integer modulo 256, as a conversion to uint8 copies it; NaN gives 0.
std::uint8_t ValueAsByte(float scale) {
  if (!(scale < 0x1p31f)) return 0;
  return static_cast<std::uint8_t>(static_cast<std::uint32_t>(scale) & 0xFFu);
}

// ---- Scales that are numbers

// The power of two at or below a scale, or at or above it; 0, Inf and NaN stay.
float PowerOfTwoBelow(float t) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(t);
  if (!(t > 0.0f) || bits >= 0x7F800000u) return t;
  return std::bit_cast<float>(bits < 0x00800000u ? std::bit_floor(bits) : bits & 0x7F800000u);
}
float PowerOfTwoAbove(float t) {
  const float below = PowerOfTwoBelow(t);
  return below == t ? t : below * 2.0f;
}

// The scale that is a number, from t.
float NumberScale(const ScalePlan& plan, float t) {
  if (plan.encoding == OtherEncoding::kPowerOfTwo) t = PowerOfTwoBelow(t);
  if (plan.encoding == OtherEncoding::kPowerOfTwoUp) t = PowerOfTwoAbove(t);
  if (plan.subnormals_flushed) t = Flushed(t);
  if (t != t) return plan.nan_is_largest ? kFloatMax : t;
  if (plan.offset == 0 || !(t <= kFloatMax)) return t;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(t);
  const std::uint32_t most = std::bit_cast<std::uint32_t>(kFloatMax);
  if (plan.offset < 0) return std::bit_cast<float>(bits == 0 ? bits : bits - 1);
  return std::bit_cast<float>(std::min(bits + 1, most));
}

// ---- Codes by rules that no dialect has

std::uint8_t OtherCode(OtherRounding rounding, FormatId element, float v) {
  const Format& f = FormatOf(element);
  const std::uint32_t lower = Encode(f, v, Rounding::kTowardZero);
  const std::uint32_t magnitude = lower & MagnitudeMask(f);
  if (v != v || magnitude >= MaxFiniteCode(f)) return static_cast<std::uint8_t>(lower);
  const float low = Decode(f, magnitude), high = Decode(f, magnitude + 1), a = Magnitude(v);
  const float middle = 0.5f * (low + high);
  bool up = false;
  switch (rounding) {
    case OtherRounding::kTowardNegative:
      up = v < 0.0f && a != low;
      break;
    case OtherRounding::kAwayFromZero:
      up = a != low;
      break;
    case OtherRounding::kTiesToOdd:
      up = a > middle || (a == middle && magnitude % 2 == 0);
      break;
    case OtherRounding::kTiesToPositive:
      up = a > middle || (a == middle && v > 0.0f);
      break;
    case OtherRounding::kTiesToNegative:
      up = a > middle || (a == middle && v < 0.0f);
      break;
    case OtherRounding::kTiesTowardZero:
    case OtherRounding::kNo:
      up = a > middle;
      break;
  }
  return static_cast<std::uint8_t>(up ? lower + 1 : lower);
}

// The low bits of the code in a format whose exponents continue beyond the largest.
std::uint8_t WrappedCode(const Format& f, float v) {
  Format wide = f;
  wide.bits += 8 - f.exponent_bits;
  wide.exponent_bits = 8;
  const std::uint32_t code = Encode(wide, v);
  return static_cast<std::uint8_t>((v < 0.0f ? SignBit(f) : 0u) | (code & MagnitudeMask(f)));
}

std::uint8_t BeyondLargest(Saturation saturation, const Format& f, float v, std::uint8_t code) {
  switch (saturation) {
    case Saturation::kWraps:
      return WrappedCode(f, v);
    case Saturation::kLosesSign:
      return static_cast<std::uint8_t>(code & MagnitudeMask(f));
    case Saturation::kToZero:
      return 0;
    case Saturation::kKept:
      break;
  }
  return code;
}

std::uint8_t WithSign(const ElementPlan& plan, const Format& f, float v, std::uint8_t code) {
  const std::uint32_t sign = SignBit(f);
  std::uint32_t c = code;
  if (plan.negative == Negative::kAbs) c &= ~sign;
  if (plan.negative == Negative::kFlipped) c ^= sign;
  if (plan.negative == Negative::kToZero && v < 0.0f) c = 0;
  if ((c & MagnitudeMask(f)) == 0) {
    if (plan.zero == ZeroCode::kPositive) c = 0;
    if (plan.zero == ZeroCode::kNegative) c = sign;
  }
  return static_cast<std::uint8_t>(c);
}

// ---- Tensor scales

TensorScale PlannedTensorScale(const KernelPlan& plan, TensorScale tensor) {
  const Dialect& d = plan.kernel.dialect;
  const bool from_decode = IsDecodeFirst(d.tensor_scale);
  if (plan.tensor.unclamped && tensor.encode == kFloatMax && tensor.amax > 0.0f &&
      !(TensorScaleConstant(d) / tensor.amax <= kFloatMax)) {
    tensor.encode = std::numeric_limits<float>::infinity();
    tensor.decode = 0.0f;
  }
  if (plan.tensor.encode_rounded) {
    tensor.encode = RoundedTo(plan.tensor.encode_rounded, tensor.encode);
    if (!from_decode) tensor.decode = 1.0f / tensor.encode;
  }
  if (plan.tensor.decode_rounded) {
    tensor.decode = RoundedTo(plan.tensor.decode_rounded, tensor.decode);
    if (from_decode) tensor.encode = 1.0f / tensor.decode;
  }
  if (plan.tensor.inverted) std::swap(tensor.encode, tensor.decode);
  if (plan.element.flush) tensor.decode = Flushed(tensor.decode);
  return tensor;
}
TensorScale WithoutScale(TensorScale tensor) {
  tensor.encode = tensor.decode = 1.0f;
  return tensor;
}

}  // namespace

Evaluator::Evaluator(const KernelPlan& plan, MatrixView<const float> x, std::vector<float> amax,
                     std::span<const std::uint16_t> random)
    : plan_(plan),
      scale_type_(ScaleTypeOf(plan.kernel.dialect, plan.output.written)),
      x_(x),
      rows_(plan.input.transposed ? x.cols : x.rows),
      cols_(plan.input.transposed ? x.rows : x.cols),
      grid_(plan.kernel.dialect, rows_, cols_),
      amax_(std::move(amax)),
      random_(IsStochastic(plan.kernel.dialect) ? random : decltype(random){}),
      largest_(MaxFinite(plan.kernel.dialect.element)) {
  InputPlan plain;
  plain.transposed = plan.input.transposed;
  plain.sign_mask = plan.input.sign_mask;
  plain_input_ = plan.input == plain;
}

MatrixView<const float> Evaluator::Elements(std::size_t r, std::size_t c, std::size_t rows,
                                            std::size_t cols, Matrix<float>* copy) const {
  rows = std::min(rows, rows_ - r);
  cols = std::min(cols, cols_ - c);
  if (plain_input_) {
    return (plan_.input.transposed ? x_.Transposed() : x_).Block(r, c, rows, cols);
  }
  *copy = InputOf(plan_.input, x_, r, c, rows, cols);
  return copy->View();
}

float Evaluator::BlockAmax(std::size_t i, std::size_t j, MatrixView<const float> block) const {
  const std::size_t height = grid_.block_rows, width = grid_.block_cols;
  const std::size_t r = i * height, c = j * width;
  Matrix<float> copy;
  MatrixView<const float> window = block;
  switch (plan_.scale.window) {
    case AmaxWindow::kBlock:
      break;
    case AmaxWindow::kTwoBlocks:
      window = Elements(r, j / 2 * 2 * width, height, 2 * width, &copy);
      break;
    case AmaxWindow::kHalfBlock:
      window = block.Block(0, 0, block.rows, std::min(block.cols, width / 2));
      break;
    case AmaxWindow::kSixteenRows:
      window = Elements(r / 16 * 16, c, 16, width, &copy);
      break;
    case AmaxWindow::kPreviousBlock:
      window = Elements(r, j == 0 ? 0 : c - width, height, width, &copy);
      break;
    case AmaxWindow::kOnePast:
      window = Elements(r, c, height, width + 1, &copy);
      break;
    case AmaxWindow::kEvenLanes:
      window.cols = (block.cols + 1) / 2;
      window.col_stride = 2 * block.col_stride;
      break;
  }
  if (plan_.scale.largest_signed) return LargestSigned(window);
  return MaxMagnitudeOf(window, plan_.kernel.dialect.nan != NanRule::kElement);
}

TensorScale Evaluator::TensorScaleAt(std::size_t i, std::size_t j,
                                     const std::optional<float>& other) const {
  const Dialect& d = plan_.kernel.dialect;
  const std::size_t row = i * grid_.block_rows, col = j * grid_.block_cols;
  if (other) return PlannedTensorScale(plan_, TensorScaleOf(d, *other));
  const TensorScale tensor = plan_.tensor.amax == AmaxFrom::kParts
                                 ? TensorScaleOf(d, amax_[1 + plan_.tensor.parts.PartOf(row, col)])
                                 : TensorScaleOfRow(d, amax_, row);
  return PlannedTensorScale(plan_, tensor);
}
TensorScale Evaluator::TensorScaleForScale(std::size_t i, std::size_t j) const {
  const TensorScale tensor = TensorScaleAt(i, j, plan_.tensor.scale_amax);
  return plan_.tensor.missing || plan_.tensor.missing_in_scale ? WithoutScale(tensor) : tensor;
}
TensorScale Evaluator::TensorScaleForFactor(std::size_t i, std::size_t j) const {
  const TensorScale tensor = TensorScaleAt(i, j, plan_.tensor.factor_amax);
  return plan_.tensor.missing || plan_.tensor.missing_in_factor ? WithoutScale(tensor) : tensor;
}

float Evaluator::FactorOfOther(std::size_t i, std::size_t j) const {
  if (j > 0) {
    --j;
  } else if (plan_.element.factor_of == FactorOfBlock::kBeforeAround) {
    j = grid_.cols - 1;
  } else if (plan_.element.factor_of == FactorOfBlock::kBeforeInMemory && i > 0) {
    --i;
    j = grid_.cols - 1;
  }
  Matrix<float> copy;
  return NumbersOf(i, j,
                   Elements(i * grid_.block_rows, j * grid_.block_cols, grid_.block_rows,
                            grid_.block_cols, &copy))
      .factor;
}

BlockNumbers Evaluator::NumbersOf(std::size_t i, std::size_t j,
                                  MatrixView<const float> block) const {
  const Dialect& d = plan_.kernel.dialect;
  const TensorScale for_scale = TensorScaleForScale(i, j), for_factor = TensorScaleForFactor(i, j);
  BlockNumbers n;
  n.amax = RoundedTo(plan_.scale.amax_rounded, BlockAmax(i, j, block));
  if (n.amax < plan_.scale.least_amax) n.amax = plan_.scale.least_amax;
  n.scale_before = plan_.scale.constant_over_amax ? n.amax * d.scale_max / for_scale.amax
                                                  : ScaleBefore(d, n.amax, for_scale);
  if (d.adaptive != Adaptive::kNo) {
    n = ChooseBlock(d, for_scale, block, n.amax, n.scale_before).numbers;
  }
  n.scale_before = RoundedTo(plan_.scale.before_rounded, n.scale_before);
  if (plan_.element.flush) n.scale_before = Flushed(n.scale_before);
  if (d.scale_encoding == ScaleEncoding::kBinary32) {
    n.byte = 0;
    n.scale = NumberScale(plan_.scale, n.scale_before);
  } else {
    const bool own = plan_.scale.encoding != OtherEncoding::kNo;
    n.byte = own ? OtherScaleByte(plan_.scale.encoding, d.scale, n.scale_before)
                 : ScaleByteOf(d, n.amax, n.scale_before);
    n.byte = AdjustedByte(plan_.scale, d.scale, n.scale_before, n.byte);
    n.scale = ScaleValueOf(d, n.byte);
  }
  float s = plan_.element.unrounded_scale ? n.scale_before : n.scale;
  if (plan_.element.flush && IsSubnormal(s * for_factor.decode)) s = 0.0f;
  n.factor = RoundedTo(plan_.element.factor_rounded, FactorOf(d, n.amax, s, n.byte, for_factor));
  if (plan_.element.flush) n.factor = Flushed(n.factor);
  return n;
}

std::uint32_t Evaluator::StoredScaleOf(const BlockNumbers& n) const {
  if (scale_type_ == ScaleType::kByte) {
    const Format& f = FormatOf(plan_.kernel.dialect.scale);
    if (plan_.scale.overflow_stored_as_nan && OverflowsToNan(f, n.scale_before)) return NanCode(f);
    return plan_.scale.value_is_byte ? ValueAsByte(n.scale) : n.byte;
  }
  float value = n.scale;
  switch (plan_.scale.stored) {
    case StoredScale::kInverse:
      value = 1.0f / value;
      break;
    case StoredScale::kBf16:
      value = RoundToBf16(value);
      break;
    case StoredScale::kPowerOfTwoUp:
      value = PowerOfTwoAbove(value);
      break;
    case StoredScale::kOwn:
      break;
  }
  return ScaleCodeOf(scale_type_, plan_.kernel.dialect.scale, value);
}

std::size_t Evaluator::RandomIndex(std::size_t index) const {
  if (plan_.element.random_from == RandomFrom::kFirstRow) index %= cols_;
  const std::size_t other = index ^ plan_.element.random_index_xor;
  return other < random_.size() ? other : index;
}

std::uint8_t Evaluator::CodeAt(float x, const BlockNumbers& n, const TensorScale& tensor,
                               std::size_t index) const {
  const Dialect& d = plan_.kernel.dialect;
  const ElementPlan& plan = plan_.element;
  const Format& f = FormatOf(d.element);
  float v = Scaled(d, x, n.factor, tensor);
  if (plan.over_amax) v = n.amax == 0.0f ? x : x * TargetOf(d) / n.amax;
  if (plan.over_quotient) v = x / (n.amax / TargetOf(d));
  v = RoundedTo(plan.scaled_rounded, v);
  if (plan.flush) v = Flushed(v);
  if (plan.zero_under_zero_scale && n.scale == 0.0f) v = std::copysign(0.0f, x);
  std::uint32_t random = 0;
  if (!random_.empty()) {
    random = random_[RandomIndex(index)];
    if (plan.random_from == RandomFrom::kCounter) {
      const bool eight = d.rounding == ElementRounding::kStochastic8;
      random = static_cast<std::uint32_t>(index) & (eight ? 0xFFu : 0xFFFFu);
    }
    if (plan.random_bytes_swapped) random = (random << 8 | random >> 8) & 0xFFFFu;
  }
  std::uint8_t code = plan.rounding == OtherRounding::kNo ? CodeOf(d, x, n.scale, v, random)
                                                          : OtherCode(plan.rounding, d.element, v);
  if (Magnitude(v) > largest_) code = BeyondLargest(plan.saturation, f, v, code);
  return WithSign(plan, f, v, code);
}

void Evaluator::Evaluate(std::size_t i, std::size_t j, BlockBytes* out) const {
  const auto [from_i, from_j] = Source(i, j);
  EvaluateInPlace(from_i, from_j, out);
  out->row = i * grid_.block_rows;
  out->col = j * grid_.block_cols;
  Fill(out);
}

void Evaluator::EvaluateInPlace(std::size_t i, std::size_t j, BlockBytes* out) const {
  Matrix<float> copy;
  out->row = i * grid_.block_rows;
  out->col = j * grid_.block_cols;
  const MatrixView<const float> block =
      Elements(out->row, out->col, grid_.block_rows, grid_.block_cols, &copy);
  out->rows = block.rows;
  out->cols = block.cols;
  const TensorScale for_factor = TensorScaleForFactor(i, j);
  out->numbers = NumbersOf(i, j, block);
  if (plan_.element.factor_of != FactorOfBlock::kOwn) out->numbers.factor = FactorOfOther(i, j);
  out->scale = StoredScaleOf(out->numbers);
  if (plan_.tensor.amax == AmaxFrom::kParts && plan_.tensor.parts.folded) {
    const Dialect& d = plan_.kernel.dialect;
    const float ratio = TensorScaleForScale(i, j).decode / TensorScaleOf(d, amax_[0]).decode;
    out->scale = ScaleCodeOf(scale_type_, d.scale, out->numbers.scale * ratio);
  }
  out->codes.resize(block.size());
  for (std::size_t r = 0; r < block.rows; ++r) {
    for (std::size_t c = 0; c < block.cols; ++c) {
      const std::size_t index = (out->row + r) * cols_ + out->col + c;
      out->codes[r * block.cols + c] = CodeAt(block(r, c), out->numbers, for_factor, index);
    }
  }
}

Evaluated Evaluator::EvaluateAll() const {
  Evaluated q{.rows = rows_, .cols = cols_};
  q.codes.resize(rows_ * cols_);
  if (grid_.stores_scales) {
    q.scale_rows = grid_.rows;
    q.scale_cols = grid_.cols;
    q.scales.resize(grid_.rows * grid_.cols);
  }
  const auto evaluate_row = [&](std::size_t i) {
    CheckInterrupt();
    BlockBytes block;
    for (std::size_t j = 0; j < grid_.cols; ++j) {
      Evaluate(i, j, &block);
      if (grid_.stores_scales) q.scales[i * grid_.cols + j] = block.scale;
      for (std::size_t r = 0; r < block.rows; ++r) {
        std::copy_n(block.codes.data() + r * block.cols, block.cols,
                    q.codes.data() + (block.row + r) * cols_ + block.col);
      }
    }
  };
  if (grid_.rows * grid_.cols < kBlocksWorthThreads) {
    for (std::size_t i = 0; i < grid_.rows; ++i) evaluate_row(i);
  } else {
    ParallelFor(grid_.rows, evaluate_row);
  }
  return q;
}

}  // namespace fp4lab
