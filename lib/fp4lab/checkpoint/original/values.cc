#include "fp4lab/checkpoint/original/values.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <vector>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/checkpoint/decoder.h"
#include "fp4lab/checkpoint/original/error_sums.h"
#include "fp4lab/formats/format.h"

namespace fp4lab {
namespace {

// The factor of a block: its scale s and the stored number, as StoredValues computes it.
float FactorOf(TensorScaleConvention convention, float s, float number, float constant) {
  switch (convention) {
    case TensorScaleConvention::kMultiplier:
      return s * number;
    case TensorScaleConvention::kDivisor:
      return s / number;
    case TensorScaleConvention::kAmax:
      return s * number * (1.0f / constant);
    case TensorScaleConvention::kNone:
      break;
  }
  return s;
}

bool IsEqual(float got, float want) {
  if (std::isnan(got) || std::isnan(want)) return std::isnan(got) && std::isnan(want);
  if (got == want) return true;
  // Another order of the two multiplications.
  if (std::fabs(got - want) <= 0x1p-22f * std::fabs(want)) return true;
  for (const FormatId narrow : {FormatId::kBF16, FormatId::kFP16}) {
    if (got == Decode(narrow, Encode(narrow, want))) return true;
  }
  return false;
}

std::string Text(double x) { return TextOf("%.6g", x); }

// Rows whose values are one factor times the decoded ones.
struct Run {
  std::size_t first = 0, last = 0;
  double factor = 1;
};

class Comparer {
 public:
  Comparer(const StoredBytes& bytes, const Reading& r, TensorScaleConvention convention,
           std::span<const float> numbers)
      : r_(r), convention_(convention), numbers_(numbers), decoder_(bytes, r) {
    constant_ = 448.0f * MaxFinite(r.element);
  }

  ValuesVerdict Compare(const RowReader& values) {
    const std::size_t rows = r_.parts * r_.rows;
    for (std::size_t row = 0; row < rows; ++row) AddRow(row, rows, values(row, 1));
    v_.elements = rows * r_.cols;
    if (v_.different > 0) Explain(values);
    return std::move(v_);
  }

 private:
  void AddRow(std::size_t row, std::size_t rows, const Matrix<float>& got) {
    std::vector<std::uint8_t> codes(r_.cols);
    decoder_.Codes(row, r_.codes, codes);
    const std::size_t group =
        std::max<std::size_t>(1, rows / std::max<std::size_t>(1, numbers_.size()));
    const float number =
        numbers_.empty() ? 1.0f : numbers_[std::min(numbers_.size() - 1, row / group)];
    const auto convention = numbers_.empty() ? TensorScaleConvention::kNone : convention_;
    const std::size_t width = r_.block_rows == 0 ? r_.cols : r_.block_cols;
    double xy = 0, yy = 0, xx = 0;
    for (std::size_t col = 0; col < r_.cols; ++col) {
      const float s = decoder_.Scale(row / r_.rows, row % r_.rows, col / width, r_.order);
      const float want = decoder_.Element(codes[col]) * FactorOf(convention, s, number, constant_);
      const float x = got(0, col);
      if (!IsEqual(x, want) && v_.different++ == 0) {
        v_.row = row;
        v_.col = col;
        v_.got = x;
        v_.want = want;
      }
      if (!std::isfinite(x) || !std::isfinite(want)) continue;
      xy += static_cast<double>(x) * static_cast<double>(want);
      yy += static_cast<double>(want) * static_cast<double>(want);
      xx += static_cast<double>(x) * static_cast<double>(x);
    }
    if (!(yy > 0)) return;  // a row of zeros has every factor
    // 0: no factor fits to three digits.
    const double factor = xy / yy;
    const double noise = xx - 2 * factor * xy + factor * factor * yy;
    const double k = noise <= 1e-4 * xx && xx > 0 ? factor : 0;
    const bool same = !runs_.empty() &&
                      std::fabs(runs_.back().factor - k) <= 0.004 * std::fabs(runs_.back().factor);
    if (same) {
      runs_.back().last = row;
    } else {
      runs_.push_back({row, row, k});
    }
  }

  // A wrong way to decode. `codes`: the order of nibbles; nullopt: the stated one.
  struct Decoding {
    const char* what;
    std::optional<CodeOrder> codes = {};
    bool scales_left_out = false, as_e5m2 = false, magnitudes = false;
    int block_shift = 0;  // the scale of so many blocks before
  };
  static std::span<const Decoding> Decodings() {
    static constexpr std::array kRows = {
        Decoding{"the nibbles of every byte are read high-first", CodeOrder::kHighFirst},
        Decoding{"the nibbles of every byte are read low-first", CodeOrder::kLowFirst},
        Decoding{"the nibbles are read as split halves of a block", CodeOrder::kSplitHalves},
        Decoding{.what = "the block scales are left out", .scales_left_out = true},
        Decoding{.what = "the block scales are read as E5M2", .as_e5m2 = true},
        Decoding{.what = "the signs are dropped", .magnitudes = true},
        Decoding{.what = "every block has the scale of the block before", .block_shift = 1},
        Decoding{.what = "every block has the scale of the block after", .block_shift = -1},
    };
    return kRows;
  }

  // Row `row` as it is decoded, without the tensor scale.
  void Decode(const Decoding& way, std::size_t row, std::span<float> out) const {
    std::vector<std::uint8_t> codes(r_.cols);
    decoder_.Codes(row, way.codes.value_or(r_.codes), codes);
    const std::size_t width = r_.block_rows == 0 ? r_.cols : r_.block_cols;
    const std::size_t blocks = (r_.cols + width - 1) / width;
    for (std::size_t col = 0; col < r_.cols; ++col) {
      const std::size_t block =
          (col / width + blocks - static_cast<std::size_t>(way.block_shift + 1) + 1) % blocks;
      float s = decoder_.Scale(row / r_.rows, row % r_.rows, block, r_.order);
      if (way.scales_left_out) s = 1.0f;
      if (way.as_e5m2) s = fp4lab::Decode(FormatId::kE5M2, Encode(FormatOf(r_.scale), s));
      const float y = decoder_.Element(codes[col]) * s;
      out[col] = way.magnitudes ? std::fabs(y) : y;
    }
  }

  // The factor between the values and a wrong decoding, the same for all of some rows; 0: none.
  double FactorUnder(const Decoding& way, const RowReader& values) const {
    const std::size_t rows = std::min<std::size_t>(r_.parts * r_.rows, 32);
    double factor = 0;
    std::vector<float> y(r_.cols);
    for (std::size_t row = 0; row < rows; ++row) {
      const Matrix<float> x = values(row, 1);
      Decode(way, row, y);
      double xy = 0, yy = 0, xx = 0;
      for (std::size_t col = 0; col < r_.cols; ++col) {
        const auto a = static_cast<double>(x(0, col)), b = static_cast<double>(y[col]);
        if (!std::isfinite(a) || !std::isfinite(b)) continue;
        xy += a * b, yy += b * b, xx += a * a;
      }
      if (!(yy > 0)) continue;
      const double k = xy / yy;
      if (!(xx > 0) || xx - 2 * k * xy + k * k * yy > 1e-4 * xx) return 0;
      if (factor != 0 && std::fabs(k / factor - 1) > 0.004) return 0;
      factor = k;
    }
    return factor;
  }

  // The wrong way to decode that gives the values up to one factor; "" if there is none.
  std::string DecodingText(const RowReader& values) const {
    if (r_.numbers || r_.codes == CodeOrder::kDense6) return "";
    const bool four = r_.codes != CodeOrder::kBytes;
    for (const Decoding& way : Decodings()) {
      if (way.codes && (!four || *way.codes == r_.codes)) continue;
      if (way.codes == CodeOrder::kSplitHalves && r_.cols % 16 != 0) continue;
      if (r_.block_rows == 0 && (way.scales_left_out || way.as_e5m2 || way.block_shift != 0))
        continue;
      if (way.as_e5m2 && r_.scale != FormatId::kE4M3) continue;
      const double factor = FactorUnder(way, values);
      if (factor == 0) continue;
      const double m = numbers_.size() == 1 ? MultiplierOf(convention_, numbers_[0], r_) : 0;
      const bool plain = m != 0 && std::fabs(factor / m - 1) < 0.003;
      const bool without = m != 0 && std::fabs(factor - 1) < 0.003;
      return std::string(way.what) +
             (plain     ? ""
              : without ? ", and the tensor scale is left out"
              : m == 0  ? ""
                        : ", and the factor is " + Text(factor) + ", not " + Text(m));
    }
    return "";
  }

  void Explain(const RowReader& values) {
    if (runs_.size() == 1 && runs_[0].factor != 0) {
      v_.factor = runs_[0].factor;
      v_.cause = "the values are " + Text(v_.factor) + " times what the matrix decodes to" + Why();
      return;
    }
    v_.factor = 0;
    v_.cause = DecodingText(values);
    if (!v_.cause.empty()) return;
    if (runs_.size() > 8) return;
    for (const Run& run : runs_) {
      v_.cause +=
          (v_.cause.empty() ? "rows " : "; rows ") + std::to_string(run.first) + ".." +
          std::to_string(run.last) +
          (run.factor == 0                     ? " have no one factor"
           : std::fabs(run.factor - 1) < 0.002 ? " are right"
                                               : " are " + Text(run.factor) + " times the decoded");
    }
  }

  std::string Why() const {
    if (numbers_.size() != 1) return "";
    const double m = MultiplierOf(convention_, numbers_[0], r_), k = v_.factor;
    const auto near = [&](double other) { return std::fabs(k / other - 1) < 0.003; };
    if (near(1)) return ", but for rounding";
    if (near(1 / m)) return ": the tensor scale is left out";
    if (near(m)) return ": the tensor scale is multiplied in twice";
    if (near(1 / (m * m)))
      return ": the tensor scale is taken for the other of multiplier and divisor";
    if (near(-1)) return ": the sign is lost or inverted";
    return "";
  }

  const Reading& r_;
  const TensorScaleConvention convention_;
  const std::span<const float> numbers_;
  const Decoder decoder_;
  float constant_ = 0;
  std::vector<Run> runs_;
  ValuesVerdict v_;
};

}  // namespace

ValuesVerdict CompareValues(const StoredBytes& bytes, const Reading& reading,
                            TensorScaleConvention convention, std::span<const float> numbers,
                            const RowReader& values) {
  const IeeeArithmetic ieee;
  if (reading.codes == CodeOrder::kDense6 || reading.rows == 0 || reading.cols == 0) {
    ValuesVerdict verdict;
    verdict.problem = "6-bit codes without gaps and empty matrices are not compared";
    return verdict;
  }
  return Comparer(bytes, reading, convention, numbers).Compare(values);
}

}  // namespace fp4lab
