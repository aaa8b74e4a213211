#include "fp4lab/nn/loss.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "fp4lab/base/elementary.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/nn/lanes/row_chunks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp4lab/nn/loss.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "fp4lab/base/simd/reduce-inl.h"
#include "fp4lab/nn/lanes/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

HWY_INLINE double RowLoss(float sum, float target, float max) {
  return Log(sum) - (static_cast<double>(target) - static_cast<double>(max));
}

void LossRows(MatrixView<const float> logits, const std::uint16_t* targets, double* row_loss) {
  for (std::size_t r = 0; r < logits.rows; ++r) {
    const float* z = RowOf(logits, r);
    const float max = Max(logits.cols, z);
    const float sum = Sum(
        logits.cols,
        [max](auto v) HWY_ATTR {
          const ReduceTag d;
          return ExpNonPositive(d, hn::Sub(v, hn::Set(d, max)));
        },
        z);
    row_loss[r] = RowLoss(sum, z[targets[r]], max);
  }
}

// to[c] = exp((x[c] - max of x) i). Returns the sum of `to`.
HWY_INLINE float ExpOfRow(std::size_t n, const float* x, float max, float i, float* to) {
  ForElements(n, [=](auto d, std::size_t c) HWY_ATTR {
    const auto below = hn::Sub(hn::LoadU(d, x + c), hn::Set(d, max));
    hn::StoreU(ExpNonPositive(d, hn::Mul(below, hn::Set(d, i))), d, to + c);
  });
  return Sum(n, to);
}

// Adds a teacher's gradient of n logits z to `gradient`; p and q are room for n numbers each.
// Returns the row's KL(p || q).
HWY_INLINE double AddTeacherRow(std::size_t n, const float* z, const float* t, float scale,
                                const TeacherLoss& teacher, float* p, float* q, float* gradient) {
  const float i = 1.0f / teacher.temperature, max = Max(n, z), teacher_max = Max(n, t);
  const float q_sum = ExpOfRow(n, z, max, i, q), p_sum = ExpOfRow(n, t, teacher_max, i, p);
  const float sum = Sum(
      n,
      [max, teacher_max, i](auto of_p, auto of_z, auto of_t) HWY_ATTR {
        const ReduceTag d;
        const auto difference =
            hn::Sub(hn::Sub(of_t, hn::Set(d, teacher_max)), hn::Sub(of_z, hn::Set(d, max)));
        return hn::Mul(of_p, hn::Mul(difference, hn::Set(d, i)));
      },
      p, z, t);
  const float factor = scale * (teacher.share * teacher.temperature);
  const float of_q = factor * (1.0f / q_sum), of_p = factor * (1.0f / p_sum);
  ForElements(n, [=](auto d, std::size_t c) HWY_ATTR {
    const auto pulled = hn::Sub(hn::Mul(hn::LoadU(d, q + c), hn::Set(d, of_q)),
                                hn::Mul(hn::LoadU(d, p + c), hn::Set(d, of_p)));
    hn::StoreU(hn::Add(hn::LoadU(d, gradient + c), pulled), d, gradient + c);
  });
  return double{sum} / double{p_sum} - Log(p_sum) + Log(q_sum);
}

// `teacher` without logits: none.
void LossGradientRows(MatrixView<const float> logits, const std::uint16_t* targets,
                      float whole_scale, const LossOptions& options, const TeacherLoss& teacher,
                      double* row_loss, MatrixView<float> dlogits) {
  const bool has_teacher = teacher.logits.data != nullptr;
  const float scale = has_teacher ? whole_scale * (1.0f - teacher.share) : whole_scale;
  // The logits, in whose place the gradient may stand.
  std::vector<float> capped(options.soft_cap > 0 || has_teacher ? logits.cols : 0);
  std::vector<float> p(has_teacher ? logits.cols : 0), q(p.size());
  for (std::size_t r = 0; r < logits.rows; ++r) {
    const float* z = RowOf(logits, r);
    float* gradient = RowOf(dlogits, r);
    const float max = Max(logits.cols, z), target = z[targets[r]];
    if (!capped.empty()) std::copy_n(z, logits.cols, capped.data());
    ForElements(logits.cols, [=](auto d, std::size_t c) HWY_ATTR {
      hn::StoreU(ExpNonPositive(d, hn::Sub(hn::LoadU(d, z + c), hn::Set(d, max))), d, gradient + c);
    });
    const float sum = Sum(logits.cols, gradient);
    float factor = scale * (1.0f / sum);
    if (options.z_loss > 0) {
      const float lse = static_cast<float>(max + Log(sum));
      factor *= 1.0f + 2.0f * options.z_loss * lse;
    }
    ForElements(logits.cols, [=](auto d, std::size_t c) HWY_ATTR {
      hn::StoreU(hn::Mul(hn::LoadU(d, gradient + c), hn::Set(d, factor)), d, gradient + c);
    });
    gradient[targets[r]] -= scale;
    row_loss[r] = RowLoss(sum, target, max);
    if (has_teacher) {
      teacher.row_kl[r] = AddTeacherRow(logits.cols, capped.data(), RowOf(teacher.logits, r),
                                        whole_scale, teacher, p.data(), q.data(), gradient);
    }
    if (!(options.soft_cap > 0)) continue;
    const float* const y = capped.data();
    const float cap = options.soft_cap;
    ForElements(logits.cols, [=](auto d, std::size_t c) HWY_ATTR {
      const auto t = hn::Div(hn::LoadU(d, y + c), hn::Set(d, cap));
      const auto slope = hn::Sub(hn::Set(d, 1.0f), hn::Mul(t, t));
      hn::StoreU(hn::Mul(hn::LoadU(d, gradient + c), slope), d, gradient + c);
    });
  }
}

void SoftCapRows(float cap, MatrixView<float> logits) {
  for (std::size_t r = 0; r < logits.rows; ++r) {
    float* z = RowOf(logits, r);
    ForElements(logits.cols, [=](auto d, std::size_t c) HWY_ATTR {
      const auto one = hn::Set(d, 1.0f);
      const auto x = hn::Div(hn::LoadU(d, z + c), hn::Set(d, cap));
      const auto e = Exp(d, hn::Add(x, x));
      const auto t = hn::Sub(one, hn::Div(hn::Set(d, 2.0f), hn::Add(e, one)));
      hn::StoreU(hn::Mul(hn::Set(d, cap), t), d, z + c);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp4lab {
namespace {

HWY_EXPORT(LossRows);
HWY_EXPORT(LossGradientRows);
HWY_EXPORT(SoftCapRows);

void ExpectShapes(MatrixView<const float> logits, std::span<const std::uint16_t> targets,
                  std::span<double> row_loss) {
  Expects(HasShape(logits, targets.size(), logits.cols) && row_loss.size() == targets.size() &&
              logits.size() > 0,
          "logits (R, V), targets (R), row_loss (R), R and V > 0");
  Expects(
      std::all_of(targets.begin(), targets.end(), [&](std::uint16_t t) { return t < logits.cols; }),
      "targets below the vocabulary");
}

double Mean(std::span<const double> x) {
  double sum = 0;
  for (const double v : x) sum += v;
  return sum / static_cast<double>(x.size());
}

}  // namespace

double CrossEntropy(MatrixView<const float> logits, std::span<const std::uint16_t> targets,
                    std::span<double> row_loss) {
  const IeeeArithmetic ieee;
  ExpectShapes(logits, targets, row_loss);
  const auto kernel = HWY_DYNAMIC_DISPATCH(LossRows);
  ParallelRowChunks(logits.rows, logits.cols, [&](std::size_t r, std::size_t count) {
    kernel(RowsOf(logits, r, count), &targets[r], &row_loss[r]);
  });
  return Mean(row_loss);
}

double CrossEntropyGradient(MatrixView<const float> logits, std::span<const std::uint16_t> targets,
                            float scale, std::span<double> row_loss, MatrixView<float> dlogits) {
  const IeeeArithmetic ieee;
  return CrossEntropyGradient(logits, targets, scale, LossOptions{}, row_loss, dlogits);
}

double CrossEntropyGradient(MatrixView<const float> logits, std::span<const std::uint16_t> targets,
                            float scale, const LossOptions& options, std::span<double> row_loss,
                            MatrixView<float> dlogits) {
  const IeeeArithmetic ieee;
  return CrossEntropyGradient(logits, targets, scale, options, TeacherLoss{}, row_loss, dlogits);
}

double CrossEntropyGradient(MatrixView<const float> logits, std::span<const std::uint16_t> targets,
                            float scale, const LossOptions& options, const TeacherLoss& teacher,
                            std::span<double> row_loss, MatrixView<float> dlogits) {
  const IeeeArithmetic ieee;
  ExpectShapes(logits, targets, row_loss);
  Expects(HasShape(dlogits, logits.rows, logits.cols), "dlogits of the logits' shape");
  const bool has_teacher = teacher.logits.data != nullptr;
  Expects(!has_teacher || (HasShape(teacher.logits, logits.rows, logits.cols) &&
                           teacher.row_kl.size() == logits.rows && teacher.temperature > 0),
          "a teacher's logits (R, V) and row_kl (R), a temperature above 0");
  const auto kernel = HWY_DYNAMIC_DISPATCH(LossGradientRows);
  ParallelRowChunks(logits.rows, logits.cols, [&](std::size_t r, std::size_t count) {
    TeacherLoss own = teacher;
    if (has_teacher) {
      own.logits = RowsOf(teacher.logits, r, count);
      own.row_kl = teacher.row_kl.subspan(r, count);
    }
    kernel(RowsOf(logits, r, count), &targets[r], scale, options, own, &row_loss[r],
           RowsOf(dlogits, r, count));
  });
  return Mean(row_loss);
}

void SoftCap(float cap, MatrixView<float> logits) {
  const IeeeArithmetic ieee;
  Expects(cap > 0 && logits.col_stride == 1, "SoftCap: a cap above 0, unit column stride");
  const auto kernel = HWY_DYNAMIC_DISPATCH(SoftCapRows);
  ParallelRowChunks(logits.rows, logits.cols, [&](std::size_t r, std::size_t count) {
    kernel(cap, RowsOf(logits, r, count));
  });
}

}  // namespace fp4lab
#endif  // HWY_ONCE
