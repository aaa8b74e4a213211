// The decoder's forward pass in float64, built from the scalar definitions of nn/reference.h. Tests
// compare gradients with its finite differences.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fp4lab/nn/reference.h"
#include "fp4lab/train/config.h"
#include "fp4lab/train/shapes.h"

namespace fp4lab {

class DoubleModel {
 public:
  explicit DoubleModel(const ModelConfig& config) : config_(config), layout_(MakeLayout(config)) {}

  // Mean loss in nats.
  double Loss(std::span<const double> parameters, std::span<const std::uint16_t> tokens,
              std::span<const std::uint16_t> targets) const {
    const Params p{parameters};
    Matrix<double> x(tokens.size(), static_cast<std::size_t>(config_.d_model));
    reference::Embedding<double>(p.View(layout_.embedding), tokens, x.View());
    for (int block = 0; block < config_.layers; ++block) {
      AddAttention(p, static_cast<std::size_t>(block), &x);
      AddMlp(p, static_cast<std::size_t>(block), &x);
    }
    Matrix<double> logits = Linear(Norm(x, p.Gain(layout_.final_gain)), p.View(layout_.head));
    std::vector<double> row_loss(tokens.size());
    return reference::CrossEntropy<double>(logits.View(), targets, 1.0, row_loss, {});
  }

 private:
  struct Params {
    std::span<const double> values;
    MatrixView<const double> View(const ParameterSlice& s) const {
      return {values.data() + s.offset, s.rows, s.cols};
    }
    std::span<const double> Gain(const ParameterSlice& s) const {
      return values.subspan(s.offset, s.size());
    }
  };

  Matrix<double> Norm(const Matrix<double>& x, std::span<const double> gain) const {
    Matrix<double> y(x.rows, x.cols);
    std::vector<double> inverse_rms(x.rows);
    reference::RmsNorm<double>(x.View(), gain, double{config_.norm_epsilon}, y.View(), inverse_rms);
    return y;
  }

  static Matrix<double> Linear(const Matrix<double>& x, MatrixView<const double> w) {
    Matrix<double> y(x.rows, w.rows);
    for (std::size_t r = 0; r < x.rows; ++r) {
      for (std::size_t o = 0; o < w.rows; ++o) {
        for (std::size_t i = 0; i < w.cols; ++i) y(r, o) += x(r, i) * w(o, i);
      }
    }
    return y;
  }

  static void Add(const Matrix<double>& y, Matrix<double>* x) {
    for (std::size_t i = 0; i < y.values.size(); ++i) x->values[i] += y.values[i];
  }

  MatrixView<const double> Weight(const Params& p, std::size_t block, BlockLinear linear) const {
    return p.View(layout_.block_linears[block * kLinearsPerBlock + linear]);
  }

  void AddAttention(const Params& p, std::size_t block, Matrix<double>* x) const {
    const Matrix<double> n = Norm(*x, p.Gain(layout_.attention_gains[block]));
    Matrix<double> qkv = Linear(n, Weight(p, block, kQkv));
    const std::size_t d = x->cols, kv = KvWidth(config_), half = HeadDim(config_) / 2;
    const auto length = static_cast<std::size_t>(config_.sequence);
    Matrix<double> cos(length, half), sin(length, half);
    for (std::size_t t = 0; t < length; ++t) {
      for (std::size_t i = 0; i < half; ++i) {
        const double angle =
            static_cast<double>(t) * std::pow(double{config_.rope_theta},
                                              -static_cast<double>(i) / static_cast<double>(half));
        cos(t, i) = std::cos(angle);
        sin(t, i) = std::sin(angle);
      }
    }
    const MatrixView<double> q = qkv.View().Block(0, 0, x->rows, d),
                             k = qkv.View().Block(0, d, x->rows, kv),
                             v = qkv.View().Block(0, d + kv, x->rows, kv);
    reference::Rope<double>(cos.View(), sin.View(), 1.0, q);
    reference::Rope<double>(cos.View(), sin.View(), 1.0, k);
    const AttentionShape shape{x->rows / length, length, static_cast<std::size_t>(config_.heads),
                               KvHeads(config_), HeadDim(config_)};
    std::vector<double> statistics(shape.StatisticsSize());
    Matrix<double> out(x->rows, d);
    reference::Attention<double>(shape, q, k, v, out.View(), statistics);
    Add(Linear(out, Weight(p, block, kOut)), x);
  }

  void AddMlp(const Params& p, std::size_t block, Matrix<double>* x) const {
    const Matrix<double> n = Norm(*x, p.Gain(layout_.mlp_gains[block]));
    const Matrix<double> up = Linear(n, Weight(p, block, kUp));
    const auto f = static_cast<std::size_t>(config_.ffn);
    Matrix<double> h(x->rows, f);
    for (std::size_t r = 0; r < x->rows; ++r) {
      for (std::size_t c = 0; c < f; ++c) {
        switch (config_.activation) {
          case Activation::kSquaredRelu:
            h(r, c) = reference::SquaredRelu(up(r, c));
            break;
          case Activation::kGelu:
            h(r, c) = reference::Gelu(up(r, c));
            break;
          case Activation::kSwiglu:
            h(r, c) = reference::Swiglu(up(r, c), up(r, f + c));
            break;
        }
      }
    }
    Add(Linear(h, Weight(p, block, kDown)), x);
  }

  ModelConfig config_;
  ParameterLayout layout_;
};

}  // namespace fp4lab
