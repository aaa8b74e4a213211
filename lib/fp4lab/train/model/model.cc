#include "fp4lab/train/model/model.h"

#include <algorithm>
#include <numeric>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/nn/embedding.h"
#include "fp4lab/nn/loss.h"
#include "fp4lab/nn/rmsnorm.h"
#include "fp4lab/nn/round_bf16.h"
#include "fp4lab/train/parts/parts.h"

namespace fp4lab {
namespace {

constexpr std::size_t kCacheLineFloats = 16;

void Multiply(float factor, MatrixView<float> x) {
  if (factor == 1.0f) return;
  ParallelFor(x.rows, [&](std::size_t r) {
    for (std::size_t c = 0; c < x.cols; ++c) x(r, c) *= factor;
  });
}

}  // namespace

Model::Model(const ModelConfig& config, const Recipe& recipe, std::span<const float> parameters,
             std::size_t max_sequences, std::span<float> amax_histories)
    : config_(config),
      layout_(MakeLayout(config)),
      parameters_(parameters),
      linears_(config, recipe, parameters, amax_histories),
      logit_multiplier_(LogitMultiplier(config)),
      parts_(PartsOf(config)) {
  Expects(parameters.size() == layout_.total, "Model: parameters of MakeLayout(config).total");
  for (const Part* part : parts_) runners_.push_back(part->make(config));
  SetRows(max_sequences * static_cast<std::size_t>(config.sequence));
}

Model::View Model::Take(std::size_t rows, std::size_t cols, std::size_t* used) {
  // No memory yet: the call that learns the size.
  const View view(memory_.empty() ? nullptr : memory_.data() + *used, rows, cols);
  *used += RoundUp(rows * cols, kCacheLineFloats);
  return view;
}

// Lays the views out for `rows` rows. The first call has the most rows and allocates the memory: it
// lays the views out twice, first to learn the size.
void Model::SetRows(std::size_t rows) {
  if (rows == rows_) return;
  const auto d = static_cast<std::size_t>(config_.d_model);
  std::size_t used = 0;
  const auto matrix = [&](std::size_t cols) { return Take(rows, cols, &used); };
  const auto matrices = [&](const std::vector<std::size_t>& columns) {
    std::vector<View> views;
    for (const std::size_t cols : columns) views.push_back(matrix(cols));
    return views;
  };
  const auto lay_out = [&] {
    used = 0;
    activations_.clear();
    for (const PlacedPart& placed : layout_.parts) {
      const View x = matrix(d);
      activations_.push_back({x, matrices(placed.part->activations(config_))});
    }
    last_ = matrix(d);
    final_norm_ = matrix(d);
    const View inverse_rms = matrix(1);
    final_inverse_rms_ = {inverse_rms.data, rows};
    d_residual_ = matrix(d);
    d_narrow_ = matrix(d);
    // Tensors that are never alive together share one place: the logits (until the backward pass
    // leaves the head) and the wide gradients of the parts.
    const std::size_t place = used;
    logits_ = matrix(static_cast<std::size_t>(config_.vocabulary));
    std::size_t end = used;
    wide_.clear();
    for (const Part* part : parts_) {
      used = place;
      wide_.push_back(matrices(part->gradients(config_)));
      end = std::max(end, used);
    }
    used = end;
  };
  if (rows_ == 0) {
    lay_out();
    memory_.resize(used);
  }
  lay_out();
  Expects(used <= memory_.size(), "Model: no more sequences than max_sequences");
  rows_ = rows;
}

PartUse Model::UseOf(const Pass& pass, std::size_t placed) {
  const PlacedPart& part = layout_.parts[placed];
  return {.pass = pass,
          .block = part.block,
          .linears = &linears_,
          .first_linear = part.first_linear,
          .gains = layout_.GainsOf(part),
          .balance = part.balance ? &layout_.balances[*part.balance] : nullptr,
          .activations = activations_[placed].kept};
}

void Model::Forward(const Pass& pass, std::span<const std::uint16_t> tokens) {
  const IeeeArithmetic ieee;
  SetRows(tokens.size());
  const ParameterSlice& e = layout_.embedding;
  const View first = activations_.front().x;
  Embedding({parameters_.data() + e.offset, e.rows, e.cols}, tokens, first);
  Inspect(pass, -1, "embedding.output", first);
  for (std::size_t p = 0; p < layout_.parts.size(); ++p) {
    const View out = p + 1 < layout_.parts.size() ? activations_[p + 1].x : last_;
    runners_[layout_.parts[p].index]->Forward(UseOf(pass, p), activations_[p].x, out);
  }
  const std::size_t head = linears_.Plan().Head();
  linears_.MakeNorm(pass, head, last_, linears_.Gain(layout_.final_gain), config_.norm_epsilon,
                    final_norm_, final_inverse_rms_, nullptr);
  Inspect(pass, -1, "final_norm.output", final_norm_);
  linears_.Run(pass, head, Write::kOverwrite, logits_);
  Multiply(logit_multiplier_, logits_);
  if (config_.logit_soft_cap > 0.0f) SoftCap(config_.logit_soft_cap, logits_);
  Inspect(pass, -1, "head.output", logits_);
}

double Model::Loss(std::span<const std::uint16_t> targets, std::span<double> row_loss) {
  const IeeeArithmetic ieee;
  return CrossEntropy(logits_, targets, row_loss);
}

double Model::BackwardHead(const Pass& pass, std::span<const std::uint16_t> tokens,
                           std::span<const std::uint16_t> targets, float loss_scale,
                           std::span<double> row_loss, std::span<float> gradients) {
  const std::size_t head = linears_.Plan().Head();
  const LossOptions options{config_.logit_soft_cap, config_.z_loss};
  const TeacherLoss teacher =
      pass.teacher == nullptr ? TeacherLoss{} : pass.teacher->LossOf(tokens);
  const LinearInput d_logits = linears_.MakeRounded(
      pass, head, Linears::PieceRows(logits_), logits_,
      [&](std::size_t first, std::size_t rows, bool bf16) {
        const View piece = logits_.Block(first, 0, rows, logits_.cols);
        TeacherLoss own = teacher;
        if (pass.teacher != nullptr) {
          own.logits = teacher.logits.Block(first, 0, rows, teacher.logits.cols);
          own.row_kl = teacher.row_kl.subspan(first, rows);
        }
        CrossEntropyGradient(piece, targets.subspan(first, rows), loss_scale, options, own,
                             row_loss.subspan(first, rows), piece);
        Multiply(logit_multiplier_, piece);
        return bf16 ? RoundBf16(piece, piece) : 0.0f;
      });
  Inspect(pass, -1, "head.output.gradient", logits_);
  linears_.RunBackward(pass, head, d_logits, d_narrow_, gradients);
  const ParameterSlice& gain = layout_.final_gain;
  RmsNormBackward(last_, linears_.Gain(gain), final_inverse_rms_, d_narrow_, Write::kOverwrite,
                  d_residual_, gradients.subspan(gain.offset, gain.size()));
  Inspect(pass, -1, "final_norm.input.gradient", d_residual_);
  return std::accumulate(row_loss.begin(), row_loss.end(), 0.0) /
         static_cast<double>(row_loss.size());
}

double Model::Backward(const Pass& pass, std::span<const std::uint16_t> tokens,
                       std::span<const std::uint16_t> targets, float loss_scale,
                       std::span<double> row_loss, std::span<float> gradients) {
  const IeeeArithmetic ieee;
  Expects(tokens.size() == rows_ && targets.size() == rows_ && gradients.size() == layout_.total,
          "Model::Backward: the tokens of the last Forward, all gradients");
  const double loss = BackwardHead(pass, tokens, targets, loss_scale, row_loss, gradients);
  for (std::size_t p = layout_.parts.size(); p-- > 0;) {
    const std::size_t part = layout_.parts[p].index;
    runners_[part]->Backward(UseOf(pass, p), activations_[p].x,
                             {d_residual_, d_narrow_, wide_[part], gradients, loss_scale});
  }
  const View d_embedding = GradientOf(gradients, layout_.embedding);
  EmbeddingBackward(tokens, d_residual_, d_embedding);
  Inspect(pass, -1, "embedding.weight.gradient", d_embedding);
  return loss;
}

}  // namespace fp4lab
