#include "fp4lab/checkpoint/original/placement.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/checkpoint/original/error_sums.h"

namespace fp4lab {
namespace {

constexpr std::size_t kComparedCols = 512;
constexpr std::size_t kSamples = 48;
constexpr std::size_t kMostParts = 1024;    // whose first rows are compared with each other
constexpr std::size_t kStrip = 64;          // rows that are read at a time
constexpr std::size_t kColumnRows = 256;    // rows from which columns are known
constexpr std::size_t kColumnSamples = 24;  // columns that are looked for
constexpr std::size_t kMostPieces = 4;      // runs of rows that a text lists

// A stored row and the row of the original that it is.
struct Place {
  std::size_t stored, original;
};

std::string RangeText(std::size_t first, std::size_t last) {
  return std::to_string(first) + ".." + std::to_string(last);
}

// A way in which rows are exchanged: the original's row of a stored row, of `rows` rows.
struct Order {
  std::size_t period;  // within which rows are exchanged
  std::size_t piece;   // rows that stay together
  bool interleaved;    // stored pieces are of the first and of the second half in turn

  std::size_t Of(std::size_t row) const {
    const std::size_t base = row / period * period, half = period / 2;
    const std::size_t at = row % period, inner = at % piece;
    if (interleaved) {
      const std::size_t n = at / piece;
      return base + n % 2 * half + n / 2 * piece + inner;
    }
    const bool second = at >= half;
    const std::size_t n = (second ? at - half : at) / piece;
    return base + (2 * n + (second ? 1 : 0)) * piece + inner;
  }

  std::string Text(std::size_t rows) const {
    const std::string in = period == rows ? "" : "in every " + std::to_string(period) + " rows, ";
    if (piece > 1) {
      return in + "pieces of " + std::to_string(piece) + " rows are " +
             (interleaved ? "interleaved: stored pieces 0, 2, 4, ... are the first half of the "
                            "original's"
                          : "joined: the first half of the stored rows are the original's pieces "
                            "0, 2, 4, ...");
    }
    const std::string rope =
        period == rows ? "" : ", as for rotary embeddings in pairs and in halves";
    return in +
           (interleaved ? "the rows are interleaved: stored rows 0, 2, 4, ... are the first half "
                          "of the original's"
                        : "the rows are joined: the first half of the stored rows are the "
                          "original's rows 0, 2, 4, ...") +
           rope;
  }
};

class Finder {
 public:
  Finder(const Decoder& decoder, const Reading& r, const RowReader& original)
      : decoder_(decoder),
        r_(r),
        original_(original),
        rows_(r.parts * r.rows),
        directions_(decoder, r, original) {}

  std::string Text(const OtherOriginals& others) {
    if (rows_ < 2 || directions_.cols() < 16) return "";
    std::string text = PartsText();
    if (text.empty()) text = RowsText();
    if (text.empty()) text = OtherTensorText(others);
    if (text.empty()) text = TransposeText();
    if (text.empty()) text = ColumnsText();
    if (text.empty()) text = HadamardText();
    return text;
  }

 private:
  // The parts, such as experts, in another order.
  std::string PartsText() const {
    const std::size_t n = r_.parts;
    if (n < 2 || n > kMostParts) return "";
    const std::size_t middle = r_.rows / 2;
    std::vector<std::vector<float>> originals(n);
    for (std::size_t p = 0; p < n; ++p) {
      originals[p] = directions_.OfOriginal(p * r_.rows + middle);
    }
    std::vector<std::size_t> from(n, n);
    ParallelFor(n, [&](std::size_t p) {
      const std::vector<float> stored = directions_.OfStored(p * r_.rows + middle);
      double best = kSameDirection;
      for (std::size_t q = 0; q < n; ++q) {
        const double cosine = directions_.Cosine(stored, originals[q]);
        if (cosine > best) best = cosine, from[p] = q;
      }
    });
    std::string text;
    std::size_t moved = 0, found = 0;
    for (std::size_t p = 0; p < n; ++p) {
      found += from[p] < n ? 1 : 0;
      if (from[p] >= n || from[p] == p) continue;
      if (moved++ < kMostPieces) {
        text += (text.empty() ? "stored part " : ", part ") + std::to_string(p) +
                " is the original's part " + std::to_string(from[p]);
      }
    }
    if (moved == 0 || 4 * found < 3 * n) return "";
    return "the parts are in another order: " + text + (moved > kMostPieces ? ", ..." : "");
  }

  bool Same(std::size_t stored, std::size_t original) const {
    return directions_.Cosine(directions_.OfStored(stored), directions_.OfOriginal(original)) >
           kSameDirection;
  }

  // The places of sampled rows.
  std::vector<Place> FindRows() const {
    const std::vector<std::size_t> samples = SampleRows(rows_, kSamples);
    std::vector<std::vector<float>> stored;
    for (const std::size_t row : samples) stored.push_back(directions_.OfStored(row));
    std::vector<double> best(samples.size(), kSameDirection);
    std::vector<std::size_t> at(samples.size(), rows_);
    for (std::size_t first = 0; first < rows_; first += kStrip) {
      Matrix<float> x = original_(first, std::min(kStrip, rows_ - first));
      for (std::size_t i = 0; i < x.rows; ++i) directions_.Scale({&x(i, 0), directions_.cols()});
      ParallelFor(samples.size(), [&](std::size_t k) {
        for (std::size_t i = 0; i < x.rows; ++i) {
          const double cosine = directions_.Cosine(stored[k], {&x(i, 0), directions_.cols()});
          if (cosine > best[k]) best[k] = cosine, at[k] = first + i;
        }
      });
    }
    std::vector<Place> places;
    for (std::size_t k = 0; k < samples.size(); ++k) {
      if (at[k] < rows_) places.push_back({samples[k], at[k]});
    }
    return 4 * places.size() < 3 * samples.size() ? std::vector<Place>() : places;
  }

  template <class Map>
  static bool Fits(const std::vector<Place>& places, const Map& map) {
    return std::all_of(places.begin(), places.end(),
                       [&](const Place& p) { return map(p.stored) == p.original; });
  }

  std::string RowsText() const {
    const std::vector<Place> places = FindRows();
    if (places.empty()) return "";
    if (Fits(places, [](std::size_t row) { return row; })) return "";
    for (const Order& order : Orders()) {
      if (Fits(places, [&](std::size_t row) { return order.Of(row); })) return order.Text(rows_);
    }
    if (Fits(places, [&](std::size_t row) { return rows_ - 1 - row; })) {
      return "the rows stand in reverse order";
    }
    const std::string pieces = PiecesText(places);
    if (!pieces.empty()) return pieces;
    std::string stored, original;
    for (std::size_t k = 0; k < std::min<std::size_t>(places.size(), 4); ++k) {
      stored += (k == 0 ? "" : ", ") + std::to_string(places[k].stored);
      original += (k == 0 ? "" : ", ") + std::to_string(places[k].original);
    }
    return "the rows are in another order: stored rows " + stored + " are the original's rows " +
           original;
  }

  std::vector<Order> Orders() const {
    std::vector<Order> orders;
    const auto add = [&](std::size_t period, std::size_t piece) {
      if (period < 4 || rows_ % period != 0 || period % (2 * piece) != 0) return;
      if (period / 2 == piece) return;  // two pieces: nothing moves
      orders.push_back({period, piece, true});
      orders.push_back({period, piece, false});
    };
    for (const std::size_t period : {rows_, r_.rows}) {
      for (const std::size_t piece : {1, 2, 4, 8, 16, 32, 64, 128}) add(period, piece);
    }
    for (const std::size_t period : {256, 192, 160, 128, 96, 80, 64, 48, 32, 16}) add(period, 1);
    return orders;
  }

  // Runs of rows that stand elsewhere as a whole; "" for more than some runs.
  std::string PiecesText(const std::vector<Place>& places) const {
    struct Run {
      std::size_t first, original;
      std::size_t last = 0;
    };
    std::vector<Run> runs;
    for (std::size_t k = 0; k < places.size(); ++k) {
      const auto offset = [&](std::size_t row, const Run& run) {
        return run.original + (row - run.first);
      };
      if (!runs.empty() && offset(places[k].stored, runs.back()) == places[k].original) continue;
      std::size_t first = places[k].stored;
      if (!runs.empty()) {  // the first row of the new run
        std::size_t low = places[k - 1].stored + 1;
        while (low < first) {
          const std::size_t middle = low + (first - low) / 2;
          const std::size_t back = places[k].stored - middle;
          const bool is_new = places[k].original >= back && Same(middle, places[k].original - back);
          if (is_new) {
            first = middle;
          } else {
            low = middle + 1;
          }
        }
        runs.back().last = first - 1;
      }
      runs.push_back({first, places[k].original - (places[k].stored - first)});
    }
    if (runs.size() > kMostPieces || (runs.size() < 2 && runs[0].original == 0)) return "";
    runs.back().last = std::min(rows_ - 1, rows_ - 1 - runs.back().original + runs.back().first);
    std::string text;
    for (const Run& run : runs) {
      text += (text.empty() ? "stored rows " : ", rows ") + RangeText(run.first, run.last) +
              (text.empty() ? " are the original's rows " : " its rows ") +
              RangeText(run.original, run.original + run.last - run.first);
    }
    return text;
  }

  // Another tensor of the original.
  std::string OtherTensorText(const OtherOriginals& others) const {
    if (!others) return "";
    const std::vector<std::size_t> samples = SampleRows(rows_, 6);
    for (const OtherOriginal& other : others()) {
      std::size_t missed = 0;
      for (const std::size_t row : samples) {
        const double cosine =
            directions_.Cosine(directions_.OfStored(row), directions_.OfOriginal(other.rows, row));
        missed += cosine > kSameDirection ? 0 : 1;
        if (missed > 1) break;
      }
      if (missed <= 1) return "it is the original's " + other.name;
    }
    return "";
  }

  // The original's columns as rows.
  std::string TransposeText() const {
    if (r_.parts != 1 || r_.rows != r_.cols) return "";
    const Matrix<float> x = original_(0, directions_.cols());
    const std::vector<std::size_t> samples = SampleRows(rows_, 6);
    std::size_t same = 0;
    for (const std::size_t row : samples) {
      std::vector<float> column(directions_.cols());
      for (std::size_t k = 0; k < column.size(); ++k) column[k] = x(k, row);
      directions_.Scale(column);
      same += directions_.Cosine(directions_.OfStored(row), column) > kSameDirection ? 1 : 0;
    }
    return same + 1 >= samples.size() ? "it is the transpose of the original" : "";
  }

  // Columns in another order, by whole columns of decoded values.
  std::string ColumnsText() const {
    const std::size_t rows = std::min(rows_, kColumnRows);
    if (rows < 32 || r_.cols < 4) return "";
    Matrix<float> y(rows, r_.cols);
    for (std::size_t row = 0; row < rows; ++row) {
      decoder_.Row(row, r_.codes, r_.order, {&y(row, 0), r_.cols});
    }
    const Matrix<float> x = original_(0, rows);
    const auto column = [&](const Matrix<float>& m, std::size_t col) {
      std::vector<double> values(rows);
      double sum = 0;
      for (std::size_t row = 0; row < rows; ++row) {
        const double value = static_cast<double>(m(row, col));
        values[row] = std::isfinite(value) ? value : 0;
        sum += values[row] * values[row];
      }
      const double length = std::sqrt(sum);
      for (double& value : values) value = length > 0 ? value / length : 0;
      return values;
    };
    std::vector<std::vector<double>> originals(r_.cols);
    ParallelFor(r_.cols, [&](std::size_t col) { originals[col] = column(x, col); });
    const std::vector<std::size_t> samples = SampleRows(r_.cols, kColumnSamples);
    std::vector<std::size_t> at(samples.size(), r_.cols);
    ParallelFor(samples.size(), [&](std::size_t k) {
      const std::vector<double> stored = column(y, samples[k]);
      double best = kSameDirection;
      for (std::size_t col = 0; col < r_.cols; ++col) {
        double cosine = 0;
        for (std::size_t row = 0; row < rows; ++row) cosine += stored[row] * originals[col][row];
        if (cosine > best) best = cosine, at[k] = col;
      }
    });
    std::size_t found = 0, moved = 0;
    std::string stored, original;
    for (std::size_t k = 0; k < samples.size(); ++k) {
      if (at[k] >= r_.cols) continue;
      ++found;
      if (at[k] == samples[k] || moved++ >= 4) continue;
      stored += (stored.empty() ? "" : ", ") + std::to_string(samples[k]);
      original += (original.empty() ? "" : ", ") + std::to_string(at[k]);
    }
    if (moved == 0 || 4 * found < 3 * samples.size()) return "";
    return "the columns are in another order: stored columns " + stored +
           " are the original's columns " + original;
  }

  // The original times a Hadamard matrix, piece by piece.
  std::string HadamardText() const {
    const std::vector<std::size_t> samples = SampleRows(rows_, 8);
    for (std::size_t n = 16; n <= 128; n *= 2) {
      if (directions_.cols() % n != 0) continue;
      std::size_t same = 0;
      for (const std::size_t row : samples) {
        Matrix<float> x = original_(row, 1);
        for (std::size_t begin = 0; begin < directions_.cols(); begin += n) {
          for (std::size_t step = 1; step < n; step *= 2) {
            for (std::size_t k = 0; k < n; ++k) {
              if ((k & step) != 0) continue;
              float &a = x(0, begin + k), &b = x(0, begin + k + step);
              const float sum = a + b, difference = a - b;
              a = sum, b = difference;
            }
          }
        }
        const std::span<float> turned(x.values.data(), directions_.cols());
        directions_.Scale(turned);
        same += directions_.Cosine(directions_.OfStored(row), turned) > kSameDirection ? 1 : 0;
      }
      if (same + 1 >= samples.size()) {
        return "it is the original under a Hadamard transform of " + std::to_string(n) + " columns";
      }
    }
    return "";
  }

  const Decoder& decoder_;
  const Reading& r_;
  const RowReader& original_;
  const std::size_t rows_;
  const Directions directions_;
};

}  // namespace

Directions::Directions(const Decoder& decoder, const Reading& reading, const RowReader& original)
    : decoder_(decoder), r_(reading), original_(original) {
  const std::size_t block = r_.block_rows == 0 ? r_.cols : r_.block_cols;
  piece_ = std::max<std::size_t>(1, std::min({block, r_.cols, std::size_t{128}}));
  cols_ = std::min(r_.cols, kComparedCols);
  if (cols_ > piece_) cols_ -= cols_ % piece_;
}

void Directions::Scale(std::span<float> values) const {
  for (std::size_t begin = 0; begin < values.size(); begin += piece_) {
    const auto piece = values.subspan(begin, std::min(piece_, values.size() - begin));
    double sum = 0;
    for (float& value : piece) {
      if (!std::isfinite(value)) value = 0;
      sum += static_cast<double>(value) * static_cast<double>(value);
    }
    const double length = std::sqrt(sum);
    if (!(length > 0)) continue;
    for (float& value : piece) value = static_cast<float>(static_cast<double>(value) / length);
  }
}

std::vector<float> Directions::OfStored(std::size_t row, std::span<const float> elements) const {
  const IeeeArithmetic ieee;
  std::vector<std::uint8_t> codes(r_.cols);
  decoder_.Codes(row, r_.codes, codes);
  std::vector<float> values(cols_);
  for (std::size_t col = 0; col < cols_; ++col) values[col] = elements[codes[col]];
  Scale(values);
  return values;
}

std::vector<float> Directions::OfStored(std::size_t row) const {
  std::array<float, 256> elements;
  for (std::size_t code = 0; code < 256; ++code) {
    elements[code] = decoder_.Element(static_cast<std::uint8_t>(code));
  }
  return OfStored(row, elements);
}

std::vector<float> Directions::OfOriginal(const RowReader& rows, std::size_t row) const {
  const IeeeArithmetic ieee;
  const Matrix<float> x = rows(row, 1);
  std::vector<float> values(x.values.begin(),
                            x.values.begin() + static_cast<std::ptrdiff_t>(cols_));
  Scale(values);
  return values;
}

double Directions::Cosine(std::span<const float> a, std::span<const float> b) const {
  double sum = 0;
  std::size_t pieces = 0;
  for (std::size_t begin = 0; begin < cols_; begin += piece_) {
    float cosine = 0, length = 0;
    for (std::size_t col = begin; col < std::min(begin + piece_, cols_); ++col) {
      cosine += a[col] * b[col];
      length += b[col] * b[col];
    }
    pieces += length > 0 ? 1 : 0;  // a piece of zeros has no direction
    sum += static_cast<double>(cosine);
  }
  return pieces == 0 ? 0 : sum / static_cast<double>(pieces);
}

std::vector<std::size_t> SampleRows(std::size_t rows, std::size_t count) {
  std::vector<std::size_t> samples;
  const std::size_t run = std::min(rows, count / 4);
  for (std::size_t row = 0; row < run; ++row) samples.push_back(row);
  const std::size_t others = std::min(rows - run, count - run);
  for (std::size_t k = 0; k < others; ++k) {
    samples.push_back(run + (2 * k + 1) * (rows - run) / (2 * others));
  }
  return samples;
}

std::vector<double> RowCosines(const Directions& directions, std::size_t rows) {
  const IeeeArithmetic ieee;
  std::vector<double> cosines;
  for (const std::size_t row : SampleRows(rows, 32)) {
    cosines.push_back(directions.Cosine(directions.OfStored(row), directions.OfOriginal(row)));
  }
  return cosines;
}

bool RowsInPlace(std::span<const double> cosines) {
  const IeeeArithmetic ieee;
  const auto same =
      std::count_if(cosines.begin(), cosines.end(), [](double c) { return c > kSameDirection; });
  return 10 * static_cast<std::size_t>(same) >= 9 * cosines.size();
}

std::string OtherNumbersText(std::span<const double> cosines, const Reading& reading) {
  const IeeeArithmetic ieee;
  const double due = LeastCosine(reading);
  const double mean =
      std::accumulate(cosines.begin(), cosines.end(), 0.0) / static_cast<double>(cosines.size());
  if (mean >= due) return "";
  return "its rows stand at their places, but are other numbers: their mean cosine with the "
         "original's is " +
         TextOf("%.3f", mean) + ", where rounding leaves more than " + TextOf("%.2f", due);
}

std::string PlacementText(const Decoder& decoder, const Reading& reading, const RowReader& original,
                          const OtherOriginals& others) {
  const IeeeArithmetic ieee;
  return Finder(decoder, reading, original).Text(others);
}

}  // namespace fp4lab
