// Stored matrices, files and verdicts under the floating-point states of host programs.
#include <sstream>
#include <string>
#include <vector>

#include "fp4lab/dialect/dialect.h"
#include "fp4lab/exchange/inspect.h"
#include "fp4lab/exchange/matrix_file.h"
#include "fp4lab/exchange/number_type.h"
#include "fp4lab/exchange/quantize_stored.h"
#include "fp4lab/exchange/stored.h"
#include "fp4lab/exchange/stored_file.h"
#include "fp4lab/exchange/tables_json.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/temporary_folder.h"
#include "fp4lab/judge/attention/attention_case.h"
#include "fp4lab/judge/attention/attention_file.h"
#include "fp4lab/judge/cases/case_coverage.h"
#include "fp4lab/judge/cases/case_family.h"
#include "fp4lab/judge/cases/case_stream.h"
#include "fp4lab/judge/explain/explain.h"
#include "fp4lab/judge/identify/identify.h"
#include "fp4lab/judge/kernels/deviation.h"
#include "fp4lab/judge/kernels/run_kernel.h"
#include "fp4lab/judge/packs/pack.h"
#include "fp4lab/judge/products/bench_coverage.h"
#include "fp4lab/judge/products/gemm.h"
#include "fp4lab/judge/products/gemm_probe.h"
#include "fp4lab/judge/products/grouped/grouped_file.h"
#include "fp4lab/judge/products/grouped/grouped_gemm.h"
#include "fp4lab/judge/products/product_case.h"
#include "fp4lab/judge/products/product_folder.h"
#include "fp4lab/judge/verify/verify.h"
#include "fp4lab/judge/verify/verify_stochastic.h"
#include "fp4lab/quantize/quantize.h"
#include "fp4lab/spelling/dialect_json.h"
#include "fp4lab/spelling/spelled_dialect.h"
#include "tests/ieee/host_states.h"
#include "tests/ieee/inputs.h"

namespace fp4lab::host {
namespace {

constexpr StorageLayout kAmax{.tensor_scale = TensorScaleConvention::kAmax};
constexpr StorageLayout kDivisor{.scales = ScaleOrder::k128x4,
                                 .tensor_scale = TensorScaleConvention::kDivisor};

void AddStoredMatrices(std::vector<Call>* calls) {
  for (const char* name : {"nvfp4.te", "nvfp4.modelopt", "mxfp4.rceil"}) {
    const Dialect& d = *FindDialect(name);
    for (const NamedInput& input : Inputs()) {
      const std::string of = " " + std::string(name) + ", " + input.name;
      const MatrixView<const float> x = input.x.View();
      calls->push_back(CallOf("QuantizeStored" + of, [x, &d] {
        return std::tuple{QuantizeStored(d, x, {}, kAmax), QuantizeStored(d, x, {}, kDivisor)};
      }));
      const StoredMatrix stored = QuantizeStored(d, x, {}, kAmax);
      calls->push_back(CallOf(
          "Convert" + of, [stored, &d] { return Convert(stored, kDivisor, d.scale_max, "test"); }));
      calls->push_back(CallOf("Load and Store" + of, [stored, &d] {
        const Quantized q = Load(d, stored, "test");
        return std::tuple{q, Store(d, q, kDivisor), StoredValues(stored, d.scale_max, "test")};
      }));
      const Matrix<float> values = StoredValues(stored, d.scale_max, "test");
      calls->push_back(CallOf("MeasureStored" + of, [stored, values, x] {
        const StoredStatistics s = MeasureStored(stored, values, "test");
        const StoredError e = MeasureError(stored, x, values, "test");
        return std::tuple{s.zero_scales,
                          s.zeros,
                          s.largest_value,
                          s.smallest_scale,
                          s.largest_scale,
                          e.amax,
                          e.clip_percent,
                          e.underflow_percent,
                          e.sqnr_db,
                          e.mse,
                          e.largest_error,
                          e.blocks.relative,
                          ErrorMapSvg(e.blocks, "errors")};
      }));
    }
  }
}

void AddFiles(const TemporaryFolder& folder, std::vector<Call>* calls) {
  const Dialect& d = *FindDialect("nvfp4.te");
  for (const NamedInput& input : Inputs()) {
    const std::string path = (folder / input.name).string();
    const MatrixView<const float> x = input.x.View();
    calls->push_back(CallOf("WriteMatrix and ReadMatrix " + input.name, [path, x] {
      std::string bytes;
      for (const char* type : {"float32", "float16", "bfloat16"}) {
        WriteMatrix(path + ".npy", x, RequireNumberType(type, "test"));
        bytes += ReadFile(path + ".npy") + BytesOf(ReadMatrix(path + ".npy").values);
      }
      return bytes;
    }));
    calls->push_back(CallOf("WriteStored and ReadStored " + input.name, [path, x, &d] {
      const StoredMatrix stored = QuantizeStored(d, x, {}, kAmax);
      WriteStored(path + ".safetensors#w", stored, d.name, "fp4lab", d.scale_max);
      return std::tuple{ReadFile(path + ".safetensors"),
                        ReadStored(path + ".safetensors#w").matrix};
    }));
  }
  calls->push_back(CallOf("tables", [] {
    std::vector<Json> rows;
    for (const NamedFormat& f : kFormats) rows.push_back(FormatJson(f));
    for (const Dialect& row : Dialects()) rows.push_back(DialectJson(row));
    return rows;
  }));
  calls->push_back(CallOf("SpelledDialect", [] {
    const Dialect& d = SpelledDialect(
        {{"base", "nvfp4.te"}, {"scale_encoding", "up"}, {"scale_max", 1e-41}}, "mine");
    return std::tuple{std::string(d.name), d.scale_max, DialectFields(d).dump(),
                      DialectNamed(d.name, "mine") == &d};
  }));
}

// The bytes of wrong kernels, and of the right one.
void AddVerdicts(std::vector<Call>* calls) {
  const Kernel kernel{*FindDialect("nvfp4.te"), kAmax};
  for (const NamedInput& input : Inputs()) {
    const MatrixView<const float> x = input.x.View();
    for (const char* name : {"", "ties-away", "reciprocal-for-division", "codes-high-first"}) {
      const std::string of = " " + std::string(name) + ", " + input.name;
      std::vector<const Deviation*> deviations;
      if (*name != '\0') deviations.push_back(FindDeviation(name));
      calls->push_back(CallOf(
          "RunKernel" + of, [kernel, x, deviations] { return RunKernel(kernel, x, deviations); }));
      const StoredMatrix got = RunKernel(kernel, x, deviations);
      calls->push_back(CallOf("Verify" + of, [kernel, x, got] {
        const Verdict v = Verify(kernel.dialect, x, got, "test");
        return std::tuple{VerdictText(kernel.dialect, v), Headline(kernel.dialect, v),
                          VerdictJson(kernel.dialect, v)};
      }));
      calls->push_back(CallOf("Explain" + of, [kernel, x, got] {
        const Explanation e = Explain(kernel, x, got, {.deciding_case = false});
        return std::tuple{Text(kernel, e), CauseText(kernel, e), ToJson(kernel, e)};
      }));
    }
    const StoredMatrix right = RunKernel(kernel, x);
    calls->push_back(CallOf("Identify " + input.name, [x, right] {
      const Identification found = Identify(x, right, {.decide = false});
      return std::tuple{Text(found), ToJson(found)};
    }));
  }
}

void AddCases(std::vector<Call>* calls) {
  for (const char* name : {"nvfp4.te", "mxfp4.rceil"}) {
    const Dialect& d = *FindDialect(name);
    const Kernel kernel{d, kAmax};
    calls->push_back(CallOf("MakeCases " + std::string(name), [&d] {
      std::string bytes;
      for (const Case& c : MakeCases(d)) bytes += c.name + BytesOf(c.x);
      return bytes;
    }));
    const std::vector<Case> cases = MakeCases(d, {.families = {"subnormal", "tiny-amax"}});
    calls->push_back(CallOf(
        "WriteCases, AnswerCases and VerifyStream " + std::string(name), [&d, kernel, cases] {
          std::stringstream questions, answers;
          WriteCases(d, {.families = {"subnormal", "tiny-amax"}}, cases, questions);
          AnswerCases(kernel, {}, questions, "cases", answers);
          const std::string bytes = answers.str();
          const SetVerdict v = VerifyStream(d, cases, answers, "answers", {.layout = kAmax});
          return std::tuple{bytes, SetVerdictText(d, cases, v), SetVerdictJson(d, cases, v)};
        }));
    calls->push_back(CallOf("MeasureCoverage " + std::string(name), [&d, cases] {
      const CoverageReport report = MeasureCoverage(d, cases);
      return std::tuple{CoverageText(report), CoverageJson(report)};
    }));
  }
}

void AddProductVerdicts(std::vector<Call>* calls) {
  const Dialect& d = *FindDialect("nvfp4.te");
  for (const NamedInput& input : Inputs()) {
    const MmaOperand a = MakeMmaOperand(d, Quantize(input.x.View(), {d}));
    const Accumulation& under = *FindAccumulation("blackwell.mxf4.f32");
    Matrix<float> product(a.rows, a.rows);
    GemmAs(*FindAccumulation("fp32-blocks"), a, a, {.alpha = 0.7f}, product.View());
    calls->push_back(CallOf("JudgeGemm " + input.name, [a, product, &under] {
      const GemmClaim claim{a, a, product.View(), 0.7f};
      const GemmJudgement j = JudgeGemm(claim, under);
      std::vector<std::size_t> different;
      for (const AccumulationMatch& m : IdentifyAccumulation(claim)) {
        different.push_back(m.different);
      }
      return std::tuple{static_cast<int>(j.verdict),
                        j.different,
                        j.outside,
                        j.worst.got,
                        j.worst.want,
                        j.worst.exact,
                        j.worst.error,
                        j.worst.bound,
                        different};
    }));
  }
  for (const std::string_view operands : kProbeOperands) {
    calls->push_back(CallOf("MakeProbes " + std::string(operands), [operands] {
      const ProbeSet set = MakeProbes(operands);
      const std::vector<float> answers = ProbeAnswers(set, *FindAccumulation("exact"));
      const ProbeReading reading = ReadProbes(set, answers);
      return std::tuple{set.a.codes, set.b.codes, answers, reading.fraction_bits.value_or(-1),
                        reading.step.value_or(-1)};
    }));
  }
}

// Grouped products, products with C, and attention: exact answers, ranges, causes and texts.
void AddGroupsAndAttention(const TemporaryFolder& folder, std::vector<Call>* calls) {
  const Accumulation& exact = *FindAccumulation("exact");
  const std::vector<GroupedCase> groups = MakeGroupedCases();
  for (const GroupedCase& c : {groups[1], groups[2]}) {
    calls->push_back(CallOf("JudgeGrouped " + std::string(c.name), [c, &exact] {
      GroupedKernel kernel = KernelOf(c.in);
      kernel.parts[0].alpha = 1.3750001f;
      kernel.parts[2].alpha = 0.3f;
      const Matrix<float> d = RunGroupedKernel(kernel, exact);
      std::string text;
      for (const GroupedJudgement::Group& g : JudgeGrouped(c.in, d.View(), exact).groups) {
        text += BytesOf(std::tuple{g.judgement.outside, g.judgement.different,
                                   g.judgement.worst.error, g.judgement.worst.bound});
      }
      for (const GemmCause& cause : FindGroupedCauses(c.in, d.View(), exact)) text += cause.name;
      for (const AccumulationMatch& m : IdentifyGrouped(c.in, d.View())) {
        text += std::to_string(m.different);
      }
      return std::tuple{text, d};
    }));
  }
  calls->push_back(CallOf("GroupedBench and its coverage", [] {
    const GroupedBench bench(MakeGroupedCases());
    const BenchCoverage coverage = MeasureBench(bench);
    return std::tuple{CoverageText(bench, coverage), CoverageJson(bench, coverage)};
  }));
  for (const ProductCase& c : MakeProductCases()) {
    if (c.beta == 0.0f) continue;
    calls->push_back(CallOf("JudgeGemm with C", [c, &exact] {
      GemmClaim claim = ClaimOf(c, c.before.View());
      claim.alpha = 0.30000001f;
      const GemmJudgement j = JudgeGemm(claim, exact);
      return std::tuple{j.outside, j.worst.exact, j.worst.error, j.worst.bound};
    }));
  }
  for (const AttentionCase& c : MakeAttentionCases()) {
    if (c.plan.in.q.rows > 24) continue;
    calls->push_back(CallOf("EvaluateAttention " + std::string(c.name), [c] {
      const AttentionPlan plan = c.plan.operands_given ? c.plan : PlanOf(c.plan.in, c.plan.scheme);
      const AttentionRange range = EvaluateAttention(plan);
      Matrix<float> wrong = range.answer;
      for (std::size_t i = 0; i < wrong.values.size(); i += 3) wrong.values[i] = 0.3f;
      const AttentionJudgement j = JudgeAttention(range, plan.in.heads, wrong.View());
      return std::tuple{
          range.answer, range.low,     range.high,         BytesOf(range.exact.values),
          j.outside,    j.first.exact, j.largest_distance, DescriptionOf(plan)};
    }));
  }
  calls->push_back(CallOf("MakeAttentionCases and FindAttentionCauses", [] {
    const AttentionCase c = MakeAttentionCases()[1];
    AttentionPlan plan = c.plan;
    plan.diagonal += 1;
    const Matrix<float> o = EvaluateAttention(plan).answer;
    std::string text = BytesOf(c.plan.in.k.values);
    for (const GemmCause& cause : FindAttentionCauses(c.plan, o.View())) text += cause.name;
    return text;
  }));
  const std::string path = folder.path();
  calls->push_back(CallOf("files of directed cases", [path] {
    std::vector<AttentionCase> cases = MakeAttentionCases();
    cases.resize(2);
    WriteDirectedCases(std::span<const AttentionCase>(cases), path);
    WriteDirectedCases(std::span<const GroupedCase>(MakeGroupedCases()), path);
    const std::string name(cases[1].name), at = path + "/" + name + ".safetensors#";
    const AttentionPlan plan = ReadAttention(
        {.q = at + "q", .k = at + "k", .v = at + "v", .causal = true}, cases[1].plan.scheme);
    const std::string groups = path + "/groups.safetensors#";
    const GroupedInputs in = ReadGrouped({.a = groups + "a",
                                          .b = groups + "b.{}",
                                          .ends = groups + "ends",
                                          .alphas = "1.5,1,1,1,0.30000001,1,1e-41"});
    return std::tuple{EvaluateAttention(plan).answer,
                      RunGroupedKernel(KernelOf(in), *FindAccumulation("exact")),
                      ReadNumberList("0.30000001,1e-41", "test")};
  }));
}

void AddPacks(std::vector<Call>* calls) {
  const Dialect& d = *FindDialect("nvfp4.te");
  for (const NamedInput& input : Inputs()) {
    const MatrixView<const float> x = input.x.View();
    calls->push_back(CallOf("MakePack " + input.name, [x, &d] {
      const SafetensorsFile file = MakePack(d, x, {.layouts = {kAmax, kDivisor}});
      return std::tuple{FormatSafetensors(file), RecomputedAnswer(ReadPack(file, "pack"))};
    }));
  }
  const Dialect stochastic = WithRounding(d, ElementRounding::kStochastic16);
  const Matrix<float> x = RandomMatrix(8, 64, 118, 8);
  std::vector<StoredMatrix> runs;
  for (std::uint64_t run = 0; run < 16; ++run) {
    DialectOptions options;
    options.source = RandomSource{.stream = {.seed = run, .step = 0, .tensor = 0}};
    runs.push_back(QuantizeStored(stochastic, x.View(), options, kAmax));
  }
  calls->push_back(CallOf("VerifyStatistically", [stochastic, x, runs] {
    const StatisticalVerdict v = VerifyStatistically(stochastic, x.View(), runs, "runs");
    return std::tuple{StatisticalText(stochastic, v), StatisticalJson(stochastic, v)};
  }));
}

TEST_CASE("Stored matrices and files are the same in every state of the host", "[ieee]") {
  const TemporaryFolder folder;
  std::vector<Call> calls;
  AddStoredMatrices(&calls);
  AddFiles(folder, &calls);
  AddPacks(&calls);
  CheckCalls(calls);
}

TEST_CASE("Verdicts and explanations are the same in every state of the host", "[ieee]") {
  std::vector<Call> calls;
  AddVerdicts(&calls);
  AddProductVerdicts(&calls);
  CheckCalls(calls);
}

TEST_CASE("Grouped products and attention are the same in every state of the host", "[ieee]") {
  const TemporaryFolder folder;
  std::vector<Call> calls;
  AddGroupsAndAttention(folder, &calls);
  CheckCalls(calls);
}

TEST_CASE("Directed cases and their verdicts are the same in every state of the host", "[ieee]") {
  std::vector<Call> calls;
  AddCases(&calls);
  CheckCalls(calls);
}

TEST_CASE("An error leaves the state of the host as it was", "[ieee]") {
  std::vector<Call> calls;
  const MatrixView<const float> x = Inputs().front().x.View();
  calls.push_back(CallOf("QuantizeAs of one row too many", [x] {
    StoredMatrix got = QuantizeStored(*FindDialect("nvfp4.te"), x, {}, kAmax);
    got.codes.pop_back();
    return VerdictText(*FindDialect("nvfp4.te"),
                       Verify(*FindDialect("nvfp4.te"), x, got, "wrong.npz"));
  }));
  calls.push_back(
      CallOf("ReadMatrix of no file", [] { return ReadMatrix("/no/such/file.npy").values; }));
  calls.push_back(CallOf("ParseJson of no JSON", [] { return ParseJson("{1.5", "text"); }));
  CheckCalls(calls);
  for (const Call& call : calls) {
    CHECK(BytesUnder(ReadFloatingPointState(), call).find("error: ") == 0);
  }
}

}  // namespace
}  // namespace fp4lab::host
