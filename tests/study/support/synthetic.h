// Made-up study results, deterministic: annealed losses about the means of a small pilot of bf16,
// fp8, nvfp4 and mxfp4 arms, with seed, pair and chunk noise from Philox. No model was trained.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "fp4lab/base/random.h"
#include "fp4lab/io/json.h"
#include "tests/support/golden.h"

namespace fp4lab::study {

struct SyntheticOptions {
  int seeds = 5;
  int chunks = 24;
  int curve_points = 60;
  double noise = 1;  // scales seed and pair noise
  std::vector<std::int64_t> budgets = {1024000, 2048000, 4096000};
  std::vector<std::string> arms = {"bf16", "fp8", "nvfp4", "mxfp4"};
};

// The criteria of studies/token-gap/laptop.json whose arms are all among `arms`.
inline Json LaptopCriteria(const std::vector<std::string>& arms) {
  const Json study = ReadJsonFile(SourceDirectory() / "studies" / "token-gap" / "laptop.json");
  Json criteria = Json::array();
  for (const Json& criterion : study["analysis"]["criteria"]) {
    const auto is_there = [&](const Json& arm) {
      return std::find(arms.begin(), arms.end(), arm.get<std::string>()) != arms.end();
    };
    const Json& named = criterion["arms"];
    if (std::all_of(named.begin(), named.end(), is_there)) criteria.push_back(criterion);
  }
  return criteria;
}

class Synthetic {
 public:
  explicit Synthetic(SyntheticOptions options) : options_(std::move(options)) {}

  // Loss of the baseline and gaps of the arms; both fall with the tokens.
  static double Baseline(double tokens) { return 1.13 + 0.49 * std::pow(tokens / 1.024e6, -0.4); }
  static double Gap(const std::string& arm, double tokens) {
    const double scale = arm == "fp8" ? 0.009 : arm == "nvfp4" ? 0.060 : arm == "mxfp4" ? 0.094 : 0;
    return scale * std::pow(tokens / 1.024e6, -0.2);
  }

  Json Results() {
    Json runs = Json::array();
    for (const std::string& arm : options_.arms) {
      for (int seed = 1; seed <= options_.seeds; ++seed) runs.push_back(Run(arm, seed));
    }
    const std::int64_t train = 3546103, validation = 466713;
    return {{"schema", "fp4lab.study.results/1"},
            {"name", "synthetic"},
            {"fp4lab_version", "0.1.0"},
            {"study", Study()},
            {"corpus",
             {{"name", "synthetic numbers, not a text"},
              {"vocabulary", 256},
              {"train_tokens", train},
              {"validation_tokens", validation},
              {"train_sha256", std::string(64, '0')},
              {"validation_sha256", std::string(64, '0')}}},
            {"model", {{"parameters", 229952}, {"block_parameters", 196608}}},
            {"runs", runs}};
  }

 private:
  // Standard normal number `index` of stream `name`.
  static double Normal(const std::string& name, std::uint64_t index) {
    std::uint64_t key = 1469598103934665603u;
    for (const char c : name) key = (key ^ static_cast<unsigned char>(c)) * 1099511628211u;
    const RandomStream stream{.seed = key};
    const double u = UniformOpen(stream.Bits32(2 * index));
    const double v = UniformOpen(stream.Bits32(2 * index + 1));
    return std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v);
  }
  // Rounded, so that the text does not depend on the last bits of libm.
  static double Rounded(double x) { return std::round(x * 1e5) / 1e5; }

  double Loss(const std::string& arm, int seed, double tokens, std::uint64_t budget) const {
    const auto s = static_cast<std::uint64_t>(seed);
    double loss = Baseline(tokens) + Gap(arm, tokens);
    loss += options_.noise * 0.014 * Normal("seed", s);
    if (arm == "bf16") return loss;
    const double own = arm == "fp8" ? 0.003 : arm == "nvfp4" ? 0.007 : 0.011;
    loss += options_.noise * own * Normal("pair " + arm, s);
    return loss + options_.noise * 0.4 * own * Normal("point " + arm, 100 * s + budget);
  }

  std::vector<double> Chunks(const std::string& arm, int seed, double loss) const {
    std::vector<double> chunks;
    double mean = 0;
    for (int c = 0; c < options_.chunks; ++c) {
      const auto i = static_cast<std::uint64_t>(c);
      chunks.push_back(0.09 * Normal("chunk", i) +
                       0.006 * Normal("chunk " + arm, 1000 * static_cast<std::uint64_t>(seed) + i));
      mean += chunks.back() / options_.chunks;
    }
    for (double& chunk : chunks) chunk = Rounded(chunk - mean + loss);
    return chunks;
  }

  Json Point(const std::string& arm, int seed, std::uint64_t budget) const {
    const std::int64_t tokens = options_.budgets[budget];
    const double loss = Rounded(Loss(arm, seed, static_cast<double>(tokens), budget));
    const double high = Rounded(loss - (arm == "nvfp4"   ? 0.0064
                                        : arm == "mxfp4" ? 0.0103
                                        : arm == "fp8"   ? 0.0006
                                                         : 0));
    return {{"tokens", tokens},
            {"steps", tokens / 2048},
            {"validation_loss", loss},
            {"validation_loss_high", high},
            {"chunk_losses", Chunks(arm, seed, loss)},
            {"chunk_losses_high", Chunks(arm, seed, high)}};
  }

  Json Curve(const std::string& arm, int seed) const {
    Json curve = Json::array();
    const double end = 0.8 * static_cast<double>(options_.budgets.back());
    for (int i = 1; i <= options_.curve_points; ++i) {
      const auto step = static_cast<std::int64_t>(end * i / options_.curve_points / 2048);
      const auto tokens = static_cast<double>(step * 2048);
      const double loss = 0.12 + Baseline(tokens) + 0.8 * Gap(arm, tokens) +
                          0.03 * Normal("batch", 1000 * static_cast<std::uint64_t>(seed) +
                                                     static_cast<std::uint64_t>(i)) +
                          0.004 * Normal("batch " + arm, static_cast<std::uint64_t>(i));
      curve.push_back({{"step", step},
                       {"tokens", step * 2048},
                       {"loss", Rounded(loss)},
                       {"learning_rate", 0.005}});
    }
    return curve;
  }

  Json Tensors(const std::string& arm, int seed) const {
    Json tensors = Json::array();
    if (arm == "bf16") return tensors;
    const bool fp8 = arm == "fp8", mx = arm == "mxfp4";
    std::uint64_t index = 0;
    for (int block = 0; block < 4; ++block) {
      for (const char* linear : {"attention.qkv", "attention.out", "mlp.up", "mlp.down"}) {
        for (const char* operand : {"fprop.input", "fprop.weight", "dgrad.grad", "dgrad.weight",
                                    "wgrad.grad", "wgrad.input"}) {
          const std::string name(operand);
          const bool grad = name.ends_with("grad"), weight = name.ends_with("weight");
          double sqnr = fp8 ? (grad ? 25.5 : 31.5) : mx ? 17.4 : 20.6;
          if (!fp8) sqnr -= grad ? 3.9 : weight ? 1.3 : 0;
          if (std::string(linear) == "mlp.down" && !weight) sqnr -= fp8 ? 0.5 : 1.6;
          sqnr += 0.35 * Normal("sqnr " + arm, 1000 * static_cast<std::uint64_t>(seed) + index++);
          tensors.push_back(
              {{"name", "blocks." + std::to_string(block) + "." + linear + "." + operand},
               {"format", fp8 ? "fp8_e4m3_tensor" : arm},
               {"amax", 3.1},
               {"underflow_percent", Rounded(mx ? 9.5 : 7.1)},
               {"clip_percent", 0.0},
               {"sqnr_db", Rounded(sqnr)}});
        }
      }
    }
    return tensors;
  }

  Json Run(const std::string& arm, int seed) const {
    Json points = Json::array(), trunk = Json::array();
    for (std::uint64_t k = 0; k < options_.budgets.size(); ++k) {
      points.push_back(Point(arm, seed, k));
      const auto tokens = static_cast<std::int64_t>(0.8 * static_cast<double>(options_.budgets[k]));
      trunk.push_back({{"tokens", tokens},
                       {"validation_loss", Rounded(0.14 + Baseline(static_cast<double>(tokens)) +
                                                   0.75 * Gap(arm, static_cast<double>(tokens)))}});
    }
    return {{"arm", arm},
            {"seed", seed},
            {"status", "ok"},
            {"diverged_at", nullptr},
            {"points", points},
            {"trunk_points", trunk},
            {"curve", Curve(arm, seed)},
            {"tensors", Tensors(arm, seed)},
            {"seconds", 100.0},
            {"tokens_per_second", 20000.0}};
  }

  static Json Operand(const char* format, const char* rounding, int hadamard) {
    return {{"format", format}, {"rounding", rounding}, {"hadamard", hadamard}};
  }

  static Json Recipe(const std::string& arm) {
    if (arm == "bf16") {
      const Json none = Operand("none", "nearest_even", 0);
      return {{"base", "bf16"},
              {"fprop", {{"input", none}, {"weight", none}}},
              {"dgrad", {{"grad", none}, {"weight", none}}},
              {"wgrad", {{"grad", none}, {"input", none}}}};
    }
    const bool fp8 = arm == "fp8", mx = arm == "mxfp4";
    const char* format = fp8 ? "fp8_e4m3_tensor" : mx ? "mxfp4" : "nvfp4";
    const char* weight = fp8 ? format : mx ? "mxfp4_32x32" : "nvfp4_16x16";
    const char* rounding = fp8 ? "nearest_even" : "stochastic";
    const int hadamard = fp8 ? 0 : mx ? 32 : 16;
    return {
        {"base", fp8  ? "te_fp8_currentscaling"
                 : mx ? "mxfp4"
                      : "te_nvfp4"},
        {"fprop",
         {{"input", Operand(format, "nearest_even", 0)},
          {"weight", Operand(weight, "nearest_even", 0)}}},
        {"dgrad",
         {{"grad", Operand(format, rounding, 0)}, {"weight", Operand(weight, "nearest_even", 0)}}},
        {"wgrad",
         {{"grad", Operand(format, rounding, hadamard)},
          {"input", Operand(format, "nearest_even", hadamard)}}}};
  }

  Json Study() const {
    Json arms = Json::object(), seeds = Json::array();
    const Json optimizer = {
        {"beta1", 0.9}, {"beta2", 0.95}, {"clip", 1.0}, {"epsilon", 1e-8}, {"weight_decay", 0.1}};
    const Json schedule = {{"kind", "wsd"},           {"learning_rate", 0.005},
                           {"warmup_steps", 25},      {"decay_fraction", 0.2},
                           {"decay_shape", "linear"}, {"final_ratio", 0.0}};
    for (const std::string& arm : options_.arms) {
      arms[arm] = {{"recipe", Recipe(arm)}, {"optimizer", optimizer}, {"schedule", schedule}};
    }
    for (int seed = 1; seed <= options_.seeds; ++seed) seeds.push_back(seed);
    return {{"name", "synthetic"},
            {"title", "Synthetic numbers"},
            {"description", "Made-up losses that exercise the report. No model was trained."},
            {"model",
             {{"layers", 4},
              {"d_model", 64},
              {"heads", 4},
              {"kv_heads", 4},
              {"ffn", 256},
              {"sequence", 128},
              {"vocabulary", 256},
              {"activation", "squared_relu"},
              {"tied_head", false}}},
            {"optimizer", optimizer},
            {"schedule", schedule},
            {"data", {{"source", "synthetic"}}},
            {"evaluation", {{"tokens", 204800}, {"chunk_tokens", 2048}, {"high_precision", true}}},
            {"batch", 16},
            {"micro_batches", 1},
            {"arms", arms},
            {"arm_order", options_.arms},
            {"seeds", seeds},
            {"budgets", options_.budgets},
            {"analysis",
             {{"reference", "bf16"},
              {"contrast", {"mxfp4", "nvfp4"}},
              {"primary_tokens", options_.budgets.back()},
              {"confidence", 0.95},
              {"criteria", LaptopCriteria(options_.arms)}}}};
  }

  SyntheticOptions options_;
};

inline Json SyntheticResults(const SyntheticOptions& options = {}) {
  return Synthetic(options).Results();
}

}  // namespace fp4lab::study
