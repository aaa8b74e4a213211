// The values of a matrix of a checkpoint, row by row, under any order of codes and scales.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "fp4lab/exchange/number_type.h"
#include "fp4lab/exchange/stored.h"
#include "fp4lab/exchange/vendors/reading.h"

namespace fp4lab {

// The bytes of one matrix.
struct StoredBytes {
  std::span<const std::byte> codes, scales;
  std::string_view scale_dtype;
};

class Decoder {
 public:
  // `bytes` and `reading` must outlive the decoder.
  Decoder(const StoredBytes& bytes, const Reading& reading);

  // The codes of row `row` (of all parts), one a byte.
  void Codes(std::size_t row, CodeOrder order, std::span<std::uint8_t> codes) const;
  // The values of row `row` under a reading, without the tensor scale.
  void Row(std::size_t row, CodeOrder codes, ScaleOrder order, std::span<float> values) const;
  // The element that a code stands for.
  float Element(std::uint8_t code) const { return elements_[code]; }
  // The number nearest to a scale in the type of the stored scales, where they are numbers.
  float Stored(float scale) const;
  // The scale at a place of the stored ones.
  float ScaleAt(std::size_t place) const;
  // The scale of a block in row `row` of a part.
  float Scale(std::size_t part, std::size_t row, std::size_t block, ScaleOrder order) const;

 private:
  const StoredBytes& bytes_;
  const Reading& r_;
  std::array<float, 256> elements_, scales_;
  NumberType type_;
  std::size_t number_bytes_ = 1, row_bytes_ = 0;
};

// The factor of a stored tensor scale: L, 1/L or amax/C.
double MultiplierOf(TensorScaleConvention convention, float number, const Reading& reading);

}  // namespace fp4lab
