// An independent implementation of the conversions of formats/format.h, for tests: it compares x
// with the values of all codes, in order as exact doubles, and with their midpoints. It shares the
// table of formats and the names of the roundings with the library, but no arithmetic of Encode and
// Decode.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fp4lab/formats/format.h"

namespace fp4lab::oracle {

enum class Kind : std::uint8_t { kZero, kSubnormal, kNormal, kInf, kNan };

// The kind of a code, and its value as an exact double (Inf and NaN as such, with the code's sign).
Kind Classify(const Format& format, std::uint32_t code);
double Value(const Format& format, std::uint32_t code);

// The magnitudes of a format, in ascending order, ready for searching.
class Grid {
 public:
  explicit Grid(const Format& format);

  // The code of x. `near` is optional, for callers that go through values in order: it holds the
  // position of the last value (0 at the start) and saves the search; the result is the same.
  std::uint32_t Round(float x, Rounding rounding, std::uint32_t random16 = 0,
                      Overflow overflow = Overflow::kSaturate, std::size_t* near = nullptr) const;

 private:
  // Index of the largest magnitude <= x, for magnitudes_[0] <= x.
  std::size_t Below(double x, std::size_t* near) const;
  bool RoundsUp(std::size_t below, double x, bool negative, Rounding rounding,
                std::uint32_t random16) const;

  Format format_;
  // The value of each finite magnitude code, and one more: the value that the next code would have
  // if the format continued.
  std::vector<double> magnitudes_;
  std::uint32_t nan_ = 0;  // the code that NaN is encoded as
  bool has_inf_ = false, has_nan_ = false;
};

}  // namespace fp4lab::oracle
