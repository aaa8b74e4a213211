// The decoder's forward pass in float64, built from the scalar definitions of
// nn/reference.h. Tests compare gradients with its finite differences. Each
// part of a model has a row in kDoubleParts.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/nn/reference.h"
#include "fp4lab/train/config.h"
#include "fp4lab/train/model/shapes.h"

namespace fp4lab {

// The weights and gains of a part in one block, in the order in which the part
// states them.
struct DoublePart {
  const ModelConfig& config;
  int block = 0;
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

// The result of attention's part, which is added to x.
inline Matrix<double> DoubleAttention(const DoublePart& part, const Matrix<double>& x) {
  const ModelConfig& c = part.config;
  Matrix<double> qkv = DoubleLinear(DoubleNorm(c, x, part.gains[0]), part.weights[0]);
  const std::size_t d = QueryWidth(c), kv = KvWidth(c), half = HeadDim(c) / 2;
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
  const auto is_every = [&](int n) { return n > 0 && (part.block + 1) % n == 0; };
  if (!is_every(c.no_rope_every)) {
    reference::Rope<double>(cos.View(), sin.View(), 1.0, q);
    reference::Rope<double>(cos.View(), sin.View(), 1.0, k);
  }
  const AttentionShape shape{
      x.rows / length,
      length,
      static_cast<std::size_t>(c.heads),
      KvHeads(c),
      HeadDim(c),
      static_cast<std::size_t>(is_every(c.full_attention_every) ? 0 : c.window)};
  std::vector<double> statistics(shape.StatisticsSize());
  Matrix<double> out(x.rows, d);
  reference::Attention<double>(shape, q, k, v, out.View(), statistics);
  return DoubleLinear(out, part.weights[1]);
}

inline Matrix<double> DoubleMlp(const DoublePart& part, const Matrix<double>& x) {
  const ModelConfig& c = part.config;
  const Matrix<double> up = DoubleLinear(DoubleNorm(c, x, part.gains[0]), part.weights[0]);
  const auto f = static_cast<std::size_t>(c.ffn);
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
  return DoubleLinear(h, part.weights[1]);
}

struct DoublePartRow {
  std::string_view name;
  Matrix<double> (*result)(const DoublePart& part, const Matrix<double>& x);
};
inline constexpr DoublePartRow kDoubleParts[] = {{"attention", DoubleAttention},
                                                 {"mlp", DoubleMlp}};

class DoubleModel {
 public:
  explicit DoubleModel(const ModelConfig& config) : config_(config), layout_(MakeLayout(config)) {}

  // Mean loss in nats.
  double Loss(std::span<const double> parameters, std::span<const std::uint16_t> tokens,
              std::span<const std::uint16_t> targets) const {
    const auto view = [&](const ParameterSlice& s) {
      return MatrixView<const double>(parameters.data() + s.offset, s.rows, s.cols);
    };
    const auto gain = [&](const ParameterSlice& s) {
      return parameters.subspan(s.offset, s.size());
    };
    Matrix<double> x(tokens.size(), static_cast<std::size_t>(config_.d_model));
    reference::Embedding<double>(view(layout_.embedding), tokens, x.View());
    for (const PlacedPart& placed : layout_.parts) {
      DoublePart part{config_, placed.block, {}, {}};
      const std::size_t count = placed.part->linears(config_).size();
      for (std::size_t i = 0; i < count; ++i) {
        part.weights.push_back(view(layout_.block_linears[placed.first_linear + i]));
      }
      for (const ParameterSlice& slice : layout_.GainsOf(placed)) part.gains.push_back(gain(slice));
      const Matrix<double> result = RowOf(placed.part->name).result(part, x);
      for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] += result.values[i];
    }
    const Matrix<double> logits =
        DoubleLinear(DoubleNorm(config_, x, gain(layout_.final_gain)), view(layout_.head));
    std::vector<double> row_loss(tokens.size());
    return reference::CrossEntropy<double>(logits.View(), targets, 1.0, row_loss, {});
  }

 private:
  static const DoublePartRow& RowOf(std::string_view name) {
    for (const DoublePartRow& row : kDoubleParts) {
      if (row.name == name) return row;
    }
    throw Error("tests/train/double_model.h", "has no part \"" + std::string(name) + "\"");
  }

  ModelConfig config_;
  ParameterLayout layout_;
};

}  // namespace fp4lab
