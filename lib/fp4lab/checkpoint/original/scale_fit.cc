#include "fp4lab/checkpoint/original/scale_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/checkpoint/groups/code_table.h"
#include "fp4lab/checkpoint/original/error_sums.h"
#include "fp4lab/exchange/order/byte_order.h"

namespace fp4lab {
namespace {

constexpr std::size_t kSampledRows = 256;
constexpr std::size_t kMostScaledParts = 512;  // whose scales are compared with each other
constexpr double kFits = 0.08;  // the mean deviation of logarithms of scales that fit

using Elements = std::array<float, 256>;

// A format of codes, beside the stated one.
struct CodeFormat {
  std::string_view name;
  Elements values;
};

Elements ElementsOf(FormatId format) {
  Elements values = {};
  const std::uint32_t count = 1u << FormatOf(format).bits;
  for (std::uint32_t code = 0; code < count; ++code) values[code] = Decode(format, code);
  return values;
}

std::vector<CodeFormat> FormatsOf(int bits) {
  std::vector<CodeFormat> formats;
  Elements integers = {};
  const int half = 1 << (bits - 1);
  for (int code = 0; code < 2 * half; ++code) {
    integers[static_cast<std::size_t>(code)] =
        static_cast<float>(code < half ? code : code - 2 * half);
  }
  if (bits == 8) {
    formats.push_back({"E4M3", ElementsOf(FormatId::kE4M3)});
    formats.push_back({"E5M2", ElementsOf(FormatId::kE5M2)});
    formats.push_back({"INT8 (two's complement)", integers});
  } else {
    formats.push_back({"E2M1", ElementsOf(FormatId::kE2M1)});
    formats.push_back({"INT4 (two's complement)", integers});
    Elements offset = {};
    for (std::size_t code = 0; code < 16; ++code) offset[code] = static_cast<float>(code) - 8.0f;
    formats.push_back({"INT4 with the zero 8", offset});
    for (const CodeTable& table : kCodeTables) {
      Elements values = {};
      std::copy(table.values.begin(), table.values.end(), values.begin());
      formats.push_back({table.name, values});
    }
  }
  return formats;
}

// The scale that fits the codes of a piece of a row best, and where the piece stands.
struct Piece {
  std::size_t row, col;
  double logarithm;  // of the scale, the tensor scale included
};

// How far scales miss: the median and the mean deviation of logarithms of quotients.
struct Fit {
  double median = 0, deviation = 1e9, low = 0, high = 0;
  bool Fits() const { return deviation < kFits; }
};
Fit FitOf(std::vector<double> quotients, std::size_t pieces) {
  Fit fit;
  if (quotients.empty() || 10 * quotients.size() < 9 * pieces) return fit;
  std::sort(quotients.begin(), quotients.end());
  const std::size_t n = quotients.size();
  fit.median = quotients[n / 2];
  fit.low = quotients[n / 20], fit.high = quotients[n - 1 - n / 20];
  std::vector<double> distances;
  for (const double q : quotients) distances.push_back(std::fabs(q - fit.median));
  std::sort(distances.begin(), distances.end());
  const std::size_t kept = n - n / 20;  // a few outliers are no wrong scales
  double sum = 0;
  for (std::size_t k = 0; k < kept; ++k) sum += distances[k];
  fit.deviation = sum / static_cast<double>(kept);
  return fit;
}

class ScaleFitter {
 public:
  ScaleFitter(const StoredBytes& bytes, const Decoder& decoder, const Reading& r,
              TensorScaleConvention convention, std::span<const float> numbers,
              const RowReader& original, std::span<const double> cosines, const OtherScales& others)
      : bytes_(bytes),
        decoder_(decoder),
        r_(r),
        convention_(convention),
        numbers_(numbers),
        original_(original),
        cosines_(cosines),
        others_(others),
        rows_(r.parts * r.rows),
        part_scales_(r.block_rows == 0 ? 1 : r.stored_rows * r.stored_cols) {}

  std::string Text() {
    if (r_.block_rows == 0) return SaturationText();
    AddPieces(SampleRows(rows_, kSampledRows));
    if (pieces_.size() < 8) return "";
    stated_ = FitUnder([&](const Piece& p) { return ScaleAt(Stated(p.row, p.col)); });
    std::string text;
    if (stated_.Fits()) {
      text = std::fabs(stated_.median) < 0.3 ? "" : FormatText();
      return text.empty() ? SaturationText() : text;
    }
    text = OrderText();
    if (text.empty()) text = PartsText();
    if (text.empty()) text = FormatText();
    if (text.empty()) text = OtherMatrixText();
    if (text.empty()) text = SaturationText();
    if (text.empty() && stated_.deviation < 1e9 && OtherNumbersText(cosines_, r_).empty()) {
      text = "the codes are those of the original, but the scales do not fit them: they are " +
             TextOf("%.3g", std::exp(stated_.low)) + " to " +
             TextOf("%.3g times", std::exp(stated_.high)) + " those that do";
    }
    return text;
  }

 private:
  double Number(std::size_t row) const {
    if (numbers_.empty()) return 1;
    const std::size_t group = std::max<std::size_t>(1, rows_ / numbers_.size());
    return MultiplierOf(convention_, numbers_[std::min(numbers_.size() - 1, row / group)], r_);
  }

  void AddPieces(const std::vector<std::size_t>& rows) {
    for (const std::size_t row : rows) AddRow(row, &pieces_);
  }

  void AddRow(std::size_t row, std::vector<Piece>* pieces) const {
    const IeeeArithmetic ieee;
    const Matrix<float> x = original_(row, 1);
    std::vector<std::uint8_t> codes(r_.cols);
    decoder_.Codes(row, r_.codes, codes);
    const std::size_t width = std::min<std::size_t>(r_.block_cols, 32);
    for (std::size_t begin = 0; begin < r_.cols; begin += width) {
      ErrorSums sums;
      for (std::size_t col = begin; col < std::min(begin + width, r_.cols); ++col) {
        const double c = static_cast<double>(decoder_.Element(codes[col]));
        const double v = static_cast<double>(x(0, col));
        if (std::isfinite(c) && std::isfinite(v)) sums.Add(v, c);
      }
      if (sums.Best() > 0) pieces->push_back({row, begin, std::log(sums.Best())});
    }
  }

  // The place of the scale of (row of all parts, column), as stated.
  std::size_t Stated(std::size_t row, std::size_t col) const {
    return row / r_.rows * part_scales_ +
           StoredScaleOffset(r_, row % r_.rows / r_.block_rows, col / r_.block_cols);
  }
  std::size_t count() const { return r_.parts * part_scales_; }
  double ScaleAt(std::size_t place) const {
    return place < count() ? static_cast<double>(decoder_.ScaleAt(place)) : 0;
  }

  // The fit of scale_of(piece) to the scales that fit `pieces` best.
  template <class ScaleOf>
  static Fit FitTo(const std::vector<Piece>& pieces, const ScaleOf& scale_of) {
    std::vector<double> quotients;
    for (const Piece& p : pieces) {
      const double scale = scale_of(p);
      if (scale > 0 && std::isfinite(scale)) quotients.push_back(std::log(scale) - p.logarithm);
    }
    return FitOf(std::move(quotients), pieces.size());
  }
  template <class ScaleOf>
  Fit FitUnder(const ScaleOf& scale_of) const {
    return FitTo(pieces_, [&](const Piece& p) { return scale_of(p) * Number(p.row); });
  }

  bool IsBetter(const Fit& fit) const {
    return fit.Fits() && 5 * fit.deviation < 2 * stated_.deviation;
  }
  // The factor that another order or format leaves; "" near 1.
  static std::string FactorText(const Fit& fit) {
    const double factor = std::exp(fit.median);
    return std::fabs(factor - 1) < 0.1
               ? ""
               : "; the values are then " + TextOf("%.4g", factor) + " times the original";
  }

  // A place for the scale of a row and a column, and what it means.
  struct Hypothesis {
    std::string text;
    std::function<std::size_t(std::size_t row, std::size_t col)> place;
  };

  void AddShifts(std::vector<Hypothesis>* all) const {
    for (const std::size_t by : {1, 2, 4, 8, 16, 32, 64, 128}) {
      if (by >= r_.scale_rows) break;
      const std::string text = by == 1 ? "1 row" : std::to_string(by) + " rows";
      for (const bool down : {true, false}) {
        all->push_back({"the scales stand " + text + " of scales too far " + (down ? "down" : "up"),
                        [=, this](auto row, auto col) {
                          const std::size_t i = row % r_.rows / r_.block_rows;
                          const std::size_t other =
                              (i + (down ? by : r_.scale_rows - by)) % r_.scale_rows;
                          return row / r_.rows * part_scales_ +
                                 StoredScaleOffset(r_, other, col / r_.block_cols);
                        }});
      }
    }
    const std::size_t n = count();
    for (const std::size_t by : {1, 2, 3, 4}) {
      const std::string blocks = by == 1 ? "1 place" : std::to_string(by) + " places";
      all->push_back({"the scales stand " + blocks + " too late",
                      [=, this](auto row, auto col) { return (Stated(row, col) + by) % n; }});
      all->push_back({"the scales stand " + blocks + " too early", [=, this](auto row, auto col) {
                        return (Stated(row, col) + n - by % n) % n;
                      }});
    }
  }

  // Scales of ranks of tensor parallelism: every rank has whole blocks of its own.
  void AddRanks(std::vector<Hypothesis>* all) const {
    for (const std::size_t p : {2, 3, 4, 5, 6, 8, 16}) {
      const std::size_t rows = r_.rows / p, cols = r_.cols / p;
      const std::size_t high = DivideUp(rows, r_.block_rows), wide = DivideUp(cols, r_.block_cols);
      if (r_.rows % p == 0 && rows % r_.block_rows != 0 && p * high == r_.stored_rows) {
        all->push_back({"the blocks of scales begin anew every " + std::to_string(rows) +
                            " rows: the scales are those of " + std::to_string(p) +
                            " ranks, joined",
                        [=, this](auto row, auto col) {
                          const std::size_t in = row % r_.rows;
                          return row / r_.rows * part_scales_ +
                                 (in / rows * high + in % rows / r_.block_rows) * r_.stored_cols +
                                 col / r_.block_cols;
                        }});
      }
      if (r_.cols % p == 0 && cols % r_.block_cols != 0 && p * wide == r_.stored_cols) {
        all->push_back({"the blocks of scales begin anew every " + std::to_string(cols) +
                            " columns: the scales are those of " + std::to_string(p) +
                            " ranks, joined",
                        [=, this](auto row, auto col) {
                          return row / r_.rows * part_scales_ +
                                 row % r_.rows / r_.block_rows * r_.stored_cols +
                                 col / cols * wide + col % cols / r_.block_cols;
                        }});
      }
    }
  }

  std::vector<Hypothesis> Orders() const {
    std::vector<Hypothesis> all;
    const bool linear = r_.order == ScaleOrder::kLinear || r_.order == ScaleOrder::kPadded;
    if (linear && r_.stored_rows > 1 && r_.stored_cols > 1) {
      all.push_back({"the scales are transposed", [this](auto row, auto col) {
                       return row / r_.rows * part_scales_ + col / r_.block_cols * r_.stored_rows +
                              row % r_.rows / r_.block_rows;
                     }});
    }
    const std::size_t half = r_.scale_rows / 2;
    if (r_.scale_rows % 2 == 0 && half > 1) {
      for (const bool interleaved : {true, false}) {
        all.push_back({interleaved ? "the rows of scales are interleaved, and those of codes are "
                                     "not: rows 0, 2, 4, ... are of the first half"
                                   : "the rows of scales are joined, and those of codes are not: "
                                     "the first half are of rows 0, 2, 4, ...",
                       [=, this](auto row, auto col) {
                         const std::size_t i = row % r_.rows / r_.block_rows;
                         const std::size_t other =
                             interleaved ? i % half * 2 + i / half : i % 2 * half + i / 2;
                         return row / r_.rows * part_scales_ +
                                StoredScaleOffset(r_, other, col / r_.block_cols);
                       }});
      }
    }
    AddRanks(&all);
    AddShifts(&all);
    return all;
  }

  std::string OrderText() const {
    Fit best;
    std::string text;
    const auto take = [&](const Fit& fit, const std::string& says) {
      if (IsBetter(fit) && fit.deviation < 0.8 * best.deviation) best = fit, text = says;
    };
    for (const Hypothesis& h : Orders()) {
      take(FitUnder([&](const Piece& p) { return ScaleAt(h.place(p.row, p.col)); }), h.text);
    }
    if (!r_.numbers && r_.parts == 1) {
      for (const ByteOrder& order : ScaleByteOrders()) {
        const BytePlaces places(order, r_.scale_rows, r_.scale_cols, "scales");
        if (places.bytes() != count()) continue;
        take(FitUnder([&](const Piece& p) {
               return ScaleAt(places.Of(p.row / r_.block_rows, p.col / r_.block_cols));
             }),
             "the scales are in the order " + std::string(order.name));
      }
    }
    return text.empty() ? "" : text + FactorText(best);
  }

  // The scales of other parts, such as experts.
  std::string PartsText() const {
    const std::size_t n = r_.parts;
    if (n < 2 || n > kMostScaledParts) return "";
    std::string text;
    std::size_t moved = 0, found = 0;
    for (std::size_t p = 0; p < n; ++p) {
      std::vector<Piece> pieces;
      for (const std::size_t row : SampleRows(r_.rows, 8)) AddRow(p * r_.rows + row, &pieces);
      Fit best;
      std::size_t from = n;
      for (std::size_t q = 0; q < n; ++q) {
        const Fit fit = FitTo(pieces, [&](const Piece& piece) {
          return ScaleAt(Stated(piece.row % r_.rows + q * r_.rows, piece.col));
        });
        if (fit.Fits() && fit.deviation < 0.6 * best.deviation) best = fit, from = q;
      }
      found += from < n ? 1 : 0;
      if (from == n || from == p) continue;
      if (moved++ < 4) {
        text += (text.empty() ? "those of part " : ", of part ") + std::to_string(p) + " at part " +
                std::to_string(from);
      }
    }
    if (moved == 0 || 4 * found < 3 * n) return "";
    return "the scales stand at other parts: " + text + (moved > 4 ? ", ..." : "");
  }

  // The scales of another matrix, such as another expert.
  std::string OtherMatrixText() const {
    if (!others_) return "";
    Fit best;
    std::string name;
    for (const NamedScales& other : others_()) {
      if (other.bytes.size() != bytes_.scales.size()) continue;
      const StoredBytes bytes{bytes_.codes, other.bytes, bytes_.scale_dtype};
      const Decoder decoder(bytes, r_);
      const Fit fit = FitUnder([&](const Piece& p) {
        return static_cast<double>(decoder.ScaleAt(Stated(p.row, p.col)));
      });
      if (IsBetter(fit) && fit.deviation < 0.8 * best.deviation) best = fit, name = other.name;
    }
    return name.empty() ? "" : "the scales do not fit the codes, and those of " + name + " do";
  }

  // The scales in another format, or as reciprocals.
  std::string FormatText() const {
    const auto under = [&](const std::function<double(std::size_t)>& value) {
      return FitUnder([&](const Piece& p) { return value(Stated(p.row, p.col)); });
    };
    const Fit inverse = under([&](std::size_t place) {
      const double scale = ScaleAt(place);
      return scale > 0 ? 1 / scale : 0;
    });
    if (IsBetter(inverse)) return "the scales are stored as reciprocals" + FactorText(inverse);
    if (r_.numbers) return "";
    for (const FormatId format : {FormatId::kE4M3, FormatId::kE5M2, FormatId::kE8M0}) {
      if (format == r_.scale) continue;
      const Fit fit = under([&](std::size_t place) {
        return static_cast<double>(Decode(format, static_cast<std::uint8_t>(bytes_.scales[place])));
      });
      // Bytes of 8 bits have about the same order in every format: the size of the values decides.
      const bool near = fit.deviation < 1.5 * kFits && std::fabs(fit.median) < 0.1;
      if (!near || std::fabs(stated_.median) < 0.3) continue;
      return "the scale bytes are those of " + UpperName(format) + ", read as " +
             UpperName(r_.scale) + FactorText(fit);
    }
    return "";
  }

  // Codes at the end of their range: scales of an amax that is too small.
  std::string SaturationText() const {
    const float largest = MaxFinite(r_.element);
    const std::size_t width = r_.block_rows == 0 ? r_.cols : r_.block_cols;
    std::size_t at_end = 0, all = 0;
    std::vector<std::uint8_t> codes(r_.cols);
    for (const std::size_t row : SampleRows(rows_, 64)) {
      decoder_.Codes(row, r_.codes, codes);
      for (const std::uint8_t code : codes) {
        at_end += std::fabs(decoder_.Element(code)) == largest ? 1 : 0;
      }
      all += r_.cols;
    }
    // A block has one largest element, or some that are near it.
    const double share = static_cast<double>(at_end) / static_cast<double>(all);
    const double due = FormatOf(r_.element).bits == 8 ? 2.0 / static_cast<double>(width) : 0.25;
    if (share < due + 0.004) return "";
    return TextOf("%.3g %%", 100 * share) +
           " of the codes are the largest of their format: the scales are of an amax that is "
           "smaller than the original's";
  }

  const StoredBytes& bytes_;
  const Decoder& decoder_;
  const Reading& r_;
  const TensorScaleConvention convention_;
  const std::span<const float> numbers_;
  const RowReader& original_;
  const std::span<const double> cosines_;
  const OtherScales& others_;
  const std::size_t rows_, part_scales_;
  std::vector<Piece> pieces_;
  Fit stated_;
};

}  // namespace

std::string ElementText(const Decoder& decoder, const Reading& reading, const RowReader& original) {
  const IeeeArithmetic ieee;
  const int bits = FormatOf(reading.element).bits;
  if (bits == 6) return "";
  const Directions directions(decoder, reading, original);
  if (directions.cols() < 16) return "";
  const std::vector<std::size_t> rows = SampleRows(reading.parts * reading.rows, 16);
  const auto nearness = [&](const Elements& elements) {
    double sum = 0;
    for (const std::size_t row : rows) {
      sum += directions.Cosine(directions.OfStored(row, elements), directions.OfOriginal(row));
    }
    return sum / static_cast<double>(rows.size());
  };
  const double stated = nearness(ElementsOf(reading.element));
  double best = std::max(0.95, stated + (bits == 8 ? 0.005 : 0.02));
  std::string text;
  for (const CodeFormat& format : FormatsOf(bits)) {
    const double near = nearness(format.values);
    if (near <= best) continue;
    best = near;
    text = std::string(format.name);
  }
  if (text.empty()) return "";
  return "the codes are " + text + ", read as " + UpperName(reading.element);
}

std::string ScaleFitText(const StoredBytes& bytes, const Decoder& decoder, const Reading& reading,
                         TensorScaleConvention convention, std::span<const float> numbers,
                         const RowReader& original, std::span<const double> cosines,
                         const OtherScales& others) {
  const IeeeArithmetic ieee;
  return ScaleFitter(bytes, decoder, reading, convention, numbers, original, cosines, others)
      .Text();
}

}  // namespace fp4lab
