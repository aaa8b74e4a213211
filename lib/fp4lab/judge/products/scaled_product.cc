#include "fp4lab/judge/products/scaled_product.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/dialect/tensor_scale_stage.h"
#include "fp4lab/exchange/stored.h"
#include "fp4lab/tensor/mma/mma_number.h"

namespace fp4lab {
namespace {

constexpr double kScaledUp = 1.0 + 0x1p-40;
constexpr float kScaledInf = std::numeric_limits<float>::infinity();

bool SameOutput(float x, float y) {
  return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y) || (x != x && y != y);
}

float ElementScale(const ScaledOperand& x, std::size_t row, std::size_t col) {
  return x.scales(row / x.height, col / x.group);
}

// The groups of the product: those of the operand with the narrower ones.
std::size_t ScaledGroupOf(const ScaledClaim& claim) {
  const std::size_t a = claim.a.group, b = claim.b.group, narrow = std::min(a, b);
  if (std::max(a, b) % narrow == 0 || std::max(a, b) >= claim.a.elements.cols) return narrow;
  throw Error("operands", "A has a scale for " + std::to_string(a) + " columns, B for " +
                              std::to_string(b) + ": one must be a multiple of the other");
}

void CheckScaledClaim(const ScaledClaim& claim) {
  const MmaOperand &a = claim.a.elements, &b = claim.b.elements;
  Expects(a.cols == b.cols && claim.d.rows == a.rows && claim.d.cols == b.rows,
          "a (M, K), b (N, K), d (M, N)");
  Expects(a.cols > 0 && std::isfinite(claim.alpha) && std::isfinite(claim.output_scale),
          "K of 1 or more, finite factors");
  ScaledGroupOf(claim);
}

MmaOperand ColumnsOf(const MmaOperand& x, std::size_t first, std::size_t count) {
  MmaOperand part{.rows = x.rows, .cols = count, .format = x.format};
  for (std::size_t r = 0; r < x.rows; ++r) {
    const auto row = x.Row(r).subspan(first, count);
    part.codes.insert(part.codes.end(), row.begin(), row.end());
  }
  return part;
}

float RoundedOutput(const std::optional<FormatId>& output, float v) {
  if (!output) return v;
  const Format& f = FormatOf(*output);
  const bool narrow = f.bits == 8;  // FP8 outputs saturate, wider ones overflow
  const std::uint32_t code =
      Encode(f, v, Rounding::kNearestEven, 0, narrow ? Overflow::kSaturate : Overflow::kSpecial);
  return Decode(f, code);
}

// The number at or below x, or at or above it, in binary32.
float OutwardFloat(double x, bool up) {
  if (x > std::numeric_limits<float>::max())
    return up ? kScaledInf : std::numeric_limits<float>::max();
  if (x < -std::numeric_limits<float>::max()) {
    return up ? -std::numeric_limits<float>::max() : -kScaledInf;
  }
  const auto near = static_cast<float>(x);
  if (up && static_cast<double>(near) < x) return std::nextafter(near, kScaledInf);
  if (!up && static_cast<double>(near) > x) return std::nextafter(near, -kScaledInf);
  return near;
}

float FinishedOutput(const ScaledClaim& claim, float y) {
  if (claim.alpha != 1.0f) y *= claim.alpha;
  if (claim.output_scale != 1.0f) y *= claim.output_scale;
  return RoundedOutput(claim.output, y);
}

class ScaledJudge {
 public:
  ScaledJudge(const ScaledClaim& claim, const Accumulation& under)
      : claim_(claim),
        model_(under.model),
        group_(ScaledGroupOf(claim)),
        a_(ExactValues(claim.a.elements)),
        b_(ExactValues(claim.b.elements)),
        a_powers_(Powers(claim.a.elements)),
        b_powers_(Powers(claim.b.elements)) {}

  // Fills in exact, error and bound of element (e->row, e->col); returns whether it is inside.
  bool Inside(GemmElement* e) const {
    double sum = 0, error = 0, magnitudes = 0, underflows = 0;
    const std::size_t depth = a_.cols, groups = DivideUp(depth, group_);
    for (std::size_t first = 0; first < depth; first += group_) {
      const std::size_t end = std::min(first + group_, depth);
      const double sa = ElementScale(claim_.a, e->row, first),
                   sb = ElementScale(claim_.b, e->col, first);
      SumFacts facts{.terms = end - first};
      double dot = 0;
      for (std::size_t k = first; k < end; ++k) {
        const double p = a_(e->row, k) * b_(e->col, k);
        dot += p;
        facts.magnitudes += std::abs(p);
        facts.largest_power =
            std::max(facts.largest_power, a_powers_(e->row, k) * b_powers_(e->col, k));
      }
      facts.magnitudes *= (1.0 + static_cast<double>(group_) * 0x1p-52) * kScaledUp;
      const double own = model_ == nullptr ? AnyOrderBound(facts) : TensorCoreBound(*model_, facts);
      const double scale = std::abs(sa * sb);
      sum += dot * sa * sb;
      error += scale * own;
      magnitudes += scale * (facts.magnitudes + own);
      underflows += 0x1p-149 * (std::abs(sb) + 2.0);
    }
    const double growth = std::expm1((static_cast<double>(groups) + 3.0) * 0x1p-23) * kScaledUp;
    const double slack = magnitudes * static_cast<double>(depth + 8) * 0x1p-51;  // of binary64
    const double y =
        (error + growth * magnitudes + underflows * (1.0 + growth) + slack) * kScaledUp;
    const double factor = static_cast<double>(claim_.alpha) * claim_.output_scale;
    const double exact = factor * sum;
    e->exact = static_cast<float>(exact);
    if (!std::isfinite(exact)) return SameOutput(e->got, e->want) || !std::isfinite(e->got);
    const double rounded = std::abs(factor) * (magnitudes + y) * 0x1p-22;
    e->bound = (std::abs(factor) * y + (factor == 1.0 ? 0.0 : rounded + 0x1p-147)) * kScaledUp;
    e->error = std::abs(static_cast<double>(e->got) - exact);
    // Intermediate numbers may overflow where the result does not.
    const bool overflows = !(magnitudes * kScaledUp + y < 0x1.fffffep127);
    if (!std::isfinite(e->got))
      return overflows || !std::isfinite(RoundedOutput(
                              claim_.output, OutwardFloat(std::abs(exact) + e->bound, true)));
    const float low = RoundedOutput(claim_.output, OutwardFloat(exact - e->bound, false));
    const float high = RoundedOutput(claim_.output, OutwardFloat(exact + e->bound, true));
    return low <= e->got && e->got <= high;
  }

 private:
  // The powers by which a tensor core aligns: 2^raw of every element.
  static Matrix<double> Powers(const MmaOperand& x) {
    Matrix<double> powers(x.rows, x.cols);
    for (std::size_t i = 0; i < powers.values.size(); ++i) {
      const MmaNumber n = ReadMmaNumber(x.format, x.codes[i]);
      powers.values[i] = n.significand == 0 ? 0.0 : std::ldexp(1.0, n.raw);
    }
    return powers;
  }

  const ScaledClaim& claim_;
  const TensorCoreModel* model_;
  std::size_t group_;
  Matrix<double> a_, b_, a_powers_, b_powers_;
};

struct ScaledCounts {
  std::size_t different = 0, outside = 0;
  Rectangle outside_in = {};
  GemmElement first_different = {}, first_outside = {};
};

ScaledCounts CountScaled(const ScaledClaim& claim, const Accumulation& under) {
  const Matrix<float> answer = ScaledProduct(claim, under);
  const ScaledJudge judge(claim, under);
  struct Row {
    std::size_t different = 0, outside = 0, first = 0, last = 0;
    GemmElement first_different = {}, first_outside = {};
  };
  std::vector<Row> rows(claim.d.rows);
  ParallelFor(claim.d.rows, [&](std::size_t m) {
    Row& row = rows[m];
    for (std::size_t n = 0; n < claim.d.cols; ++n) {
      GemmElement e{.row = m, .col = n, .got = claim.d(m, n), .want = answer(m, n)};
      if (SameOutput(e.got, e.want)) continue;
      const bool inside = judge.Inside(&e);
      if (row.different++ == 0) row.first_different = e;
      if (inside) continue;
      if (row.outside++ == 0) row.first_outside = e, row.first = n;
      row.last = n;
    }
  });
  ScaledCounts counts;
  std::size_t left = claim.d.cols, right = 0;
  for (std::size_t m = 0; m < rows.size(); ++m) {
    const Row& row = rows[m];
    if (row.different > 0 && counts.different == 0) counts.first_different = row.first_different;
    counts.different += row.different;
    if (row.outside == 0) continue;
    if (counts.outside == 0) {
      counts.first_outside = row.first_outside;
      counts.outside_in.row = m;
    }
    counts.outside += row.outside;
    left = std::min(left, row.first);
    right = std::max(right, row.last + 1);
    counts.outside_in.rows = m + 1 - counts.outside_in.row;
  }
  if (counts.outside > 0) {
    counts.outside_in.col = left;
    counts.outside_in.cols = right - left;
  }
  return counts;
}

// ---- Readings of scales

bool FillScales(Matrix<float>* scales, float value) {
  bool changed = false;
  for (float& s : scales->values) {
    changed = changed || s != value;
    s = value;
  }
  return changed;
}

bool InvertScales(Matrix<float>* scales) {
  bool changed = false;
  for (float& s : scales->values) {
    changed = changed || s != 1.0f;
    s = 1.0f / s;
  }
  return changed;
}

bool ReplaceScales(Matrix<float>* scales, Matrix<float> by) {
  const bool changed = by.values != scales->values;
  *scales = std::move(by);
  return changed;
}

// Each row's first scale for all of its columns.
bool FirstOfRow(Matrix<float>* scales) {
  Matrix<float> by = *scales;
  for (std::size_t r = 0; r < by.rows; ++r) {
    for (std::size_t c = 0; c < by.cols; ++c) by(r, c) = (*scales)(r, 0);
  }
  return ReplaceScales(scales, std::move(by));
}

bool FirstOfAll(Matrix<float>* scales) {
  return !scales->values.empty() && FillScales(scales, scales->values[0]);
}

// The scales in column-major order, read as row-major.
bool TransposedScales(Matrix<float>* scales) {
  Matrix<float> by = *scales;
  for (std::size_t i = 0; i < by.values.size(); ++i) {
    by.values[i] = (*scales)(i % scales->rows, i / scales->rows);
  }
  return ReplaceScales(scales, std::move(by));
}

bool ScalesBefore(Matrix<float>* scales) {
  Matrix<float> by = *scales;
  for (std::size_t r = 0; r < by.rows; ++r) {
    for (std::size_t c = 1; c < by.cols; ++c) by(r, c) = (*scales)(r, c - 1);
  }
  return ReplaceScales(scales, std::move(by));
}

bool RoundedToPowers(Matrix<float>* scales) {
  bool changed = false;
  for (float& s : scales->values) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(s);
    if (!(s > 0.0f) || (bits & 0x007FFFFFu) == 0 || bits >= 0x7F000000u) continue;
    s = std::bit_cast<float>((bits & 0x7F800000u) + 0x00800000u);
    changed = true;
  }
  return changed;
}

struct ScaledReadingRow {
  std::string_view name, what;
  bool (*apply)(ScaledReading&);
};
constexpr std::array kScaledReadings = {
    ScaledReadingRow{"output-scale-missing", "leaves out the scale of the output",
                     [](ScaledReading& r) { return std::exchange(r.output_scale, 1.0f) != 1.0f; }},
    ScaledReadingRow{"output-scale-inverted", "divides by the scale of the output",
                     [](ScaledReading& r) {
                       const float scale = r.output_scale;
                       r.output_scale = 1.0f / scale;
                       return scale != 1.0f && scale != 0.0f;
                     }},
    ScaledReadingRow{"a-scales-missing", "leaves out the scales of A",
                     [](ScaledReading& r) { return FillScales(&r.a.scales, 1.0f); }},
    ScaledReadingRow{"b-scales-missing", "leaves out the scales of B",
                     [](ScaledReading& r) { return FillScales(&r.b.scales, 1.0f); }},
    ScaledReadingRow{"scales-missing", "leaves out the scales of A and B",
                     [](ScaledReading& r) {
                       const bool a = FillScales(&r.a.scales, 1.0f),
                                  b = FillScales(&r.b.scales, 1.0f);
                       return a && b;
                     }},
    ScaledReadingRow{"a-scales-inverted", "divides by the scales of A",
                     [](ScaledReading& r) { return InvertScales(&r.a.scales); }},
    ScaledReadingRow{"b-scales-inverted", "divides by the scales of B",
                     [](ScaledReading& r) { return InvertScales(&r.b.scales); }},
    ScaledReadingRow{"scales-inverted", "divides by the scales of A and B",
                     [](ScaledReading& r) {
                       const bool a = InvertScales(&r.a.scales), b = InvertScales(&r.b.scales);
                       return a && b;
                     }},
    ScaledReadingRow{"a-scale-of-first-block",
                     "scales all of a row of A by its first block's scale",
                     [](ScaledReading& r) { return FirstOfRow(&r.a.scales); }},
    ScaledReadingRow{"b-scale-of-first-block",
                     "scales all of a row of B by its first block's scale",
                     [](ScaledReading& r) { return FirstOfRow(&r.b.scales); }},
    ScaledReadingRow{"a-first-scale", "takes the first scale of A for all of A",
                     [](ScaledReading& r) { return FirstOfAll(&r.a.scales); }},
    ScaledReadingRow{"b-first-scale", "takes the first scale of B for all of B",
                     [](ScaledReading& r) { return FirstOfAll(&r.b.scales); }},
    ScaledReadingRow{"a-scale-of-block-before", "takes the scale of the block of A before",
                     [](ScaledReading& r) { return ScalesBefore(&r.a.scales); }},
    ScaledReadingRow{"b-scale-of-block-before", "takes the scale of the block of B before",
                     [](ScaledReading& r) { return ScalesBefore(&r.b.scales); }},
    ScaledReadingRow{"a-scales-transposed", "reads the scales of A in column-major order",
                     [](ScaledReading& r) { return TransposedScales(&r.a.scales); }},
    ScaledReadingRow{"b-scales-transposed", "reads the scales of B in column-major order",
                     [](ScaledReading& r) { return TransposedScales(&r.b.scales); }},
    ScaledReadingRow{"a-scales-power-of-two", "rounds the scales of A up to powers of two",
                     [](ScaledReading& r) { return RoundedToPowers(&r.a.scales); }},
    ScaledReadingRow{"b-scales-power-of-two", "rounds the scales of B up to powers of two",
                     [](ScaledReading& r) { return RoundedToPowers(&r.b.scales); }},
};

// The factor of the elements of row `row` of a matrix that is one block.
float RowFactor(const StoredMatrix& m, std::size_t row) {
  if (m.tensor_scale.empty()) return 1.0f;
  const float v = m.tensor_scale[m.tensor_scale.size() == 1 ? 0 : row];
  switch (m.layout.tensor_scale) {
    case TensorScaleConvention::kAmax:
      return TensorFp8Scale(m.element, v).decode;
    case TensorScaleConvention::kDivisor:
      return 1.0f / v;
    case TensorScaleConvention::kMultiplier:
    case TensorScaleConvention::kNone:
      break;
  }
  return v;
}

}  // namespace

bool IsScaledFp8(const StoredMatrix& m) {
  if (FormatOf(m.element).bits != 8) return false;
  if (m.block_rows == 0) return m.tensor_scale.size() > 1;
  return m.layout.scale_type != ScaleType::kByte || m.block_rows > 1;
}

ScaledOperand MakeScaledOperand(const StoredMatrix& stored, std::string_view where) {
  const IeeeArithmetic ieee;
  const bool is_fp8 = FormatOf(stored.element).bits == 8;
  if (!is_fp8 && (FormatOf(stored.element).bits > 8 || stored.block_rows == 0)) {
    throw Error(where, "holds " + std::string(Named(stored.element).name) +
                           ": products of scaled rows and blocks are of FP8, or of FP4 in blocks");
  }
  StorageLayout plain{.codes = CodeOrder::kBytes};
  plain.tensor_scale = stored.layout.tensor_scale;
  const StoredMatrix m = Convert(stored, plain, 1.0f, where);
  ScaledOperand x{.elements = MakeMmaOperand(FormatOf(m.element), {m.codes.data(), m.rows, m.cols},
                                             {}, 0, 0, {}),
                  .scales = {}};
  if (m.block_rows == 0) {
    x.group = std::max<std::size_t>(m.cols, 1);
    x.scales = Matrix<float>(m.rows, 1);
    for (std::size_t r = 0; r < m.rows; ++r) x.scales(r, 0) = RowFactor(m, r);
    return x;
  }
  if (is_fp8 && !m.tensor_scale.empty()) {
    throw Error(where, "has a tensor scale above its block scales: products of FP8 have one kind");
  }
  x.group = static_cast<std::size_t>(m.block_cols);
  x.height = static_cast<std::size_t>(m.block_rows);
  x.scales = Matrix<float>(DivideUp(m.rows, x.height), DivideUp(m.cols, x.group));
  for (std::size_t i = 0; i < x.scales.values.size(); ++i) {
    const ScaleType type = m.layout.scale_type;
    x.scales.values[i] = ScaleValueOf(type, m.scale, ScaleCodeAt(m.scales, i, type));
  }
  return x;
}

ScaledOperand WithScaleOne(const MmaOperand& elements) {
  return {.elements = elements,
          .group = std::max<std::size_t>(elements.cols, 1),
          .height = std::max<std::size_t>(elements.rows, 1),
          .scales = Matrix<float>(1, 1, 1.0f)};
}

std::optional<FormatId> ScaledOutputNamed(std::string_view name, std::string_view where) {
  if (name == "f32") return std::nullopt;
  for (const FormatId id : {FormatId::kBF16, FormatId::kFP16, FormatId::kE4M3, FormatId::kE5M2}) {
    if (Named(id).short_name == name || (id == FormatId::kFP16 && name == "f16")) return id;
  }
  throw Error(where, "is not a type of a product; f32, bf16, f16, e4m3 and e5m2 are");
}

Matrix<float> ScaledProduct(const ScaledClaim& claim, const Accumulation& under) {
  const IeeeArithmetic ieee;
  CheckScaledClaim(claim);
  const MmaOperand &a = claim.a.elements, &b = claim.b.elements;
  const std::size_t group = ScaledGroupOf(claim);
  Matrix<float> y(a.rows, b.rows), dot(a.rows, b.rows);
  for (std::size_t first = 0; first < a.cols; first += group) {
    const std::size_t count = std::min(group, a.cols - first);
    GemmAs(under, ColumnsOf(a, first, count), ColumnsOf(b, first, count), {}, dot.View());
    ParallelFor(a.rows, [&](std::size_t m) {
      const float sa = ElementScale(claim.a, m, first);
      for (std::size_t n = 0; n < b.rows; ++n) {
        const float scaled = dot(m, n) * sa * ElementScale(claim.b, n, first);
        y(m, n) = group >= a.cols ? scaled : y(m, n) + scaled;
      }
    });
  }
  for (float& v : y.values) v = FinishedOutput(claim, v);
  return y;
}

namespace {

// The median of got / right over the elements of which both are finite and not 0; 0 without any.
double MedianFactor(const ScaledClaim& claim, const Accumulation& under) {
  ScaledClaim plain = claim;
  plain.output.reset();
  const Matrix<float> right = ScaledProduct(plain, under);
  std::vector<double> factors;
  for (std::size_t i = 0; i < right.values.size(); ++i) {
    const float got = claim.d(i / right.cols, i % right.cols);
    if (got == 0.0f || !std::isfinite(got) || !std::isfinite(right.values[i])) continue;
    if (right.values[i] != 0.0f) factors.push_back(got / static_cast<double>(right.values[i]));
  }
  if (factors.empty()) return 0.0;
  const auto middle = factors.begin() + static_cast<std::ptrdiff_t>(factors.size() / 2);
  std::nth_element(factors.begin(), middle, factors.end());
  return *middle;
}

// The median factor, or the power of two next to it, which the rounding to FP8 hides.
std::optional<ScaledJudgement::OtherScale> BetterScale(const ScaledClaim& claim,
                                                       const Accumulation& under,
                                                       std::size_t outside) {
  const double factor = MedianFactor(claim, under);
  if (!(factor > 0.0)) return std::nullopt;
  std::optional<ScaledJudgement::OtherScale> best;
  for (const double f : {std::exp2(std::round(std::log2(factor))), factor}) {
    ScaledClaim other = claim;
    other.output_scale = static_cast<float>(claim.output_scale * f);
    if (!std::isfinite(other.output_scale) || other.output_scale == claim.output_scale) continue;
    const std::size_t left = CountScaled(other, under).outside;
    if (left < (best ? best->outside : outside / 2 + 1)) best = {other.output_scale, left};
  }
  return best;
}

}  // namespace

ScaledJudgement JudgeScaled(const ScaledClaim& claim, const Accumulation& under) {
  const IeeeArithmetic ieee;
  CheckScaledClaim(claim);
  const ScaledCounts counts = CountScaled(claim, under);
  ScaledJudgement j{.different = counts.different,
                    .outside = counts.outside,
                    .outside_in = counts.outside_in,
                    .first_different = counts.first_different,
                    .first_outside = counts.first_outside};
  j.verdict = counts.different == 0 ? GemmVerdict::kEqual
              : counts.outside == 0 ? GemmVerdict::kInside
                                    : GemmVerdict::kOutside;
  if (counts.outside == 0) return j;
  for (const ScaledReadingRow& reading : kScaledReadings) {
    const std::optional<ScaledReading> read = ReadScaled(claim, reading.name);
    if (!read) continue;
    ScaledClaim other{.a = read->a,
                      .b = read->b,
                      .d = claim.d,
                      .alpha = claim.alpha,
                      .output = claim.output,
                      .output_scale = read->output_scale};
    const ScaledCounts under_it = CountScaled(other, under);
    if (under_it.outside > 0) continue;
    j.causes.push_back({reading.name, reading.what, under_it.different == 0});
  }
  const bool any_equal = std::any_of(j.causes.begin(), j.causes.end(),
                                     [](const ScaledJudgement::Cause& c) { return c.equal; });
  if (any_equal) std::erase_if(j.causes, [](const ScaledJudgement::Cause& c) { return !c.equal; });
  if (j.causes.empty()) j.better = BetterScale(claim, under, counts.outside);
  return j;
}

std::vector<std::string_view> ScaledReadingNames() {
  std::vector<std::string_view> names;
  for (const ScaledReadingRow& reading : kScaledReadings) names.push_back(reading.name);
  return names;
}

std::optional<ScaledReading> ReadScaled(const ScaledClaim& claim, std::string_view name) {
  const IeeeArithmetic ieee;
  for (const ScaledReadingRow& reading : kScaledReadings) {
    if (reading.name != name) continue;
    ScaledReading read{.a = claim.a, .b = claim.b, .output_scale = claim.output_scale};
    if (!reading.apply(read)) return std::nullopt;
    return read;
  }
  return std::nullopt;
}

}  // namespace fp4lab
