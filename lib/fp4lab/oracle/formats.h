// A second statement of the conversions of formats/format.h, by search: the codes' values in order
// as exact doubles, and comparisons with them and their midpoints. It shares no arithmetic with
// Encode and Decode; only the table of formats and the names of the roundings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fp4lab/formats/format.h"

namespace fp4lab::oracle {

enum class Kind : std::uint8_t { kZero, kSubnormal, kNormal, kInf, kNan };

// What a code is, and its value as an exact double (Inf and NaN as such, with the code's sign).
Kind Classify(const Format& format, std::uint32_t code);
double Value(const Format& format, std::uint32_t code);

// The magnitudes of a format, in ascending order, ready for searching.
class Grid {
 public:
  explicit Grid(const Format& format);

  // The code of x. `near`, of a caller who goes through values in order: where the last one lay; it
  // saves the search and changes nothing else. Start with 0.
  std::uint32_t Round(float x, Rounding rounding, std::uint32_t random16 = 0,
                      Overflow overflow = Overflow::kSaturate, std::size_t* near = nullptr) const;

 private:
  // Index of the largest magnitude <= x, for magnitudes_[0] <= x.
  std::size_t Below(double x, std::size_t* near) const;
  bool RoundsUp(std::size_t below, double x, bool negative, Rounding rounding,
                std::uint32_t random16) const;

  Format format_;
  // Value of each finite magnitude code, and one beyond: the value that code would have if the
  // format went on.
  std::vector<double> magnitudes_;
  std::uint32_t nan_ = 0;  // what NaN becomes
  bool has_inf_ = false, has_nan_ = false;
};

}  // namespace fp4lab::oracle
