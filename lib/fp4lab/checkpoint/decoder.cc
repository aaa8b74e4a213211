#include "fp4lab/checkpoint/decoder.h"

#include <algorithm>
#include <vector>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/formats/format.h"

namespace fp4lab {
namespace {

// The value of every code, without a scale.
std::array<float, 256> Elements(const Reading& r) {
  std::array<float, 256> values = {};
  const int bits = FormatOf(r.element).bits;
  for (std::uint32_t code = 0; code < 1u << bits; ++code) values[code] = Decode(r.element, code);
  return values;
}

}  // namespace

Decoder::Decoder(const StoredBytes& bytes, const Reading& reading)
    : bytes_(bytes), r_(reading), elements_(Elements(reading)) {
  const IeeeArithmetic ieee;
  for (std::uint32_t b = 0; b < 256; ++b) scales_[b] = Decode(r_.scale, b);
  type_ = FindNumberType(bytes.scale_dtype).value_or(NumberType{});
  number_bytes_ = r_.numbers ? static_cast<std::size_t>(Bits(type_)) / 8 : 1;
  row_bytes_ = r_.codes == CodeOrder::kBytes ? r_.cols : r_.cols / 2;
}

void Decoder::Codes(std::size_t row, CodeOrder order, std::span<std::uint8_t> codes) const {
  const auto* c = reinterpret_cast<const std::uint8_t*>(bytes_.codes.data()) + row * row_bytes_;
  const std::size_t group = r_.block_rows == 0 ? r_.cols : r_.block_cols;
  for (std::size_t col = 0; col < r_.cols; ++col) {
    if (order == CodeOrder::kBytes) {
      codes[col] = c[col];
      continue;
    }
    bool high = (col % 2 == 1) != (order == CodeOrder::kHighFirst);
    std::size_t at = col / 2;
    if (order == CodeOrder::kSplitHalves) {
      const std::size_t begin = col / group * group;
      const std::size_t half = (std::min(begin + group, r_.cols) - begin + 1) / 2;
      high = col - begin >= half;
      at = begin / 2 + (col - begin) % half;
    }
    codes[col] = high ? c[at] >> 4 : c[at] & 15;
  }
}

void Decoder::Row(std::size_t row, CodeOrder codes, ScaleOrder order,
                  std::span<float> values) const {
  const IeeeArithmetic ieee;
  std::vector<std::uint8_t> raw(r_.cols);
  Codes(row, codes, raw);
  const std::size_t width = r_.block_rows == 0 ? r_.cols : r_.block_cols;
  for (std::size_t begin = 0; begin < r_.cols; begin += width) {
    const float scale = Scale(row / r_.rows, row % r_.rows, begin / width, order);
    const std::size_t end = std::min(begin + width, r_.cols);
    for (std::size_t col = begin; col < end; ++col) values[col] = elements_[raw[col]] * scale;
  }
}

float Decoder::Stored(float scale) const {
  if (!r_.numbers || type_.kind != NumberType::Kind::kFormat) return scale;
  const IeeeArithmetic ieee;
  return Decode(type_.format, Encode(type_.format, scale));
}

float Decoder::Scale(std::size_t part, std::size_t row, std::size_t block, ScaleOrder order) const {
  const IeeeArithmetic ieee;
  std::size_t at = 0;
  if (r_.block_rows == 0) {
    at = bytes_.scales.size() == number_bytes_ ? 0 : part;
  } else {
    Reading r = r_;
    r.order = order;
    at = part * r.stored_rows * r.stored_cols + StoredScaleOffset(r, row / r.block_rows, block);
  }
  return ScaleAt(at);
}

float Decoder::ScaleAt(std::size_t place) const {
  if (!r_.numbers) return scales_[static_cast<std::uint8_t>(bytes_.scales[place])];
  return DecodeNumbers(type_, bytes_.scales.subspan(place * number_bytes_, number_bytes_), 1)[0];
}

double MultiplierOf(TensorScaleConvention convention, float number, const Reading& r) {
  const IeeeArithmetic ieee;
  switch (convention) {
    case TensorScaleConvention::kMultiplier:
      return number;
    case TensorScaleConvention::kDivisor:
      return 1.0 / static_cast<double>(number);
    case TensorScaleConvention::kAmax:
      return static_cast<double>(number) / (448.0 * static_cast<double>(MaxFinite(r.element)));
    case TensorScaleConvention::kNone:
      break;
  }
  return 1;
}

}  // namespace fp4lab
