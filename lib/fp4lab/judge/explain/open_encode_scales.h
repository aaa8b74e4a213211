// The encode scales S (a factor of the input where the dialect has none) that fit a kernel's scales
// and codes, as far as roundings can be inverted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "fp4lab/judge/kernels/match.h"

namespace fp4lab {

// An interval of S; empty if low > high.
struct EncodeScales {
  double low = 0.0, high = std::numeric_limits<double>::infinity();
  bool Empty() const { return low > high; }
  EncodeScales With(const EncodeScales& other) const;
};

// What S is read from.
enum class ReadFrom : std::uint8_t { kScales, kCodes, kBoth };

class EncodeScaleReader {
 public:
  // `matcher` must outlive the reader.
  EncodeScaleReader(const Kernel& kernel, ByteMatcher& matcher);

  // Whether the kernel's formulas and bytes can be inverted: E4M3 or E8M0 scales that are stored.
  // Of E8M0 scales S is read from the codes alone.
  bool CanRead() const;
  // The S that fit the scale and the codes of block (i, j), up to the formulas' roundings.
  EncodeScales OfBlock(std::size_t i, std::size_t j, ReadFrom from = ReadFrom::kBoth) const;
  // The S that fit some thousand blocks, spread over the matrix.
  EncodeScales OfAll(ReadFrom from = ReadFrom::kBoth) const;
  const BlockGrid& grid() const { return evaluator_.grid(); }

 private:
  const Kernel& kernel_;
  const StoredMatrix& got_;
  Evaluator evaluator_;
  Places places_;
  std::span<const std::uint16_t> random_;  // of all elements; empty: not known
  Matrix<float> transformed_;
  MatrixView<const float> x_;
};

}  // namespace fp4lab
