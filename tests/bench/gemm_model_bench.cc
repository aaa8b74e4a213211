// TensorCoreGemm at a training shape: time relative to Gemm with FP4 values (`times_gemm`) and to
// Fp4Gemm with NVFP4 operands (`times_fp4_gemm`) in the same run.
#include <benchmark/benchmark.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/measure/clock.h"
#include "fp4lab/measure/summary.h"
#include "fp4lab/tensor/fp4_gemm.h"
#include "fp4lab/tensor/gemm.h"
#include "fp4lab/tensor/tensor_core_gemm.h"
#include "tests/support/values.h"

namespace fp4lab::bench {
namespace {

constexpr std::size_t kM = 2048, kN = 256, kK = 256;

// What a row measures: a model on operands quantized as `block_format`, as they are or (`wide`) as
// their values in BF16; "bf16": normal values rounded to BF16; "e4m3": to E4M3.
struct Case {
  std::string model, inputs;
  bool wide;
};

MmaOperand MakeOperand(const Case& c, const Matrix<float>& x) {
  if (c.inputs == "bf16") return MakeMmaOperand(FormatOf(FormatId::kBF16), x.View());
  if (c.inputs == "e4m3") return MakeMmaOperand(FormatOf(FormatId::kE4M3), x.View());
  const MmaOperand q = MakeMmaOperand(
      Quantize(x.View(), {.format = *FindBlockFormat(c.inputs), .amax = TensorAmax(x.View())}));
  return c.wide ? Unscaled(q, FormatOf(FormatId::kBF16)) : q;
}

// NVFP4 operands for Fp4Gemm, the yardstick.
struct IntegerOperand {
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;
  Fp4Operand view;

  explicit IntegerOperand(const MmaOperand& x) {
    for (const std::uint32_t code : x.codes) {
      codes.push_back(static_cast<std::uint8_t>(12 + 2 * Decode(FormatId::kE2M1, code)));
    }
    for (const std::uint8_t scale : x.scales) scales.push_back(Decode(FormatId::kE4M3, scale));
    view.codes = {codes.data(), x.rows, x.cols};
    view.scales = {scales.data(), x.rows, x.ScaleCols()};
  }
};

template <class Function>
double SecondsOf(const Function& function) {
  const double start = measure::ThreadSeconds();
  function();
  return measure::ThreadSeconds() - start;
}

double Median(const std::vector<double>& x) { return measure::Summarize(x).median; }

// Rows of c spread over the matrix against the definition.
bool IsRight(const TensorCoreModel& model, const MmaOperand& a, const MmaOperand& b,
             const Matrix<float>& c) {
  for (std::size_t m = 0; m < kM; m += 509) {
    MmaOperand row{.rows = 1,
                   .cols = kK,
                   .format = a.format,
                   .group = a.group,
                   .scale_format = a.scale_format};
    row.codes.assign(a.Row(m).begin(), a.Row(m).end());
    row.scales.assign(a.ScaleRow(m).begin(), a.ScaleRow(m).end());
    Matrix<float> expected(1, kN);
    reference::TensorCoreGemm(model, row, b, {}, expected.View());
    for (std::size_t n = 0; n < kN; ++n) {
      if (std::bit_cast<std::uint32_t>(c(m, n)) != std::bit_cast<std::uint32_t>(expected(0, n))) {
        return false;
      }
    }
  }
  return true;
}

void RunModel(benchmark::State& state, const Case& c) {
  const TensorCoreModel& model = *FindTensorCoreModel(c.model);
  const MmaOperand a = MakeOperand(c, NormalMatrix(1, kM, kK));
  const MmaOperand b = MakeOperand(c, NormalMatrix(2, kN, kK));
  const Matrix<float> va = FloatValues(a), vb = FloatValues(b);
  const Case yardstick = {.model = "", .inputs = "nvfp4", .wide = false};
  const IntegerOperand ia(MakeOperand(yardstick, NormalMatrix(1, kM, kK)));
  const IntegerOperand ib(MakeOperand(yardstick, NormalMatrix(2, kN, kK)));
  Matrix<float> y(kM, kN), z(kM, kN);
  const int threads_before = Threads();
  SetThreads(1);
  TensorCoreGemm(model, a, b, {}, y.View());
  if (!IsRight(model, a, b, y)) return state.SkipWithError("wrong result");
  std::vector<double> ours, fp32, fp4;
  for (auto _ : state) {
    ours.push_back(SecondsOf([&] { TensorCoreGemm(model, a, b, {}, y.View()); }));
    fp32.push_back(SecondsOf([&] { Gemm(va.View(), vb.View(), {.block = 16}, z.View()); }));
    fp4.push_back(SecondsOf([&] { Fp4Gemm(ia.view, ib.view, {.block = 16}, z.View()); }));
    state.SetIterationTime(ours.back());
  }
  SetThreads(threads_before);
  state.counters["GFLOP/s"] = 2e-9 * static_cast<double>(kM * kN * kK) / Median(ours);
  state.counters["times_gemm"] = Median(ours) / Median(fp32);
  state.counters["times_fp4_gemm"] = Median(ours) / Median(fp4);
}

bool RegisterAll() {
  const Case cases[] = {{"blackwell.mxf4.f32", "nvfp4", false},
                        {"blackwell.mxf4.f32", "mxfp4.rceil", false},
                        {"blackwell.mxf8f6f4.f32", "mxfp4.rceil", false},
                        {"blackwell.mxf8f6f4.f32", "mxfp8_e4m3.rceil", false},
                        {"blackwell.f8f6f4.f32", "e4m3", false},
                        {"hopper.wgmma.f8.f32", "e4m3", false},
                        {"hopper.mma.f8.f32", "e4m3", false},
                        {"hopper.f16.f32", "nvfp4", true},
                        {"hopper.f16.f32", "mxfp4.rceil", true},
                        {"hopper.f16.f32", "bf16", false}};
  for (const Case& c : cases) {
    const std::string name = "gemm_model/2048x256x256/" + c.model + "/" + c.inputs +
                             (c.wide ? ":bf16" : "") + "/threads:1";
    benchmark::RegisterBenchmark(name.c_str(), [c](benchmark::State& s) { RunModel(s, c); })
        ->UseManualTime()
        ->Iterations(21)
        ->Unit(benchmark::kMillisecond);
  }
  return true;
}

const bool kRegistered = RegisterAll();

}  // namespace
}  // namespace fp4lab::bench
