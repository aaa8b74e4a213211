// The places of a kernel's codes and scales in the bytes that it writes, its layout deviations
// included.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/judge/kernels/kernel_plan.h"

namespace fp4lab {

class BytePlaces;  // exchange/order/byte_order.h

class Places {
 public:
  // A place before the first byte or after the last.
  static constexpr std::size_t kNowhere = ~std::size_t{0};

  // For a quantized matrix of this shape.
  Places(const KernelPlan& plan, std::size_t rows, std::size_t cols);

  // The number of bytes that the layout spans, shifts left out.
  std::size_t code_bytes() const { return code_bytes_; }
  std::size_t scale_bytes() const { return scales_ * Named(scale_type_).bytes; }

  // The lowest bit of the code of element (r, c), counted from the lowest bit of the first byte.
  std::size_t CodeBit(std::size_t r, std::size_t c) const;

  // The scale of block (i, j) is stored at the places ScalePlace(i, j, k) for k < Copies(i, j), in
  // scales of scale_type().
  ScaleType scale_type() const { return scale_type_; }
  std::size_t Copies(std::size_t i, std::size_t j) const;
  std::size_t ScalePlace(std::size_t i, std::size_t j, std::size_t copy) const;

  // Whether so many bytes have a scale at `place`, and the scale there, as in exchange/stored.h.
  bool HasScale(std::size_t bytes, std::size_t place) const {
    return place < bytes / Named(scale_type_).bytes;
  }
  std::uint32_t ScaleAt(std::span<const std::uint8_t> bytes, std::size_t place) const {
    return ScaleCodeAt(bytes, place, scale_type_);
  }

  // Read and write the code at a bit of CodeBit; Fits(bit, bytes.size()) must hold.
  std::uint8_t CodeAt(std::span<const std::uint8_t> bytes, std::size_t bit) const;
  void PutCode(std::span<std::uint8_t> bytes, std::size_t bit, std::uint8_t code) const;
  // Whether the code at `bit` lies within so many bytes.
  bool Fits(std::size_t bit, std::size_t bytes) const {
    return bit != kNowhere && DivideUp(bit + width_, 8) <= bytes;
  }

 private:
  // The place of a scale by its row and column, shifts left out.
  std::size_t PlaceOf(std::size_t row, std::size_t col) const;

  OutputPlan output_;
  std::size_t rows_, cols_, block_rows_, block_cols_;
  bool codes_transposed_, scales_transposed_;
  std::size_t code_rows_, code_cols_, row_bytes_, group_, width_;
  std::size_t scale_rows_, scale_cols_, padded_cols_;
  std::size_t code_bytes_, scales_;
  ScaleType scale_type_;
  std::shared_ptr<const BytePlaces> code_places_, scale_places_;  // of orders that no layout has
};

}  // namespace fp4lab
