#include "fp4lab/judge/products/gemm.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <span>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/tensor/exact_sum.h"
#include "fp4lab/tensor/mma/mma_number.h"

namespace fp4lab {
namespace {

constexpr double kUp = 1.0 + 0x1p-40;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool SameValue(float x, float y) {
  return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y) || (x != x && y != y);
}

// The powers by which a model aligns: 2^raw of every element with its scale; of the scale alone for
// groups.
Matrix<double> Powers(const MmaOperand& x, bool groups) {
  Matrix<double> powers(x.rows, x.cols);
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) {
      const MmaNumber n = ReadMmaNumber(x.format, x.codes[r * x.cols + c]);
      int raw = groups ? 0 : n.raw;
      if (x.IsScaled()) {
        const std::size_t group = c / static_cast<std::size_t>(x.group);
        raw += ReadMmaScale(x.scale_format, x.ScaleRow(r)[group]).raw;
      }
      powers(r, c) = n.significand == 0 && !groups ? 0.0 : std::ldexp(1.0, raw);
    }
  }
  return powers;
}

struct OutputType {
  double relative, half_grid, overflow;  // |v| >= overflow may round to infinity
};

OutputType TypeOf(GemmOutput output) {
  switch (output) {
    case GemmOutput::kFp32:
      return {0, 0, 0x1.fffffep127};
    case GemmOutput::kBf16:
      return {0x1p-8, 0x1p-134, 0x1.fep127};
    case GemmOutput::kFp16:
      return {0x1p-11, 0x1p-25, 65504};
  }
  return {0, 0, 0};
}

class Judge {
 public:
  Judge(const GemmClaim& claim, const Accumulation& under)
      : claim_(claim), model_(under.model), a_(ExactValues(claim.a)), b_(ExactValues(claim.b)) {
    const std::optional<MmaOperands> operands = OperandsFor(under, claim.a, claim.b);
    Expects(operands.has_value(), "operands that the accumulation takes");
    const bool groups = model_ != nullptr && model_->scheme == MmaScheme::kScaledGroups;
    a_powers_ = Powers(operands->a, groups);
    b_powers_ = Powers(operands->b, groups);
  }

  std::string_view BoundName() const { return model_ == nullptr ? "any-order" : "tensor-core"; }

  // Fills in exact, error and bound of element (e->row, e->col); returns whether it is inside. The
  // caller fills in got and want.
  bool Inside(GemmElement* e) const {
    const Facts facts = FactsOf(e->row, e->col);
    const double added = claim_.HasC() ? double{claim_.beta} * claim_.c(e->row, e->col) : 0.0;
    if (!std::isfinite(facts.sum) || !std::isfinite(added)) {
      // NaN and infinities have one answer each.
      e->exact = static_cast<float>(claim_.alpha * facts.sum + added);
      FindSpecial(e);
      return SameValue(e->got, e->exact);
    }
    const double bound = model_ == nullptr ? AnyOrderBound(facts.sum_facts)
                                           : TensorCoreBound(*model_, facts.sum_facts);
    const double alpha = std::abs(static_cast<double>(claim_.alpha));
    const OutputType type = TypeOf(claim_.output);
    const double scaled = alpha * bound * kUp;
    const double largest = (alpha * facts.sum_facts.magnitudes + scaled + std::abs(added)) * kUp;
    const double once = claim_.HasC() ? 0x1.01p-23 : claim_.alpha == 1.0f ? 0.0 : 0x1p-24;
    const double relative = (once + type.relative + once * type.relative) * kUp;
    const double grid = (once > 0 ? 0x1p-150 : 0.0) * kUp + type.half_grid;
    e->bound = (scaled + relative * largest + grid) * kUp;
    ExactSum error = ScaledSum(e->row, e->col);
    e->exact = error.ToFloat();
    if (!std::isfinite(e->got)) {
      e->error = kInfinity;
      const bool sum_overflows = !(facts.sum_facts.magnitudes + bound < LargestSum());
      return sum_overflows || !(largest + e->bound < type.overflow);
    }
    error.Add(-static_cast<double>(e->got));
    e->error = error.MagnitudeUp();
    return e->error <= e->bound;
  }

 private:
  struct Facts {
    SumFacts sum_facts;
    double sum;  // in binary64, to detect special values
  };

  Facts FactsOf(std::size_t m, std::size_t n) const {
    Facts f{{.terms = a_.cols}, 0};
    for (std::size_t k = 0; k < a_.cols; ++k) {
      const double p = a_(m, k) * b_(n, k);
      f.sum += p;
      f.sum_facts.magnitudes += std::abs(p);
      f.sum_facts.largest_power =
          std::max(f.sum_facts.largest_power, a_powers_(m, k) * b_powers_(n, k));
    }
    f.sum_facts.magnitudes *= (1.0 + static_cast<double>(a_.cols) * 0x1p-52) * kUp;
    return f;
  }

  // Fills in the first operand that is not finite.
  void FindSpecial(GemmElement* e) const {
    for (std::size_t k = 0; k < a_.cols; ++k) {
      const bool in_a = !std::isfinite(a_(e->row, k));
      if (!in_a && std::isfinite(b_(e->col, k))) continue;
      e->special_in = in_a ? 'A' : 'B';
      e->special_k = k;
      return;
    }
    if (claim_.HasC()) e->special_in = 'C';
  }

  // The largest finite number of the accumulator.
  double LargestSum() const {
    return model_ != nullptr && model_->output == MmaOutput::kNearest16 ? 65504.0 : 0x1.fffffep127;
  }

  // alpha * S + beta * c, exactly: a product of two scaled elements has at most 29 bits.
  ExactSum ScaledSum(std::size_t m, std::size_t n) const {
    ExactSum sum;
    const double alpha = claim_.alpha;
    for (std::size_t k = 0; k < a_.cols; ++k) sum.Add(alpha * (a_(m, k) * b_(n, k)));
    if (claim_.HasC()) sum.Add(double{claim_.beta} * claim_.c(m, n));
    return sum;
  }

  const GemmClaim& claim_;
  const TensorCoreModel* model_;
  Matrix<double> a_, b_, a_powers_, b_powers_;
};

Matrix<float> Answer(const GemmClaim& claim, const Accumulation& under, const OpenChoices& open) {
  Matrix<float> c(claim.d.rows, claim.d.cols);
  const GemmOutput output = claim.HasC() ? GemmOutput::kFp32 : claim.output;
  GemmAs(under, claim.a, claim.b, {.alpha = claim.alpha, .output = output, .open = open}, c.View());
  for (std::size_t i = 0; claim.HasC() && i < c.values.size(); ++i) {
    const float added = claim.beta * claim.c(i / c.cols, i % c.cols);
    c.values[i] = FinishProduct(c.values[i] + added, {.output = claim.output});
  }
  return c;
}

std::size_t Differences(MatrixView<const float> x, const Matrix<float>& y) {
  std::size_t different = 0;
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) different += !SameValue(x(r, c), y(r, c));
  }
  return different;
}

// Finds out whether the readings differ, and which of them give d.
void TryReadings(const GemmClaim& claim, const Accumulation& under, const Matrix<float>& answer,
                 GemmJudgement* j) {
  if (under.model == nullptr || under.model->scheme != MmaScheme::kScaledGroups) return;
  for (const bool cancelled : {true, false}) {
    for (const bool zero : {false, true}) {
      const OpenChoices open{.cancelled_group_counts = cancelled, .zero_group_counts = zero};
      const Matrix<float> other = Answer(claim, under, open);
      j->readings_differ |= Differences(answer.View(), other) > 0;
      if (Differences(claim.d, other) == 0) j->readings.push_back(open);
    }
  }
}

// Judges every element against the bound, rows in parallel.
void JudgeElements(const GemmClaim& claim, const Accumulation& under, const Matrix<float>& answer,
                   GemmJudgement* j) {
  const Judge judge(claim, under);
  j->bound = judge.BoundName();
  struct RowResult {
    std::size_t outside = 0, first = 0, end = 0;  // of the columns outside
    GemmElement worst;
    double ratio = -1;
  };
  std::vector<RowResult> rows(claim.d.rows);
  ParallelFor(claim.d.rows, [&](std::size_t m) {
    for (std::size_t n = 0; n < claim.d.cols; ++n) {
      GemmElement e{.row = m, .col = n, .got = claim.d(m, n), .want = answer(m, n)};
      const bool inside = judge.Inside(&e);
      const double ratio = !inside       ? kInfinity
                           : e.bound > 0 ? std::min(e.error / e.bound, 1.0)
                                         : 0.0;
      if (ratio > rows[m].ratio) rows[m].worst = e, rows[m].ratio = ratio;
      if (inside) continue;
      if (rows[m].outside++ == 0) rows[m].first = n;
      rows[m].end = n + 1;
    }
  });
  double worst = -1;
  Rectangle& in = j->outside_in;
  std::size_t left = claim.d.cols, right = 0;
  for (std::size_t m = 0; m < rows.size(); ++m) {
    const RowResult& row = rows[m];
    if (row.outside > 0) {
      if (in.rows == 0) in.row = m;
      in.rows = m + 1 - in.row;
      left = std::min(left, row.first);
      right = std::max(right, row.end);
      in.col = left;
      in.cols = right - left;
    }
    j->outside += row.outside;
    if (row.ratio > worst) j->worst = row.worst, worst = row.ratio;
  }
}

void FindFirst(const GemmClaim& claim, const Matrix<float>& answer, GemmJudgement* j) {
  for (std::size_t r = 0; r < claim.d.rows; ++r) {
    for (std::size_t c = 0; c < claim.d.cols; ++c) {
      if (SameValue(claim.d(r, c), answer(r, c))) continue;
      j->first_different = {.row = r, .col = c, .got = claim.d(r, c), .want = answer(r, c)};
      return;
    }
  }
}

void ExpectClaim(const GemmClaim& claim) {
  Expects(
      claim.a.cols == claim.b.cols && claim.d.rows == claim.a.rows && claim.d.cols == claim.b.rows,
      "a (M, K), b (N, K), d (M, N)");
  Expects(std::isfinite(claim.alpha) && std::isfinite(claim.beta), "a finite alpha and beta");
  Expects(!claim.HasC() || (claim.c.rows == claim.d.rows && claim.c.cols == claim.d.cols),
          "c (M, N)");
}

}  // namespace

std::string_view Name(GemmVerdict verdict) {
  switch (verdict) {
    case GemmVerdict::kEqual:
      return "equal";
    case GemmVerdict::kUndetermined:
      return "undetermined";
    case GemmVerdict::kInside:
      return "inside";
    case GemmVerdict::kOutside:
      return "outside";
  }
  return "";
}

GemmJudgement JudgeGemm(const GemmClaim& claim, const Accumulation& under) {
  const IeeeArithmetic ieee;
  ExpectClaim(claim);
  GemmJudgement j;
  const Matrix<float> answer = Answer(claim, under, {});
  j.different = Differences(claim.d, answer);
  TryReadings(claim, under, answer, &j);
  FindFirst(claim, answer, &j);
  JudgeElements(claim, under, answer, &j);
  if (j.readings_differ && !j.readings.empty()) {
    j.verdict = GemmVerdict::kUndetermined;
  } else if (j.different == 0) {
    j.verdict = GemmVerdict::kEqual;
  } else {
    j.verdict = j.outside == 0 ? GemmVerdict::kInside : GemmVerdict::kOutside;
  }
  return j;
}

std::vector<AccumulationMatch> IdentifyAccumulation(const GemmClaim& claim) {
  const IeeeArithmetic ieee;
  ExpectClaim(claim);
  std::vector<AccumulationMatch> matches;
  for (const Accumulation& accumulation : Accumulations()) {
    if (!WhyNot(accumulation, claim.a, claim.b).empty()) continue;
    matches.push_back({&accumulation, Differences(claim.d, Answer(claim, accumulation, {}))});
  }
  return matches;
}

}  // namespace fp4lab
