// Layers, training, studies and their analysis under the floating-point states of host programs.
#include <atomic>
#include <string>
#include <vector>

#include "fp4lab/data/load_corpus.h"
#include "fp4lab/data/synthetic.h"
#include "fp4lab/nn/activation.h"
#include "fp4lab/nn/attention/attention.h"
#include "fp4lab/nn/attention/rope.h"
#include "fp4lab/nn/linear.h"
#include "fp4lab/nn/loss.h"
#include "fp4lab/nn/optimizer/muon.h"
#include "fp4lab/nn/optimizer/optimizer.h"
#include "fp4lab/nn/rmsnorm.h"
#include "fp4lab/nn/round_bf16.h"
#include "fp4lab/nn/router.h"
#include "fp4lab/recipe/recipe.h"
#include "fp4lab/study/analysis/analyze.h"
#include "fp4lab/study/analysis/power.h"
#include "fp4lab/study/numbers/number_text.h"
#include "fp4lab/study/numbers/statistics.h"
#include "fp4lab/study/report/report.h"
#include "fp4lab/study/run/record/run_record.h"
#include "fp4lab/study/run/runner.h"
#include "fp4lab/train/engine.h"
#include "fp4lab/train/model/memory.h"
#include "fp4lab/train/model/shapes.h"
#include "fp4lab/train/observe/observation.h"
#include "fp4lab/train/observe/what_if.h"
#include "fp4lab/train/schedule.h"
#include "fp4lab/train/trainer.h"
#include "tests/ieee/host_states.h"
#include "tests/ieee/inputs.h"
#include "tests/study/support/synthetic.h"
#include "tests/study/support/tiny_study.h"

namespace fp4lab::host {
namespace {

template <class Function>
Call PieceOf(const std::string& name, const Matrix<float>& x, Function function) {
  return CallOf(name, [x, function] {
    Matrix<float> out(x.rows, x.cols);
    function(x.View(), out.View());
    return out;
  });
}

void AddLayers(std::vector<Call>* calls) {
  for (const NamedInput& input : Inputs()) {
    const Matrix<float>& x = input.x;
    const Matrix<float> dy = RandomMatrix(x.rows, x.cols, 100, 20, 2);
    const std::vector<float> gain = RandomMatrix(1, x.cols, 126, 2, 3).values;
    const std::string of = " " + input.name;
    calls->push_back(PieceOf("SquaredRelu" + of, x, [](auto a, auto out) { SquaredRelu(a, out); }));
    calls->push_back(PieceOf("Gelu" + of, x, [](auto a, auto out) { Gelu(a, out); }));
    calls->push_back(PieceOf("GeluToBf16" + of, x, [](auto a, auto out) { GeluToBf16(a, out); }));
    calls->push_back(PieceOf("GeluBackward" + of, x,
                             [dy](auto a, auto out) { GeluBackward(a, dy.View(), out); }));
    calls->push_back(
        PieceOf("Swiglu" + of, x, [dy](auto a, auto out) { Swiglu(a, dy.View(), out); }));
    calls->push_back(PieceOf("RoundBf16" + of, x, [](auto a, auto out) { RoundBf16(a, out); }));
    calls->push_back(CallOf("RmsNorm" + of, [x, dy, gain] {
      Matrix<float> y(x.rows, x.cols), rounded(y), dx(y);
      std::vector<float> inverse(x.rows), dgain(x.cols);
      RmsNormToBf16(x.View(), gain, 1e-6f, rounded.View(), inverse);
      RmsNorm(x.View(), gain, 1e-6f, y.View(), inverse);
      RmsNormBackward(x.View(), gain, inverse, dy.View(), Write::kOverwrite, dx.View(), dgain);
      return std::tuple{y, rounded, dx, inverse, dgain};
    }));
    calls->push_back(CallOf("CrossEntropy" + of, [x] {
      const std::vector<std::uint16_t> targets(x.rows, 5);
      std::vector<double> loss(x.rows), again(x.rows);
      Matrix<float> dlogits(x.rows, x.cols);
      const double mean = CrossEntropy(x.View(), targets, loss);
      CrossEntropyGradient(x.View(), targets, 0.01f, again, dlogits.View());
      Matrix<float> capped = x;
      SoftCap(30.0f, capped.View());
      CrossEntropyGradient(capped.View(), targets, 0.01f, {30.0f, 1e-4f}, again, capped.View());
      return std::tuple{mean, loss, again, dlogits, capped};
    }));
    calls->push_back(CallOf("AdamWStep" + of, [x, dy] {
      std::vector<float> w = dy.values, m = x.values, v(x.values.size(), 1e-42f);
      AdamWStep({.learning_rate = 3e-4f, .weight_decay = 0.1f, .gradient_scale = 0.7f, .step = 3},
                x.values, w, m, v);
      return std::tuple{w, m, v, SumOfSquares(x.values), ClipFactor(3.7, 1.0f)};
    }));
  }
  for (const bool bf16 : {false, true}) {
    calls->push_back(CallOf(bf16 ? "MuonStep in BF16" : "MuonStep", [bf16] {
      const Matrix<float> gradient = RandomMatrix(16, 40, 0, 140);
      Matrix<float> w = RandomMatrix(16, 40, 110, 20, 2), m = RandomMatrix(16, 40, 1, 140, 3),
                    x = RandomMatrix(40, 16, 0, 140, 4);
      MuonStep({.learning_rate = 3e-4f, .bf16 = bf16, .weight_decay = 0.1f}, gradient.View(),
               w.View(), m.View());
      NewtonSchulz(5, bf16, x.View());
      return std::tuple{w, m, x};
    }));
  }
  calls->push_back(CallOf("Route and RouteBackward", [] {
    const Matrix<float> logits = RandomMatrix(12, 6, 100, 28), d = RandomMatrix(12, 2, 1, 140, 2);
    Matrix<float> d_logits(12, 6);
    Routing routing;
    const RouterOptions options{.top_k = 2, .balance_loss = 1e-38f};
    Route(options, logits.View(), {}, &routing);
    RouteBackward(options, routing, d.View(), 1e-3f, d_logits.View());
    return std::tuple{routing.scores, routing.weights, d_logits};
  }));
  calls->push_back(CallOf("MakeRopeTable and Rope", [] {
    const RopeTable table = MakeRopeTable(16, 8, 10000.0f);
    Matrix<float> x = RandomMatrix(16, 8, 0, 140);
    Rope(table, x.View());
    return std::tuple{table.cos, table.sin, x};
  }));
  calls->push_back(CallOf("Attention", [] {
    const AttentionShape shape{
        .batch = 2, .sequence = 16, .heads = 2, .kv_heads = 1, .head_dim = 16};
    const Matrix<float> q = RandomMatrix(32, 32, 110, 20), k = RandomMatrix(32, 16, 110, 20, 2),
                        v = RandomMatrix(32, 16, 0, 30, 3), dout = RandomMatrix(32, 32, 40, 90, 4);
    Matrix<float> out(32, 32), dq(32, 32), dk(32, 16), dv(32, 16);
    std::vector<float> statistics(shape.StatisticsSize());
    Attention(shape, q.View(), k.View(), v.View(), out.View(), statistics);
    AttentionBackward(shape, q.View(), k.View(), v.View(), out.View(), statistics, dout.View(),
                      {dq.View(), dk.View(), dv.View()});
    return std::tuple{out, statistics, dq, dk, dv};
  }));
}

void AddLinears(std::vector<Call>* calls) {
  for (const std::string& name : RecipeNames()) {
    calls->push_back(CallOf("LinearForward and LinearBackward " + name, [name] {
      const LinearRecipe recipe = ReadRecipe(Json(name), "test").linear;
      const Matrix<float> x = RandomMatrix(32, 64, 0, 150), w = RandomMatrix(48, 64, 100, 30, 2),
                          dy = RandomMatrix(32, 48, 0, 150, 3);
      LinearWeight weight;
      weight.w = w.View();
      LinearScratch scratch;
      // Delayed scaling has histories, which the trainer's rows below give it.
      std::vector<float> histories(6 * AmaxHistoryFloats(ReadRecipe(Json(name), "test")));
      const LinearCall call{.random = {.seed = 1, .step = 2, .tensor = 3}};
      Matrix<float> y(32, 48), dx(32, 64), dw(48, 64);
      if (histories.empty()) {
        LinearForward(recipe, call, {x.View()}, &weight, &scratch, Write::kOverwrite, y.View());
        LinearBackward(recipe, call, {x.View()}, &weight, {dy.View()}, &scratch, dx.View(),
                       dw.View());
      }
      return std::tuple{y, dx, dw};
    }));
  }
}

TrainConfig Tiny(const std::string& recipe) {
  return ReadTrainConfig({{"model",
                           {{"layers", 1},
                            {"d_model", 32},
                            {"heads", 2},
                            {"ffn", 64},
                            {"sequence", 32},
                            {"kv_heads", 1}}},
                          {"schedule", {{"learning_rate", 0.0051}, {"warmup_steps", 3}}},
                          {"data", {{"source", "synthetic"}, {"synthetic_bytes", 30000}}},
                          {"recipe", recipe},
                          {"batch", 2},
                          {"tokens", 64 * 20},
                          {"evaluation", {{"tokens", 512}, {"chunk_tokens", 128}}},
                          {"seed", 5}},
                         "test");
}

void AddTraining(std::vector<Call>* calls) {
  for (const std::string& name : RecipeNames()) {
    calls->push_back(CallOf("Trainer " + name, [name] {
      const TrainConfig config = Tiny(name);
      const Corpus corpus = LoadCorpus(config.data);
      Trainer trainer(config, corpus);
      std::vector<double> numbers;
      for (int i = 0; i < 2; ++i) {
        const StepResult r = trainer.Step(LearningRate(config.schedule, i, TotalSteps(config)));
        numbers.insert(numbers.end(), {r.loss, r.grad_norm});
      }
      const Evaluation e = trainer.Evaluate(EvaluationPrecision::kTraining);
      std::vector<Json> measured;
      for (const TensorStatistics& s : trainer.Diagnose()) measured.push_back(ToJson(s));
      const std::vector<std::byte> state = trainer.SaveState();
      Trainer again(config, corpus);
      again.LoadState(state, "state");
      return std::tuple{numbers, e.loss, e.chunk_losses, measured, state, again.Numbers()};
    }));
  }
  calls->push_back(CallOf("Engine", [] {
    const TrainConfig config = Tiny("te_nvfp4");
    const std::unique_ptr<Engine> engine = MakeEngine(config, "test");
    engine->Initialize();
    const std::vector<std::uint16_t> tokens(64, 97);
    const StepSums sums = engine->Gradients({}, tokens, tokens);
    engine->Update({.learning_rate = 0.0051f});
    std::vector<double> losses(64);
    engine->Losses({}, tokens, tokens, losses);
    return std::tuple{sums.loss, sums.gradient_squares, losses};
  }));
  calls->push_back(CallOf("configurations", [] {
    const TrainConfig config = Tiny("te_nvfp4");
    return std::tuple{ToJson(config), ToJson(config.recipe), ToJson(config.schedule),
                      EstimateMemory(config).Total(), Shortened(0.1234567890123)};
  }));
  calls->push_back(CallOf("LearningRate", [] {
    std::vector<double> rates;
    for (const char* kind : {"wsd", "cosine", "constant"}) {
      for (const char* shape : {"linear", "sqrt"}) {
        const ScheduleConfig schedule{.kind = kind, .learning_rate = 0.0051, .decay_shape = shape};
        for (int i = 0; i < 100; ++i) rates.push_back(LearningRate(schedule, i, 100));
      }
    }
    return rates;
  }));
  calls->push_back(CallOf("ShapleyValues", [] {
    return ShapleyValues(std::vector<double>{0.1, 0.7, 0.3, 1.1});
  }));
  calls->push_back(CallOf("SyntheticSource", [] {
    const SyntheticSource source(3);
    return std::tuple{source.EntropyRate(), source.CrossEntropy(source.Text(300))};
  }));
}

void AddStudies(std::vector<Call>* calls) {
  const Json json = study::SyntheticResults({.seeds = 3});
  const std::string text = json.dump();
  calls->push_back(CallOf("ParseJson", [text] { return ParseJson(text, "results.json"); }));
  calls->push_back(CallOf("Analyze", [json] {
    const study::Results results = study::ReadResults(json, "results.json");
    const study::Analysis analysis = study::Analyze(results, 40);
    return std::tuple{study::ToJson(analysis, results), study::ResultsText(json),
                      study::SummaryText(results, analysis)};
  }));
  calls->push_back(CallOf("MakeReport", [json] {
    const study::StudyReport report = study::AnalyzeStudy("results.json", json, 40);
    const study::ReportTexts texts = study::MakeReport(report);
    std::string figures;
    for (const auto& [path, figure] : texts.figures) figures += figure;
    return std::tuple{texts.html, texts.csv, texts.summary, texts.analysis, figures};
  }));
  calls->push_back(CallOf("statistics", [] {
    using namespace study;  // NOLINT: many of its functions
    const std::vector<double> a = {0.1, 0.25, 0.31, 0.47}, b = {1.1, 1.3, 1.2, 1.7};
    const Summary s = Summarize(a);
    return std::tuple{StudentQuantile(0.975, 3),
                      s.mean,
                      s.deviation,
                      s.StandardError(),
                      StudentInterval(s, 0.95)->high,
                      FiellerInterval(a, b, 0.95)->low,
                      Quantile(a, 0.3),
                      SeedsNeeded(0.02, 0.01, 0.95),
                      Fixed(0.0005, 3),
                      SignificantText(1234.5),
                      Signed(-0.00055, 4),
                      TokensText(1.5e9)};
  }));
  Json tiny = study::TinyStudyJson();
  tiny["seeds"] = {1};
  tiny["budgets"] = {1280};
  calls->push_back(CallOf("RunStudy", [tiny_text = tiny.dump()] {
    const study::TestFolder folder("ieee");
    const study::Study study = study::ParseStudy(tiny_text, "tiny.json");
    const std::atomic<bool> stop = false;
    const study::Outcome outcome = study::RunStudy(study, LoadCorpus(study.base.data),
                                                   {.out_dir = folder.Path(), .jobs = 2}, {}, stop);
    std::vector<Json> records;
    for (const study::RunRecord& record : outcome.records) {
      records.push_back(ToJson(record));
      records.back().erase("seconds");
    }
    return std::tuple{records, outcome.numerics};
  }));
}

TEST_CASE("Layers give the same bytes in every state of the host", "[ieee]") {
  std::vector<Call> calls;
  AddLayers(&calls);
  AddLinears(&calls);
  CheckCalls(calls);
}

TEST_CASE("Training gives the same bytes in every state of the host", "[ieee]") {
  std::vector<Call> calls;
  AddTraining(&calls);
  CheckCalls(calls);
}

TEST_CASE("Studies and reports are the same in every state of the host", "[ieee]") {
  std::vector<Call> calls;
  AddStudies(&calls);
  CheckCalls(calls);
}

}  // namespace
}  // namespace fp4lab::host
