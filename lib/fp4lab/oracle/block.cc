#include "fp4lab/oracle/block.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fp4lab::oracle {
namespace {

using Real = long double;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

// Products are exact in long double and rounded once to binary32. Quotients are rounded to 64 bits
// by long double first; the double rounding cannot change the result (64 >= 2 * 24 + 2).
float Product(float a, float b) { return static_cast<float>(static_cast<Real>(a) * b); }
float Quotient(float a, float b) { return static_cast<float>(static_cast<Real>(a) / b); }
float AtMostLargest(float x) { return x > kLargest ? kLargest : x; }

const Format& Facts(FormatId id) { return kFormats[static_cast<std::size_t>(id)].format; }

Real LargestElement(FormatId id) {
  const Format& format = Facts(id);
  Real largest = 0;
  for (std::uint32_t code = 0; code < 1u << format.bits; ++code) {
    const Kind kind = Classify(format, code);
    if (kind == Kind::kInf || kind == Kind::kNan) continue;
    largest = std::max<Real>(largest, Value(format, code));
  }
  return largest;
}

Real PowerOfTwo(int e) { return std::ldexp(static_cast<Real>(1), e); }

// 2^emax: the largest power of two that is not above the largest element.
Real LargestPower(FormatId id) {
  int e = -200;
  while (PowerOfTwo(e + 1) <= LargestElement(id)) ++e;
  return PowerOfTwo(e);
}

// The largest E8M0 byte whose scale is at most `bound`, or 0.
std::uint8_t LargestByteWithin(Real bound) {
  int byte = 0;
  while (byte < 254 && PowerOfTwo(byte + 1 - 127) <= bound) ++byte;
  return static_cast<std::uint8_t>(byte);
}
// The smallest E8M0 byte whose scale is at least `bound`, or 254.
std::uint8_t SmallestByteFrom(Real bound) {
  int byte = 0;
  while (byte < 254 && PowerOfTwo(byte - 127) < bound) ++byte;
  return static_cast<std::uint8_t>(byte);
}

}  // namespace

BlockQuantizer::BlockQuantizer(const Dialect& dialect, float tensor_amax)
    : dialect_(dialect),
      tensor_amax_(tensor_amax),
      elements_(Facts(dialect.element)),
      e4m3_(Facts(FormatId::kE4M3)),
      largest_(LargestElement(dialect.element)),
      largest_power_(LargestPower(dialect.element)) {}

std::uint8_t BlockQuantizer::E8m0Scale(float amax) const {
  if (dialect_.block_scale == BlockScale::kRceil) {
    const float reciprocal = Quotient(1.0f, static_cast<float>(largest_));
    return SmallestByteFrom(Product(amax, reciprocal));
  }
  if (std::isinf(amax)) return 255;
  const Real ratio = static_cast<Real>(amax) / largest_power_;
  if (dialect_.block_scale == BlockScale::kFloor) return LargestByteWithin(ratio);
  if (dialect_.block_scale == BlockScale::kCeil) return SmallestByteFrom(ratio);
  // kEven: an amax at most half a unit in the element's last place below a power of two counts as
  // that power of two.
  const int m = Facts(dialect_.element).mantissa_bits;
  return LargestByteWithin(ratio / (1 - PowerOfTwo(-(m + 2))));
}

BlockQuantizer::Scale BlockQuantizer::Nvfp4Scale(float amax) const {
  float encode = 1.0f;
  if (tensor_amax_ != 0.0f && tensor_amax_ != kInf) {
    encode = AtMostLargest(Quotient(2688.0f, tensor_amax_));
  }
  const float decode = Quotient(1.0f, encode);
  const float sixth = Quotient(1.0f, 6.0f);
  const float wanted = Product(amax, Product(encode, sixth));
  const std::uint32_t byte = e4m3_.Round(wanted, Rounding::kNearestEven);
  const float s = static_cast<float>(Value(Facts(FormatId::kE4M3), byte));
  const float product = Product(s, decode);
  const float multiplier = product == 0.0f ? kLargest : AtMostLargest(Quotient(1.0f, product));
  return {static_cast<std::uint8_t>(byte), multiplier};
}

BlockQuantizer::Scale BlockQuantizer::ScaleOf(float amax) const {
  if (dialect_.block_scale == BlockScale::kFolded) return Nvfp4Scale(amax);
  if (dialect_.block_scale == BlockScale::kOneBlock) {
    const bool usable = tensor_amax_ != 0.0f && tensor_amax_ != kInf;
    const float largest = static_cast<float>(largest_);
    return {0, usable ? AtMostLargest(Quotient(largest, tensor_amax_)) : 1.0f};
  }
  const std::uint8_t byte = E8m0Scale(amax);
  if (byte == 255) return {byte, std::numeric_limits<float>::quiet_NaN()};
  return {byte, static_cast<float>(PowerOfTwo(127 - byte))};
}

Block BlockQuantizer::Quantize(std::span<const float> x, Rounding rounding,
                               std::span<const std::uint32_t> random16) const {
  float amax = 0.0f;
  for (const float v : x) {
    if (!std::isnan(v)) amax = std::max(amax, std::fabs(v));
  }
  const Scale scale = ScaleOf(amax);
  Block block{scale.byte, {}};
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float v = Product(x[i], scale.multiplier);
    block.codes.push_back(elements_.Round(v, rounding, random16.empty() ? 0 : random16[i]));
  }
  return block;
}

}  // namespace fp4lab::oracle
