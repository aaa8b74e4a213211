#include "fp4lab/train/observe/observe.h"

#include <cmath>
#include <set>
#include <string>

#include "fp4lab/base/random.h"
#include "fp4lab/data/load_corpus.h"
#include "fp4lab/train/trainer.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab {
namespace {

Corpus SyntheticCorpus() {
  DataConfig data;
  data.source = "synthetic";
  data.synthetic_bytes = 60'000;
  return LoadCorpus(data);
}

TrainConfig Tiny(const Json& recipe) {
  const Json json = {
      {"model", {{"layers", 2}, {"d_model", 32}, {"heads", 2}, {"ffn", 64}, {"sequence", 32}}},
      {"schedule", {{"learning_rate", 5e-3}, {"warmup_steps", 2}}},
      {"data", {{"source", "synthetic"}}},
      {"diagnostics", {{"every", 2}, {"tokens", 64}}},
      {"recipe", recipe},
      {"batch", 2},
      {"tokens", 64 * 12},
      {"seed", 5}};
  return ReadTrainConfig(json, "test");
}

const ObservedRow* Find(const Observation& seen, const std::string& name) {
  for (const ObservedRow& row : seen.rows) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

double Number(const Observation& seen, const std::string& name, const std::string& key) {
  const ObservedRow* row = Find(seen, name);
  REQUIRE(row != nullptr);
  REQUIRE(row->numbers.count(key) == 1);
  return row->numbers.at(key);
}

TEST_CASE("Observing leaves the run as it is, under every kind of recipe", "[train]") {
  const Corpus corpus = SyntheticCorpus();
  for (const char* recipe : {"bf16", "te_nvfp4", "mxfp4", "te_fp8_delayedscaling"}) {
    CAPTURE(recipe);
    const TrainConfig config = Tiny(recipe);
    Trainer plain(config, corpus), observed(config, corpus);
    WeightCodes codes;
    for (int step = 0; step < 8; ++step) {
      observed.Observe(&codes);
      CHECK(plain.Step(5e-3).loss == observed.Step(5e-3).loss);
    }
    observed.Observe(&codes);  // no step follows
    CHECK((plain.SaveState() == observed.SaveState()));
  }
}

TEST_CASE("An observation has every operand, product, weight and the step", "[train]") {
  const Corpus corpus = SyntheticCorpus();
  Trainer trainer(Tiny("te_nvfp4"), corpus);
  WeightCodes codes;
  trainer.Step(5e-3);
  const Observation seen = trainer.Observe(&codes);
  CHECK(seen.step == 1);
  CHECK(seen.tokens == 64);
  std::set<std::string> keys;
  for (const CourseDiagnostic& d : CourseDiagnostics()) {
    CAPTURE(d.key);
    CHECK(keys.insert(std::string(d.key)).second);
    CHECK_FALSE((d.name.empty() || d.label.empty() || d.definition.empty()));
    CHECK(d.reading.ends_with('.'));
  }
  for (const ObservedRow& row : seen.rows) {
    for (const auto& [key, value] : row.numbers) {
      CAPTURE(row.name, key);
      CHECK(keys.count(key) == 1);
      CHECK(std::isfinite(value));
      CHECK(Shortened(value) == value);
    }
  }
  for (const char* linear : {"blocks.0.attention.qkv", "blocks.1.mlp.down"}) {
    const std::string name = linear;
    CHECK(Find(seen, name + ".fprop.input")->scales.has_value());
    for (const char* gemm : {".fprop", ".dgrad", ".wgrad"}) {
      const double cosine = Number(seen, name + gemm, "cosine");
      CHECK(cosine > 0.8);
      CHECK(cosine < 1.0);
      CHECK(std::fabs(Number(seen, name + gemm, "projection_percent")) < 20.0);
    }
    CHECK(Number(seen, name + ".weight", "weight_noise_ratio") > 1.0);
  }
  CHECK(Find(seen, "head.fprop") == nullptr);  // nothing is quantized there
  const double norm = Number(seen, "step", "gradient_norm");
  CHECK(Number(seen, "step", "noise_ratio") ==
        Catch::Approx(norm / Number(seen, "step", "noise_norm")).epsilon(1e-4));
  CHECK(ReadObservation(Json::parse(ToJson(seen).dump()), "seen") == seen);
}

TEST_CASE("Products of a GEMM that is not quantized are exact; without quantization none is shown",
          "[train]") {
  const Corpus corpus = SyntheticCorpus();
  WeightCodes codes;
  Trainer forward(Tiny({{"base", "te_nvfp4"}, {"forward_only", true}}), corpus);
  const Observation seen = forward.Observe(&codes);
  CHECK(Number(seen, "blocks.0.mlp.up.fprop", "cosine") < 1.0);
  CHECK(Number(seen, "blocks.0.mlp.up.dgrad", "cosine") == 1.0);
  CHECK(Number(seen, "blocks.0.mlp.up.wgrad", "projection_percent") == 0.0);
  Trainer plain(Tiny("bf16"), corpus);
  const Observation none = plain.Observe(&codes);
  REQUIRE(none.rows.size() == 1);
  CHECK(none.rows[0].numbers == std::map<std::string, double>{{"loss_increase", 0.0}});
}

TEST_CASE("A coarser format has more noise at the same weights", "[train]") {
  const Corpus corpus = SyntheticCorpus();
  const auto ratio = [&](const Json& recipe) {
    Trainer trainer(Tiny(recipe), corpus);
    WeightCodes codes;
    return Number(trainer.Observe(&codes), "step", "noise_ratio");
  };
  const double fp8 = ratio("te_fp8_currentscaling"), nvfp4 = ratio("te_nvfp4");
  CHECK(fp8 > nvfp4);
  CHECK(nvfp4 > ratio("mxfp4"));
}

// Shows `codes` as the codes of a linear's weight.
CodeChanges Show(WeightCodes* memory, const std::vector<std::uint8_t>& codes,
                 const char* dialect = "nvfp4.te") {
  const Dialect& d = *FindDialect(dialect);
  Quantized q;
  q.rows = 1;
  q.cols = codes.size();
  q.codes = codes;
  const DialectOptions options;
  return memory->Observe("l", {kFpropWeight, {}, {}, d, options, q});
}

TEST_CASE("A code that flips and comes back is counted once, -0 is 0", "[train]") {
  WeightCodes memory;
  CodeChanges changes = Show(&memory, {1, 2, 3, 0});
  CHECK(std::isnan(changes.flips_percent));
  changes = Show(&memory, {2, 2, 4, 8});
  CHECK(changes.flips_percent == 50.0);
  CHECK(std::isnan(changes.returns_percent));
  memory = WeightCodes::Read(Json::parse(memory.ToJson().dump()), "memory");
  changes = Show(&memory, {1, 3, 5, 0});
  CHECK(changes.flips_percent == 75.0);
  CHECK(changes.returns_percent == 25.0);  // 1 2 1; 3 4 5 goes on
  changes = Show(&memory, {1, 3, 5, 0}, "mxfp4.rceil");
  CHECK(std::isnan(changes.flips_percent));  // another format starts afresh
}

TEST_CASE("The memory of codes is refused where it is not what was written", "[train]") {
  WeightCodes memory;
  Show(&memory, {1, 2, 3, 0});
  const Json json = memory.ToJson();
  CHECK(WeightCodes::Read(json, "m") == memory);
  const auto refuses = [&](const char* patch, const std::string& part) {
    Json changed = json;
    changed.merge_patch(Json::parse(patch));
    CHECK_THAT(ErrorOf([&] { WeightCodes::Read(changed, "m"); }),
               Catch::Matchers::ContainsSubstring(part));
  };
  refuses(R"({"l": {"last": "12g0"}})", "hexadecimal");
  refuses(R"({"l": {"last": "123", "narrow": false}})", "half a code");
  refuses(R"({"l": {"before": "12"}})", "another number of codes");
  refuses(R"({"l": {"more": 1}})", "unknown key");
}

TEST_CASE("Steps to observe are read strictly", "[train]") {
  const auto read = [](const char* text) { return ReadDiagnosticsConfig(Json::parse(text), "d"); };
  CHECK_FALSE(DiagnosticsConfig{}.Asked());
  const DiagnosticsConfig every = read(R"({"every": 3})");
  CHECK((every.IsDue(0) && every.IsDue(6) && !every.IsDue(7)));
  const DiagnosticsConfig steps = read(R"({"steps": [0, 5, 9], "tokens": 100})");
  CHECK((steps.IsDue(0) && steps.IsDue(9) && !steps.IsDue(6)));
  CHECK(ReadDiagnosticsConfig(ToJson(steps), "d") == steps);
  CHECK(ReadDiagnosticsConfig(ToJson(every), "d") == every);
  const auto refuses = [&](const char* text, const std::string& part) {
    CHECK_THAT(ErrorOf([&] { read(text); }), Catch::Matchers::ContainsSubstring(part));
  };
  refuses("{}", "needs \"every\"");
  refuses(R"({"every": 3, "steps": [1]})", "needs \"every\"");
  refuses(R"({"every": 0})", "d#/every: must be at least 1");
  refuses(R"({"steps": []})", "d#/steps: needs a step");
  refuses(R"({"steps": [3, 3]})", "d#/steps/1: must be at least 0 and above");
  refuses(R"({"steps": [-1]})", "d#/steps/0: must be");
  refuses(R"({"every": 3, "tokens": 0})", "d#/tokens: must be at least 1");
}

TEST_CASE("At a gradient-to-noise ratio of sqrt(3), the best step has three quarters of its gain",
          "[train]") {
  // f(x) = |x|^2 / 2 in d dimensions; steps x - a (x + noise) with the best a for the noise, whose
  // expected gain is |x|^2 / (2 (1 + 1 / r^2)) for a gradient-to-noise ratio r: half of the gain
  // without noise at r = 1, and three quarters at sqrt(3).
  const std::size_t d = 4096;
  std::vector<float> x(d), noise(d), seen(d);
  const RandomStream stream{.seed = 3};
  for (std::size_t i = 0; i < d; ++i) {
    x[i] = 1.0f;
    noise[i] = stream.Bits32(i) % 2 == 0 ? 1.0f : -1.0f;
  }
  for (const double r : {1.0, kNoiseThreshold, 4.0}) {
    for (std::size_t i = 0; i < d; ++i) seen[i] = x[i] + noise[i] / static_cast<float>(r);
    VectorComparison compared;
    compared.Add(seen, x);
    CHECK(compared.NoiseRatio() == Catch::Approx(r).epsilon(1e-5));
    const double a = compared.qh / compared.qq;
    double after = 0.0;
    for (std::size_t i = 0; i < d; ++i) after += std::pow(x[i] - a * seen[i], 2.0);
    const double gain = 1.0 - after / static_cast<double>(d);
    CHECK(gain == Catch::Approx(1.0 / (1.0 + 1.0 / (r * r))).epsilon(0.05));
  }
}

}  // namespace
}  // namespace fp4lab
