// Softmax cross-entropy of logits against target tokens, in nats, and what stands around it: the
// soft cap of logits and the z-loss.
#pragma once

#include <cstdint>
#include <span>

#include "fp4lab/base/matrix.h"

namespace fp4lab {

// logits (R, V), targets and row_loss (R). With m the row's maximum and l = sum_c exp(z_c - m)
// (base/simd/reduce.h; exp is 0 below 2^-126): row_loss = ln(l) - (z_target - m), in double.
// Returns the mean of row_loss: its sum in double in row order, divided by R.
double CrossEntropy(MatrixView<const float> logits, std::span<const std::uint16_t> targets,
                    std::span<double> row_loss);

// CrossEntropy, and the gradient: dlogits(r,c) = exp(z_c - m) (scale (1 / l)) - [c = target] scale.
// `scale` is 1 / R for the gradient of the mean, or 1 / (R * micro-batches) if the gradients of
// several micro-batches add up. dlogits may be logits.
double CrossEntropyGradient(MatrixView<const float> logits, std::span<const std::uint16_t> targets,
                            float scale, std::span<double> row_loss, MatrixView<float> dlogits);

struct LossOptions {
  float soft_cap = 0.0f;  // 0: none; the logits are results of SoftCap
  float z_loss = 0.0f;    // coefficient of the mean of (m + ln l)^2 (PaLM, arXiv 2204.02311)
};

// CrossEntropyGradient with the gradient of the z-loss, taken back through the soft cap: with
// lse = fl(m + ln(l)), in this order
//   d = exp(z_c - m) (scale (1 / l) (1 + 2 z_loss lse)) - [c = target] scale
//   dlogits = d (1 - t t), t = z_c / soft_cap
// row_loss and the result leave the z-loss out. With neither, CrossEntropyGradient's bits.
double CrossEntropyGradient(MatrixView<const float> logits, std::span<const std::uint16_t> targets,
                            float scale, const LossOptions& options, std::span<double> row_loss,
                            MatrixView<float> dlogits);

// Knowledge distillation (arXiv 1503.02531): with T = temperature, p = softmax(logits / T) of a
// teacher and q = softmax(z / T) of the logits that are trained, a row's loss is
//   (1 - share) cross-entropy + share T^2 KL(p || q)
// The z-loss belongs to the cross-entropy, so its share is 1 - share, too.
struct TeacherLoss {
  MatrixView<const float> logits;  // (R, V), unit column stride, behind the teacher's own soft cap
  float temperature = 1.0f;        // above 0
  float share = 1.0f;              // above 0, at most 1
  std::span<double> row_kl;        // (R): KL(p || q) in nats, a result
};

// The gradient above with a teacher: d of fl(scale (1 - share)) in place of `scale`, and then,
// before the soft cap, with i = fl(1 / T), m and n the maxima of z and of the teacher's row t, e_c
// = exp((z_c - m) i), f_c = exp((t_c - n) i) and g = fl(scale fl(share T)):
//   d = fl(d + fl(fl(e_c fl(g fl(1 / sum e))) - fl(f_c fl(g fl(1 / sum f)))))
// Sums have the order of base/simd/reduce.h; exp is 0 below 2^-126. row_kl is
//   sum_c f_c (((t_c - n) - (z_c - m)) i) / sum f - ln(sum f) + ln(sum e)
// with its first sum in binary32 and the rest in binary64, so that it may be below 0 by a rounding.
double CrossEntropyGradient(MatrixView<const float> logits, std::span<const std::uint16_t> targets,
                            float scale, const LossOptions& options, const TeacherLoss& teacher,
                            std::span<double> row_loss, MatrixView<float> dlogits);

// logits = cap tanh(logits / cap), in place (Gemma 2), tanh(x) = 1 - 2 / (exp(2 x) + 1). cap > 0.
void SoftCap(float cap, MatrixView<float> logits);

}  // namespace fp4lab
