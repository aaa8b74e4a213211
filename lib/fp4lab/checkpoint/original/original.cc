#include "fp4lab/checkpoint/original/original.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <utility>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/checkpoint/decoder.h"
#include "fp4lab/checkpoint/original/error_sums.h"
#include "fp4lab/checkpoint/original/random_rounding.h"
#include "fp4lab/checkpoint/original/scale_fit.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/quantize/quantize.h"

namespace fp4lab {
namespace {

constexpr std::size_t kDecodedRows = 64;               // rows that are decoded at a time
constexpr std::size_t kSample = std::size_t{1} << 21;  // elements on which other readings are tried

ErrorSums SumsOf(std::span<const float> x, std::span<const float> y) {
  ErrorSums s;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!std::isfinite(x[i]) || !std::isfinite(y[i])) continue;
    s.Add(x[i], y[i]);
  }
  return s;
}

// Where the tensor scale of a dialect stands.
enum class NumberPlace : std::uint8_t {
  kStored,    // in the stored number
  kOriginal,  // scales and codes are those of the original's amax, whatever number is stored
  kFolded,    // multiplied into the scales, which are numbers; none is stored
};

class OriginalComparer {
 public:
  OriginalComparer(const StoredBytes& bytes, const Reading& r, TensorScaleConvention convention,
                   std::span<const float> numbers, const RowReader& original,
                   const OtherOriginals& others, const OtherScales& other_scales)
      : bytes_(bytes),
        r_(r),
        convention_(convention),
        numbers_(numbers),
        original_(original),
        others_(others),
        other_scales_(other_scales),
        decoder_(bytes, r) {}

  OriginalVerdict Compare() {
    rows_ = r_.parts * r_.rows;
    Stated();
    Others();
    Dialects();
    Notes();
    Causes();
    return std::move(v_);
  }

 private:
  // The rows that share a tensor scale.
  std::size_t GroupRows() const {
    return std::max<std::size_t>(1, rows_ / std::max<std::size_t>(1, numbers_.size()));
  }
  double NumberOf(std::size_t row) const {
    if (numbers_.empty()) return 1;
    return MultiplierOf(convention_, numbers_[std::min(numbers_.size() - 1, row / GroupRows())],
                        r_);
  }

  // ErrorSums of `count` rows from `first`, one a row, under a reading; the tensor scale is left
  // out.
  std::vector<ErrorSums> RowSums(const Matrix<float>& x, std::size_t first, CodeOrder codes,
                                 ScaleOrder order) const {
    std::vector<ErrorSums> sums(x.rows);
    ParallelFor(x.rows, [&](std::size_t i) {
      std::vector<float> y(r_.cols);
      decoder_.Row(first + i, codes, order, y);
      sums[i] = SumsOf({x.values.data() + i * x.cols, x.cols}, y);
    });
    return sums;
  }

  void Stated() {
    ReadingVerdict v{.codes = r_.codes, .scales = r_.order, .as_stated = true};
    ErrorSums plain, scaled;
    row_sums_.reserve(rows_);
    for (std::size_t first = 0; first < rows_; first += kDecodedRows) {
      const Matrix<float> x = original_(first, std::min(kDecodedRows, rows_ - first));
      for (const float value : x.values) {
        if (std::isfinite(value)) amax_ = std::max(amax_, std::fabs(value));
      }
      const std::vector<ErrorSums> sums = RowSums(x, first, r_.codes, r_.order);
      for (std::size_t i = 0; i < sums.size(); ++i) {
        plain.Add(sums[i]);
        const double f = NumberOf(first + i);
        scaled.Add({sums[i].xx, sums[i].xy * f, sums[i].yy * f * f});
        row_sums_.push_back(sums[i]);
        CountNans(x, i, first + i);
      }
    }
    total_ = plain;
    v.sqnr_db = scaled.Sqnr(1);
    v.best_sqnr_db = scaled.Sqnr(scaled.Best());
    v.factor = scaled.Best() != 0 ? 1 / scaled.Best() : 0;
    v_.readings.push_back(v);
  }

  // Counts the blocks of row i of x whose scale is NaN, and those of them whose scale would be
  // beyond the largest of its format.
  void CountNans(const Matrix<float>& x, std::size_t i, std::size_t row) {
    if (r_.numbers || r_.block_rows != 1 || r_.scale != FormatId::kE4M3) return;
    const double most = static_cast<double>(MaxFinite(r_.scale)) *
                        static_cast<double>(MaxFinite(r_.element)) * NumberOf(row);
    for (std::size_t begin = 0; begin < r_.cols; begin += r_.block_cols) {
      const float s = decoder_.Scale(row / r_.rows, row % r_.rows, begin / r_.block_cols, r_.order);
      if (!std::isnan(s)) continue;
      ++nans_;
      float amax = 0;
      for (std::size_t col = begin; col < std::min(begin + r_.block_cols, r_.cols); ++col) {
        if (std::isfinite(x(i, col))) amax = std::max(amax, std::fabs(x(i, col)));
      }
      nans_beyond_ += static_cast<double>(amax) > most ? 1 : 0;
    }
  }

  // The other orders of nibbles and scales, on the first rows.
  void Others() {
    const std::size_t rows = std::min(
        rows_, std::max<std::size_t>(kDecodedRows, kSample / std::max<std::size_t>(1, r_.cols)));
    std::vector<CodeOrder> orders = {r_.codes};
    if (r_.codes != CodeOrder::kBytes && r_.codes != CodeOrder::kDense6) {
      for (const CodeOrder o :
           {CodeOrder::kLowFirst, CodeOrder::kHighFirst, CodeOrder::kSplitHalves}) {
        if (o != r_.codes) orders.push_back(o);
      }
    }
    std::vector<ScaleOrder> scales = {r_.order};
    const bool tiles = !r_.numbers && r_.block_rows == 1 && r_.scale_rows % 128 == 0 &&
                       r_.scale_cols % 4 == 0 && r_.stored_rows == r_.scale_rows &&
                       r_.stored_cols == r_.scale_cols;
    const bool padded = r_.stored_rows != r_.scale_rows || r_.stored_cols != r_.scale_cols;
    const bool whole_tiles = r_.stored_rows % 128 == 0 && r_.stored_cols % 4 == 0 && !r_.numbers;
    if (tiles || (padded && whole_tiles)) {
      for (const ScaleOrder o : {ScaleOrder::kLinear, ScaleOrder::k128x4}) {
        if (o != r_.order) scales.push_back(o);
      }
    }
    const Matrix<float> x = original_(0, rows);
    for (const CodeOrder codes : orders) {
      for (const ScaleOrder order : scales) {
        if (codes == r_.codes && order == r_.order) continue;
        ErrorSums scaled;
        const std::vector<ErrorSums> sums = RowSums(x, 0, codes, order);
        for (std::size_t i = 0; i < sums.size(); ++i) {
          const double f = NumberOf(i);
          scaled.Add({sums[i].xx, sums[i].xy * f, sums[i].yy * f * f});
        }
        v_.readings.push_back({codes, order, false, scaled.Sqnr(1), scaled.Sqnr(scaled.Best()),
                               scaled.Best() != 0 ? 1 / scaled.Best() : 0});
      }
    }
  }

  bool IsRow() const {
    return r_.block_rows == 1 && r_.block_cols == r_.cols && FormatOf(r_.element).bits == 8;
  }

  bool Fits(const Dialect& d, NumberPlace place = NumberPlace::kStored) const {
    const bool one = d.block_rows == 0;
    if (d.element != r_.element || IsStochastic(d) || IsApproximate(d) || TakesRandomBits(d)) {
      return false;
    }
    if (d.row_scaled) return one && IsRow();
    if (one || r_.block_rows == 0) return one && r_.block_rows == 0 && r_.parts == 1;
    if (static_cast<std::size_t>(d.block_rows) != r_.block_rows ||
        static_cast<std::size_t>(d.block_cols) != r_.block_cols) {
      return false;
    }
    const bool number = place == NumberPlace::kFolded || !numbers_.empty();
    return (r_.numbers || d.scale == r_.scale) && HasTensorScale(d) == number;
  }

  // The table, and FP8 in blocks with scales in binary32, which no row of it has.
  std::vector<Dialect> Candidates() const {
    std::vector<Dialect> candidates;
    for (const Dialect& d : fp4lab::Dialects()) {
      if (Fits(d)) candidates.push_back(d);
    }
    const bool blocks = r_.block_rows > 0 && r_.block_cols <= 1024 && r_.block_rows <= 1024;
    if (!r_.numbers || FormatOf(r_.element).bits != 8 || !blocks || !numbers_.empty()) {
      return candidates;
    }
    Dialect d{.name = "binary32 scales t = b / largest, v = x * (1 / t)"};
    d.element = r_.element;
    d.block_rows = static_cast<int>(r_.block_rows);
    d.block_cols = static_cast<int>(r_.block_cols);
    d.tensor_scale = TensorScaleRule::kNone;
    d.block_scale = BlockScale::kNoTensorScale;
    d.scale_encoding = ScaleEncoding::kBinary32;
    candidates.push_back(d);
    d.name = "binary32 scales t = b / largest, v = x / t";
    d.factor = Factor::kDivideByScale;
    candidates.push_back(d);
    return candidates;
  }

  // The codes and scales of each dialect that fits, for the first rows; those of the nearest one
  // for all rows, if they are equal there.
  void Dialects() {
    if (r_.codes == CodeOrder::kDense6) return;
    if (numbers_.size() > 1 && rows_ % numbers_.size() != 0) return;
    const std::size_t count = std::min(GroupRows(), kDecodedRows * 4);
    const Matrix<float> x = original_(0, count);
    std::size_t most = 0;
    const Dialect* best = nullptr;
    std::vector<const Dialect*> alive;  // every code so far is theirs
    const std::vector<Dialect> candidates = Candidates();
    for (const Dialect& d : candidates) {
      const std::size_t equal = Equal(d, x, 0, NumberPlace::kStored);
      if (equal == x.values.size()) alive.push_back(&d);
      if (best != nullptr && equal <= most) continue;
      most = equal;
      best = &d;
    }
    if (best == nullptr) return;
    v_.nearest = best->name;
    v_.share_of_codes = static_cast<double>(most) / static_cast<double>(x.values.size());
    DialectOptions own;
    if (HasTensorScale(*best) && !best->row_scaled) own.amax = {amax_};
    const Quantized q = QuantizeAs(*best, x.View(), own);
    v_.expected_db = SumsOf(x.values, DequantizeAs(*best, q).values).Sqnr(1);
    Confirm(NumberPlace::kStored, &alive);
    if (!alive.empty()) v_.dialect = v_.nearest = alive.front()->name;
  }

  // Removes the dialects that some row refutes.
  void Confirm(NumberPlace place, std::vector<const Dialect*>* alive) const {
    std::size_t strips = 0;
    for (std::size_t group = 0; group < rows_; group += GroupRows()) {
      for (std::size_t first = group; first < group + GroupRows(); first += kDecodedRows * 4) {
        if (alive->empty()) return;
        if (++strips > 8 && alive->size() > 4) alive->resize(4);  // equal so far: enough of them
        const std::size_t rows = std::min(kDecodedRows * 4, group + GroupRows() - first);
        const Matrix<float> more = original_(first, rows);
        std::erase_if(*alive, [&](const Dialect* d) {
          return Equal(*d, more, first, place) != more.values.size();
        });
      }
    }
  }

  // The first dialect of the table that gives every byte with its tensor scale in another place.
  const Dialect* EqualWith(NumberPlace place) const {
    const Matrix<float> x = original_(0, std::min(rows_, kDecodedRows * 4));
    std::vector<const Dialect*> alive;
    for (const Dialect& d : fp4lab::Dialects()) {
      if (Fits(d, place) && HasTensorScale(d) && !d.row_scaled && d.block_rows == 1 &&
          Equal(d, x, 0, place) == x.values.size()) {
        alive.push_back(&d);
      }
    }
    Confirm(place, &alive);
    return alive.empty() ? nullptr : alive.front();
  }

  // Where no dialect gives every byte: the tensor scale in another place, or random rounding.
  void Notes() {
    if (!v_.dialect.empty() || r_.codes == CodeOrder::kDense6) return;
    if (r_.numbers && numbers_.empty()) {
      if (const Dialect* d = EqualWith(NumberPlace::kFolded)) {
        v_.dialect = v_.nearest = d->name;
        v_.note = "with the tensor scale multiplied into the scales";
        return;
      }
    }
    if (numbers_.size() == 1) {
      if (const Dialect* d = EqualWith(NumberPlace::kOriginal)) {
        v_.nearest = d->name;
        v_.share_of_codes = 1;
        v_.note = "codes and scales are those of the original's amax; the stored tensor scale is " +
                  NumberText(NumberOfAmax(*d, amax_, convention_));
        return;
      }
    }
    v_.note = RandomRoundingText(decoder_, r_, convention_, numbers_, amax_, original_);
  }

  // The stored number beside the right one, and how the one becomes the other.
  std::string NumberText(float right) const {
    const float stored = numbers_[0];
    const std::pair<FormatId, const char*> narrow[] = {{FormatId::kBF16, "BF16"},
                                                       {FormatId::kFP16, "FP16"}};
    for (const auto& [format, name] : narrow) {
      if (stored != Decode(format, Encode(format, right))) continue;
      return ShortestText(stored) + ", which is " + ShortestText(right) + " rounded to " + name;
    }
    return ShortestText(stored) + ", not " + ShortestText(right);
  }

  // The number of elements whose code and whose block's scale are those of the dialect under the
  // stored tensor scale.
  std::size_t Equal(const Dialect& d, const Matrix<float>& x, std::size_t first,
                    NumberPlace place) const {
    DialectOptions options;
    if (HasTensorScale(d) && !d.row_scaled) {
      options.amax = {amax_};
      if (!numbers_.empty() && place == NumberPlace::kStored) {
        const std::size_t index = std::min(numbers_.size() - 1, first / GroupRows());
        options.amax = {AmaxOfNumber(d, numbers_[index], convention_)};
      }
    }
    const Quantized q = QuantizeAs(d, x.View(), options);
    std::vector<std::size_t> rows(x.rows);
    ParallelFor(x.rows, [&](std::size_t i) { rows[i] = EqualInRow(d, q, first, i, place); });
    std::size_t equal = 0;
    for (const std::size_t n : rows) equal += n;
    return equal;
  }

  // The scale that a dialect stores for a block of row `i` of q.
  float ScaleOf(const Dialect& d, const Quantized& q, std::size_t i, std::size_t block) const {
    if (d.block_rows == 0) {
      return NumberOfAmax(d, q.amax[d.row_scaled ? i : 0], TensorScaleConvention::kMultiplier);
    }
    const std::size_t at = i / r_.block_rows * q.scale_cols + block;
    return q.scale_values.empty() ? Decode(d.scale, q.scales[at]) : q.scale_values[at];
  }

  std::size_t EqualInRow(const Dialect& d, const Quantized& q, std::size_t first, std::size_t i,
                         NumberPlace place) const {
    std::vector<std::uint8_t> codes(q.cols);
    decoder_.Codes(first + i, r_.codes, codes);
    const std::size_t width = r_.block_rows == 0 ? r_.cols : r_.block_cols;
    std::size_t equal = 0;
    for (std::size_t begin = 0; begin < q.cols; begin += width) {
      const std::size_t row = first + i, block = begin / width;
      float want = ScaleOf(d, q, i, block);
      if (place == NumberPlace::kFolded) {
        want =
            decoder_.Stored(want * NumberOfAmax(d, q.amax[0], TensorScaleConvention::kMultiplier));
      }
      const float stored = decoder_.Scale(row / r_.rows, row % r_.rows, block, r_.order);
      if (stored != want && !(std::isnan(stored) && std::isnan(want))) continue;
      for (std::size_t col = begin; col < std::min(begin + width, q.cols); ++col) {
        equal += codes[col] == q.codes[i * q.cols + col] ? 1 : 0;
      }
    }
    return equal;
  }

  // Rows that share a factor between the stored values and the original.
  struct Run {
    std::size_t first, last;
    ErrorSums sums;
  };

  // Whether the right number of every run is one of the stored numbers, for as many runs as
  // numbers.
  bool NumbersMoved(const std::vector<Run>& runs) const {
    if (runs.size() != numbers_.size()) return false;
    return std::all_of(runs.begin(), runs.end(), [&](const Run& run) {
      const double right = NumberOf(run.first) * run.sums.Best();
      return std::any_of(numbers_.begin(), numbers_.end(), [&](float n) {
        return std::fabs(MultiplierOf(convention_, n, r_) / right - 1) < 0.03;
      });
    });
  }

  // Rows in groups whose best factors differ: parts with a tensor scale of their own.
  std::string PartsText() const {
    // The factor of 512 elements is known to some percent.
    const std::size_t groups =
        std::clamp<std::size_t>(rows_ * r_.cols / 512, 1, std::min<std::size_t>(rows_, 64));
    std::vector<Run> runs;
    for (std::size_t g = 0; g < groups; ++g) {
      const std::size_t first = g * rows_ / groups, last = (g + 1) * rows_ / groups - 1;
      ErrorSums sums;
      for (std::size_t row = first; row <= last; ++row) {
        const double f = NumberOf(row);
        sums.Add({row_sums_[row].xx, row_sums_[row].xy * f, row_sums_[row].yy * f * f});
      }
      if (!(sums.yy > 0)) continue;
      const bool same = !runs.empty() && std::fabs(runs.back().sums.Best() / sums.Best() - 1) < 0.1;
      if (same) {
        runs.back().last = last;
        runs.back().sums.Add(sums);
      } else {
        runs.push_back({first, last, sums});
      }
    }
    if (runs.size() < 2 || runs.size() > 8) return "";
    std::string text;
    for (const Run& run : runs) {
      const double k = 1 / run.sums.Best();
      if (run.sums.Sqnr(run.sums.Best()) < 12) return "";  // its scales are wrong as well
      text += (text.empty() ? "rows " : "; rows ") + std::to_string(run.first) + ".." +
              std::to_string(run.last) +
              (std::fabs(k - 1) < 0.02 ? " are right"
                                       : " are " + TextOf("%.6g", k) + " times the original");
    }
    return text + (NumbersMoved(runs) ? ": the tensor scales of other parts"
                                      : ": parts with tensor scales of their own");
  }

  // Why values without a tensor scale may be a power of two times the original; "" for others.
  std::string OneFormatText(double factor) const {
    if (!(factor > 0) || !numbers_.empty()) return "";
    if (!r_.numbers && r_.scale == FormatId::kE4M3 && r_.block_rows == 1) {
      return ": a tensor scale of " + TextOf("%.6g", 1 / factor) + " is missing";
    }
    const double exponent = std::log2(factor), whole = std::round(exponent);
    if (whole == 0 || std::fabs(exponent - whole) > 0.05) return "";
    if (!r_.numbers && r_.scale == FormatId::kE8M0 && std::fabs(whole) < 127) {
      return ": every scale byte is " + std::to_string(static_cast<int>(std::fabs(whole))) +
             " too " + (whole > 0 ? "large" : "small");
    }
    if (FormatOf(r_.element).bits != 8 || std::fabs(whole) != 1) return "";
    return whole > 0
               ? ", as of E4M3 FNUZ (AMD), whose values are half as large: the bytes are read as "
                 "E4M3, or the scales were doubled for another reader"
               : ": the scales are half as large as the bytes need, as for E4M3 bytes that are "
                 "taken for FNUZ (AMD)";
  }

  std::string FactorText(double factor) const {
    const std::string times = "the values are " + TextOf("%.6g", factor) + " times the original";
    if (std::fabs(factor + 1) < 0.02) return times + ": every sign is inverted";
    if (numbers_.size() != 1) return times + OneFormatText(factor);
    const double m = MultiplierOf(convention_, numbers_[0], r_);
    const auto near = [&](double other) { return std::fabs(factor / other - 1) < 0.01; };
    if (near(m)) return times + ": the scales hold the tensor scale already";
    if (near(m * m)) return times + ": the tensor scale is the other of multiplier and divisor";
    return times + ": the tensor scale is that of another tensor";
  }

  // Scales that overflowed to NaN in a cast that does not clamp.
  std::string NanText() const {
    const float number = numbers_.size() == 1 ? numbers_[0] : 0;
    return std::to_string(nans_) +
           " blocks have the scale NaN: theirs are beyond 448 under the "
           "stored tensor scale " +
           ShortestText(number) +
           " and were cast to E4M3 without a clamp; the amax of the original is " +
           ShortestText(amax_);
  }

  void Causes() {
    if (nans_ > 0 && nans_ == nans_beyond_ && numbers_.size() == 1) {
      v_.cause = NanText();
      return;
    }
    const ReadingVerdict& stated = v_.readings.front();
    const auto best = std::max_element(v_.readings.begin(), v_.readings.end(),
                                       [](const ReadingVerdict& a, const ReadingVerdict& b) {
                                         return a.best_sqnr_db < b.best_sqnr_db;
                                       });
    if (best->best_sqnr_db > stated.best_sqnr_db + 6 && best->best_sqnr_db > 6) {
      v_.cause = "read with codes " + std::string(Name(best->codes)) + " and scales " +
                 std::string(Named(best->scales).name) + " the SQNR is " +
                 TextOf("%.2f dB", best->best_sqnr_db) + ", as stated " +
                 TextOf("%.2f dB", stated.sqnr_db);
      return;
    }
    // Stochastic rounding costs up to 5 dB.
    const double good = v_.nearest.empty() ? 8 : v_.expected_db - 6;
    const bool off = stated.sqnr_db < good || stated.best_sqnr_db > stated.sqnr_db + 1;
    if (!off) return;
    v_.cause = PartsText();
    if (!v_.cause.empty()) return;
    v_.cause = ClippedText();
    if (!v_.cause.empty()) return;
    // One factor is the cause where it leaves the error of the rounding.
    const bool factor = stated.best_sqnr_db > stated.sqnr_db + 1 && stated.best_sqnr_db > 6;
    if (factor && stated.best_sqnr_db >= (v_.nearest.empty() ? good : v_.expected_db - 2)) {
      v_.cause = FactorText(stated.factor);
      return;
    }
    v_.cause = ElsewhereText();
    if (!v_.cause.empty()) return;
    if (stated.best_sqnr_db < 6) {
      v_.cause = "no reading of the bytes is near the original";
    } else if (!v_.nearest.empty() && stated.sqnr_db < v_.expected_db - 6) {
      v_.cause = "the error is " + TextOf("%.2f dB", v_.expected_db - stated.sqnr_db) +
                 " above that of " + v_.nearest;
    } else if (factor) {
      v_.cause = FactorText(stated.factor);
    }
  }

  // Scales that saturate, since the stored tensor scale is that of a smaller amax.
  std::string ClippedText() const {
    if (r_.numbers || numbers_.size() != 1 || r_.block_rows == 0) return "";
    const double amax = MultiplierOf(convention_, numbers_[0], r_) *
                        static_cast<double>(MaxFinite(r_.scale)) *
                        static_cast<double>(MaxFinite(r_.element));
    if (!(amax < 0.95 * static_cast<double>(amax_))) return "";
    std::size_t saturated = 0, all = 0;
    for (const std::size_t row : SampleRows(rows_, 256)) {
      for (std::size_t block = 0; block < r_.scale_cols; ++block, ++all) {
        const float s = decoder_.Scale(row / r_.rows, row % r_.rows, block, r_.order);
        saturated += s == MaxFinite(r_.scale) ? 1 : 0;
      }
    }
    if (saturated * 20 < all) return "";
    return TextOf("%.3g %%", 100 * static_cast<double>(saturated) / static_cast<double>(all)) +
           " of the scales are " + ShortestText(MaxFinite(r_.scale)) +
           ", the largest: the tensor scale is that of the amax " + TextOf("%.6g", amax) +
           ", and the original's is " + ShortestText(amax_);
  }

  // Codes of another format, at other places, or under scales that do not fit them.
  std::string ElsewhereText() const {
    const std::string element = ElementText(decoder_, r_, original_);
    if (!element.empty()) return element;
    const std::vector<double> cosines = RowCosines(Directions(decoder_, r_, original_), rows_);
    if (RowsInPlace(cosines)) {
      const std::string scales = ScaleFitText(bytes_, decoder_, r_, convention_, numbers_,
                                              original_, cosines, other_scales_);
      return scales.empty() ? OtherNumbersText(cosines, r_) : scales;
    }
    return PlacementText(decoder_, r_, original_, others_);
  }

  const StoredBytes& bytes_;
  const Reading& r_;
  const TensorScaleConvention convention_;
  const std::span<const float> numbers_;
  const RowReader& original_;
  const OtherOriginals& others_;
  const OtherScales& other_scales_;
  const Decoder decoder_;
  std::size_t rows_ = 0;
  float amax_ = 0;
  std::size_t nans_ = 0, nans_beyond_ = 0;  // blocks
  std::vector<ErrorSums> row_sums_;
  ErrorSums total_;
  OriginalVerdict v_;
};

}  // namespace

OriginalVerdict CompareWithOriginal(const StoredBytes& bytes, const Reading& reading,
                                    TensorScaleConvention convention,
                                    std::span<const float> numbers, const RowReader& original,
                                    const OtherOriginals& others, const OtherScales& scales) {
  const IeeeArithmetic ieee;
  if (reading.codes == CodeOrder::kDense6 || reading.rows == 0 || reading.cols == 0) {
    OriginalVerdict verdict;
    verdict.problem = "6-bit codes without gaps and empty matrices are not compared";
    return verdict;
  }
  return OriginalComparer(bytes, reading, convention, numbers, original, others, scales).Compare();
}

}  // namespace fp4lab
