// The decoder's forward pass in float64, built from the scalar definitions of
// nn/reference.h. Tests compare gradients with its finite differences. Each
// part of a model has a row in kDoubleParts.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/nn/reference.h"
#include "fp4lab/nn/router.h"
#include "fp4lab/train/config.h"
#include "fp4lab/train/model/shapes.h"

namespace fp4lab {

// The weights and gains of a part in one block, in the order in which the part
// states them.
struct DoublePart {
  const ModelConfig& config;
  int block = 0;
  double* added_loss = nullptr;  // to which the part adds its own loss
  std::vector<MatrixView<const double>> weights;
  std::vector<std::span<const double>> gains;
};

inline Matrix<double> DoubleNorm(const ModelConfig& config, const Matrix<double>& x,
                                 std::span<const double> gain) {
  Matrix<double> y(x.rows, x.cols);
  std::vector<double> inverse_rms(x.rows);
  reference::RmsNorm<double>(x.View(), gain, double{config.norm_epsilon}, y.View(), inverse_rms);
  return y;
}

inline Matrix<double> DoubleLinear(const Matrix<double>& x, MatrixView<const double> w) {
  Matrix<double> y(x.rows, w.rows);
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t o = 0; o < w.rows; ++o) {
      for (std::size_t i = 0; i < w.cols; ++i) y(r, o) += x(r, i) * w(o, i);
    }
  }
  return y;
}

inline bool IsEveryNth(int n, int block) { return n > 0 && (block + 1) % n == 0; }

// Rotates x (rows, heads of 2 half) in place, unless the block has no rotary positions.
inline void DoubleRope(const DoublePart& part, std::size_t half, MatrixView<double> x) {
  const ModelConfig& c = part.config;
  if (IsEveryNth(c.no_rope_every, part.block)) return;
  const auto length = static_cast<std::size_t>(c.sequence);
  Matrix<double> cos(length, half), sin(length, half);
  for (std::size_t t = 0; t < length; ++t) {
    for (std::size_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(t) *
          std::pow(double{c.rope_theta}, -static_cast<double>(i) / static_cast<double>(half));
      cos(t, i) = std::cos(angle);
      sin(t, i) = std::sin(angle);
    }
  }
  reference::Rope<double>(cos.View(), sin.View(), 1.0, x);
}

inline AttentionShape DoubleShape(const DoublePart& part, std::size_t rows, std::size_t head_dim) {
  const ModelConfig& c = part.config;
  const auto length = static_cast<std::size_t>(c.sequence);
  AttentionShape shape{.batch = rows / length,
                       .sequence = length,
                       .heads = static_cast<std::size_t>(c.heads),
                       .kv_heads = static_cast<std::size_t>(c.heads),
                       .head_dim = head_dim};
  if (!IsEveryNth(c.full_attention_every, part.block)) {
    shape.window = static_cast<std::size_t>(c.window);
  }
  if (c.mup.base_d_model > 0) {
    shape.scale =
        static_cast<float>(std::sqrt(c.mup.base_head_dim) / static_cast<double>(head_dim));
  }
  return shape;
}

// The result of attention's part, which is added to x.
inline Matrix<double> DoubleAttention(const DoublePart& part, const Matrix<double>& x) {
  const ModelConfig& c = part.config;
  Matrix<double> qkv = DoubleLinear(DoubleNorm(c, x, part.gains[0]), part.weights[0]);
  const std::size_t d = QueryWidth(c), kv = KvWidth(c), half = HeadDim(c) / 2;
  const MatrixView<double> q = qkv.View().Block(0, 0, x.rows, d),
                           k = qkv.View().Block(0, d, x.rows, kv),
                           v = qkv.View().Block(0, d + kv, x.rows, kv);
  if (c.qk_norm) {
    for (const auto& [heads, gain] : {std::pair{q, part.gains[1]}, std::pair{k, part.gains[2]}}) {
      for (std::size_t first = 0; first < heads.cols; first += 2 * half) {
        const MatrixView<double> head = heads.Block(0, first, x.rows, 2 * half);
        std::vector<double> inverse_rms(x.rows);
        reference::RmsNorm<double>(head, gain, double{c.norm_epsilon}, head, inverse_rms);
      }
    }
  }
  DoubleRope(part, half, q);
  DoubleRope(part, half, k);
  AttentionShape shape = DoubleShape(part, x.rows, HeadDim(c));
  shape.kv_heads = KvHeads(c);
  std::vector<double> statistics(shape.StatisticsSize());
  Matrix<double> out(x.rows, d);
  reference::Attention<double>(shape, q, k, v, out.View(), statistics);
  return DoubleLinear(out, part.weights[1]);
}

// The result of multi-head latent attention.
inline Matrix<double> DoubleMla(const DoublePart& part, const Matrix<double>& x) {
  const ModelConfig& c = part.config;
  const auto size = [](int n) { return static_cast<std::size_t>(n); };
  const std::size_t heads = size(c.heads), nope = size(c.mla.qk_nope_head_dim),
                    rope = size(c.mla.qk_rope_head_dim), value = size(c.mla.v_head_dim),
                    latent = size(c.mla.kv_lora_rank), head = nope + rope;
  const Matrix<double> n = DoubleNorm(c, x, part.gains[0]);
  std::size_t next = 0;
  Matrix<double> q = DoubleLinear(n, part.weights[next++]);
  if (c.mla.q_lora_rank > 0) {
    q = DoubleLinear(DoubleNorm(c, q, part.gains[2]), part.weights[next++]);
  }
  const Matrix<double> compressed = DoubleLinear(n, part.weights[next++]);
  Matrix<double> c_kv(x.rows, latent), positions(x.rows, rope), k(x.rows, heads * head),
      v(x.rows, heads * value), out(x.rows, heads * value);
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t i = 0; i < latent; ++i) c_kv(r, i) = compressed(r, i);
    for (std::size_t i = 0; i < rope; ++i) positions(r, i) = compressed(r, latent + i);
  }
  DoubleRope(part, rope / 2, positions.View());
  const Matrix<double> kv = DoubleLinear(DoubleNorm(c, c_kv, part.gains[1]), part.weights[next++]);
  for (std::size_t h = 0; h < heads; ++h) {
    DoubleRope(part, rope / 2, q.View().Block(0, h * head + nope, x.rows, rope));
    for (std::size_t r = 0; r < x.rows; ++r) {
      for (std::size_t i = 0; i < nope; ++i) k(r, h * head + i) = kv(r, h * nope + i);
      for (std::size_t i = 0; i < rope; ++i) k(r, h * head + nope + i) = positions(r, i);
      for (std::size_t i = 0; i < value; ++i) {
        v(r, h * value + i) = kv(r, heads * nope + h * value + i);
      }
    }
  }
  AttentionShape shape = DoubleShape(part, x.rows, head);
  shape.value_dim = value;
  std::vector<double> statistics(shape.StatisticsSize());
  reference::Attention<double>(shape, q.View(), k.View(), v.View(), out.View(), statistics);
  return DoubleLinear(out, part.weights[next]);
}

// down(activation(up(x))).
inline Matrix<double> DoubleUpDown(const ModelConfig& c, const Matrix<double>& x,
                                   MatrixView<const double> up_weight,
                                   MatrixView<const double> down) {
  const Matrix<double> up = DoubleLinear(x, up_weight);
  const std::size_t f = down.cols;
  Matrix<double> h(x.rows, f);
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t i = 0; i < f; ++i) {
      switch (c.activation) {
        case Activation::kSquaredRelu:
          h(r, i) = reference::SquaredRelu(up(r, i));
          break;
        case Activation::kGelu:
          h(r, i) = reference::Gelu(up(r, i));
          break;
        case Activation::kSwiglu:
          h(r, i) = reference::Swiglu(up(r, i), up(r, f + i));
          break;
      }
    }
  }
  return DoubleLinear(h, down);
}

inline Matrix<double> DoubleMlp(const DoublePart& part, const Matrix<double>& x) {
  return DoubleUpDown(part.config, DoubleNorm(part.config, x, part.gains[0]), part.weights[0],
                      part.weights[1]);
}

inline Matrix<double> DoubleMoe(const DoublePart& part, const Matrix<double>& x) {
  const ModelConfig& c = part.config;
  const auto experts = static_cast<std::size_t>(c.moe.experts),
             top_k = static_cast<std::size_t>(c.moe.top_k);
  const Matrix<double> n = DoubleNorm(c, x, part.gains[0]);
  Matrix<double> scores = DoubleLinear(n, part.weights[0]), out(x.rows, x.cols);
  const bool shared = c.moe.shared_experts > 0, softmax = c.moe.score == RouterScore::kSoftmax;
  if (shared) out = DoubleUpDown(c, n, part.weights[1], part.weights[2]);
  const std::size_t first = shared ? 3 : 1;
  std::vector<Matrix<double>> results;
  for (std::size_t e = 0; e < experts; ++e) {
    results.push_back(
        DoubleUpDown(c, n, part.weights[first + 2 * e], part.weights[first + 2 * e + 1]));
  }
  std::vector<double> counts(experts), means(experts);
  for (std::size_t r = 0; r < x.rows; ++r) {
    double total = 0.0;
    for (std::size_t e = 0; e < experts; ++e) {
      double& s = scores(r, e);
      s = softmax ? std::exp(s) : 1.0 / (1.0 + std::exp(-s));
      total += s;
    }
    std::vector<std::size_t> order(experts);
    for (std::size_t e = 0; e < experts; ++e) {
      order[e] = e;
      means[e] += scores(r, e) / total / static_cast<double>(x.rows);
      if (softmax) scores(r, e) /= total;
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return scores(r, a) > scores(r, b); });
    double chosen = 0.0;
    for (std::size_t k = 0; k < top_k; ++k) chosen += scores(r, order[k]);
    for (std::size_t k = 0; k < top_k; ++k) {
      const std::size_t e = order[k];
      counts[e] += 1.0 / static_cast<double>(top_k * x.rows);
      const double weight = double{c.moe.scale} * scores(r, e) / (c.moe.normalize ? chosen : 1.0);
      for (std::size_t i = 0; i < x.cols; ++i) out(r, i) += weight * results[e](r, i);
    }
  }
  for (std::size_t e = 0; e < experts; ++e) {
    *part.added_loss +=
        double{c.moe.balance_loss} * static_cast<double>(experts) * counts[e] * means[e];
  }
  return out;
}

// The result of gated linear attention, whose attention is summed over pairs of tokens: the weight
// of a token's value is sum_i q_i k_i times what its channel of keys keeps on the way.
inline Matrix<double> DoubleGla(const DoublePart& part, const Matrix<double>& x) {
  const ModelConfig& c = part.config;
  const auto heads = static_cast<std::size_t>(c.heads),
             length = static_cast<std::size_t>(c.sequence);
  const Matrix<double> n = DoubleNorm(c, x, part.gains[0]);
  const Matrix<double> mixed = DoubleLinear(n, part.weights[0]),
                       z = DoubleLinear(DoubleLinear(n, part.weights[1]), part.weights[2]);
  const std::size_t keys = z.cols, key = keys / heads, values = part.weights[3].cols,
                    value = values / heads;
  Matrix<double> gated(x.rows, values);
  for (std::size_t t = 0; t < x.rows; ++t) {
    for (std::size_t h = 0; h < heads; ++h) {
      std::vector<double> out(value), log_kept(key);
      for (std::size_t s = t + 1; s-- > t / length * length;) {
        double weight = 0.0;
        for (std::size_t i = h * key; i < (h + 1) * key; ++i) {
          weight += mixed(t, i) * mixed(s, keys + i) * std::exp(log_kept[i - h * key]);
          log_kept[i - h * key] -= std::log1p(std::exp(-z(s, i))) / 16.0;
        }
        weight /= std::sqrt(static_cast<double>(key));
        for (std::size_t j = 0; j < value; ++j) {
          out[j] += weight * mixed(s, 2 * keys + h * value + j);
        }
      }
      double squares = 0.0;
      for (const double o : out) squares += o * o;
      const double rms = std::sqrt(squares / static_cast<double>(value) + c.norm_epsilon);
      for (std::size_t j = 0; j < value; ++j) {
        gated(t, h * value + j) = reference::Swiglu(mixed(t, 2 * keys + values + h * value + j),
                                                    out[j] / rms * part.gains[1][j]);
      }
    }
  }
  return DoubleLinear(gated, part.weights[3]);
}

struct DoublePartRow {
  std::string_view name;
  Matrix<double> (*result)(const DoublePart& part, const Matrix<double>& x);
};
inline constexpr DoublePartRow kDoubleParts[] = {{"attention", DoubleAttention},
                                                 {"gla", DoubleGla},
                                                 {"mla", DoubleMla},
                                                 {"mlp", DoubleMlp},
                                                 {"moe", DoubleMoe}};

class DoubleModel {
 public:
  explicit DoubleModel(const ModelConfig& config) : config_(config), layout_(MakeLayout(config)) {}

  // Objective is from now on that of a teacher with these logits (nn/loss.h), too.
  void SetTeacher(Matrix<double> logits, double temperature, double share) {
    teacher_ = std::move(logits);
    temperature_ = temperature;
    share_ = share;
  }

  // Mean loss in nats.
  double Loss(std::span<const double> parameters, std::span<const std::uint16_t> tokens,
              std::span<const std::uint16_t> targets) const {
    double added = 0.0;
    return Loss(parameters, tokens, targets, &added);
  }
  // With the losses that parts add: what the gradient belongs to.
  double Objective(std::span<const double> parameters, std::span<const std::uint16_t> tokens,
                   std::span<const std::uint16_t> targets) const {
    double added = 0.0;
    const double loss = Loss(parameters, tokens, targets, &added);
    return (1.0 - share_) * loss + added;
  }

 private:
  double Loss(std::span<const double> parameters, std::span<const std::uint16_t> tokens,
              std::span<const std::uint16_t> targets, double* added_loss) const {
    const auto view = [&](const ParameterSlice& s) {
      return MatrixView<const double>(parameters.data() + s.offset, s.rows, s.cols);
    };
    const auto gain = [&](const ParameterSlice& s) {
      return parameters.subspan(s.offset, s.size());
    };
    Matrix<double> x(tokens.size(), static_cast<std::size_t>(config_.d_model));
    reference::Embedding<double>(view(layout_.embedding), tokens, x.View());
    for (const PlacedPart& placed : layout_.parts) {
      DoublePart part{config_, placed.block, added_loss, {}, {}};
      const std::size_t count = placed.part->linears(config_).size();
      for (std::size_t i = 0; i < count; ++i) {
        part.weights.push_back(view(layout_.block_linears[placed.first_linear + i]));
      }
      for (const ParameterSlice& slice : layout_.GainsOf(placed)) part.gains.push_back(gain(slice));
      const Matrix<double> result = RowOf(placed.part->name).result(part, x);
      for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] += result.values[i];
    }
    Matrix<double> logits =
        DoubleLinear(DoubleNorm(config_, x, gain(layout_.final_gain)), view(layout_.head));
    const double cap = config_.logit_soft_cap,
                 multiplier = config_.mup.base_d_model > 0
                                  ? 1.0 * config_.mup.base_d_model / config_.d_model
                                  : 1.0;
    for (std::size_t r = 0; r < logits.rows; ++r) {
      double sum = 0.0;
      for (std::size_t c = 0; c < logits.cols; ++c) {
        logits(r, c) *= multiplier;
        if (cap > 0.0) logits(r, c) = cap * std::tanh(logits(r, c) / cap);
        sum += std::exp(logits(r, c));
      }
      *added_loss += (1.0 - share_) * double{config_.z_loss} * std::pow(std::log(sum), 2) /
                     static_cast<double>(logits.rows);
    }
    if (share_ > 0.0) *added_loss += share_ * temperature_ * temperature_ * Divergence(logits);
    std::vector<double> row_loss(tokens.size());
    return reference::CrossEntropy<double>(logits.View(), targets, 1.0, row_loss, {});
  }

  // The mean KL(p || q) of teacher and logits.
  double Divergence(const Matrix<double>& logits) const {
    double all = 0.0;
    for (std::size_t r = 0; r < logits.rows; ++r) {
      double p_sum = 0.0, q_sum = 0.0;
      for (std::size_t c = 0; c < logits.cols; ++c) {
        p_sum += std::exp(teacher_(r, c) / temperature_);
        q_sum += std::exp(logits(r, c) / temperature_);
      }
      for (std::size_t c = 0; c < logits.cols; ++c) {
        const double ln_p = teacher_(r, c) / temperature_ - std::log(p_sum),
                     ln_q = logits(r, c) / temperature_ - std::log(q_sum);
        all += std::exp(ln_p) * (ln_p - ln_q);
      }
    }
    return all / static_cast<double>(logits.rows);
  }

  static const DoublePartRow& RowOf(std::string_view name) {
    for (const DoublePartRow& row : kDoubleParts) {
      if (row.name == name) return row;
    }
    throw Error("tests/train/double_model.h", "has no part \"" + std::string(name) + "\"");
  }

  ModelConfig config_;
  ParameterLayout layout_;
  Matrix<double> teacher_;
  double temperature_ = 1.0, share_ = 0.0;
};

}  // namespace fp4lab
