// Elements a second of the block quantizers and the Hadamard transform, one core, in cache.
#include <benchmark/benchmark.h>

#include <string>

#include "fp4lab/base/parallel.h"
#include "fp4lab/base/random.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/transform/hadamard.h"

namespace fp4lab {
namespace {

// 256 x 512 floats, 512 KiB: second-level cache. Uniform in (-1, 1), rounded to BF16.
Matrix<float> Input() {
  Matrix<float> x(256, 512);
  const RandomStream stream{.seed = 7};
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    x.values[i] = RoundToBf16(static_cast<float>(2.0 * UniformOpen(stream.Bits32(i)) - 1.0));
  }
  return x;
}

void Report(benchmark::State& state, std::size_t elements) {
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(elements));
}

QuantizeOptions OptionsOf(const BlockFormat& format, Rounding rounding, const Matrix<float>& x) {
  return {
      .format = format, .rounding = rounding, .random = {.seed = 1}, .amax = TensorAmax(x.View())};
}

// Checked before it is timed: a benchmark of wrong bytes is worth nothing.
bool SameAsReference(MatrixView<const float> x, const QuantizeOptions& options) {
  return Quantize(x, options) == reference::Quantize(x, options);
}

void BM_Values(benchmark::State& state, BlockFormat format, Rounding rounding, bool transposed) {
  SetThreads(1);
  const Matrix<float> x = Input();
  Matrix<float> y(x.rows, x.cols);
  const QuantizeOptions options = OptionsOf(format, rounding, x);
  const auto from = transposed ? x.View().Transposed() : x.View();
  const auto to = transposed ? y.View().Transposed() : y.View();
  if (!SameAsReference(from, options)) state.SkipWithError("not the reference's bytes");
  for (auto _ : state) {
    QuantizeToValues(from, options, to);
    benchmark::DoNotOptimize(y.values.data());
    benchmark::ClobberMemory();
  }
  Report(state, x.values.size());
}

void BM_Codes(benchmark::State& state, BlockFormat format, Rounding rounding, bool transposed) {
  SetThreads(1);
  const Matrix<float> x = Input();
  const QuantizeOptions options = OptionsOf(format, rounding, x);
  const auto from = transposed ? x.View().Transposed() : x.View();
  if (!SameAsReference(from, options)) state.SkipWithError("not the reference's bytes");
  for (auto _ : state) benchmark::DoNotOptimize(Quantize(from, options).codes.data());
  Report(state, x.values.size());
}

void BM_Reference(benchmark::State& state, BlockFormat format, Rounding rounding) {
  const Matrix<float> x = Input();
  const QuantizeOptions options = OptionsOf(format, rounding, x);
  for (auto _ : state) {
    benchmark::DoNotOptimize(reference::Quantize(x.View(), options).codes.data());
  }
  Report(state, x.values.size());
}

void BM_Amax(benchmark::State& state) {
  SetThreads(1);
  const Matrix<float> x = Input();
  for (auto _ : state) benchmark::DoNotOptimize(TensorAmax(x.View()));
  Report(state, x.values.size());
}

void BM_Hadamard(benchmark::State& state, int size, bool transposed) {
  SetThreads(1);
  const Matrix<float> x = Input();
  Matrix<float> y(x.rows, x.cols);
  const auto from = transposed ? x.View().Transposed() : x.View();
  const auto to = transposed ? y.View().Transposed() : y.View();
  for (auto _ : state) {
    RandomHadamard(from, size, kTeSignMask32, to);
    benchmark::DoNotOptimize(y.values.data());
    benchmark::ClobberMemory();
  }
  Report(state, x.values.size());
}

void BM_Decode(benchmark::State& state, BlockFormat format) {
  SetThreads(1);
  const Matrix<float> x = Input();
  const QuantizedMatrix q = Quantize(x.View(), OptionsOf(format, Rounding::kNearestEven, x));
  Matrix<float> y(x.rows, x.cols);
  for (auto _ : state) {
    UnscaledValues(q, y.View());
    benchmark::DoNotOptimize(y.values.data());
    benchmark::ClobberMemory();
  }
  Report(state, x.values.size());
}

const int kRegistered = [] {
  for (const char* name :
       {"nvfp4", "nvfp4.2d", "mxfp4.rceil", "mxfp4.ceil.2d", "mxfp8_e4m3.floor", "fp8_e4m3"}) {
    const BlockFormat format = *FindBlockFormat(name);
    for (const Rounding rounding : {Rounding::kNearestEven, Rounding::kStochastic}) {
      const std::string mode = rounding == Rounding::kStochastic ? "/sr" : "/rne";
      for (const bool transposed : {false, true}) {
        const std::string where = transposed ? "/columns" : "/rows";
        benchmark::RegisterBenchmark(("values/" + std::string(name) + mode + where).c_str(),
                                     BM_Values, format, rounding, transposed);
        benchmark::RegisterBenchmark(("codes/" + std::string(name) + mode + where).c_str(),
                                     BM_Codes, format, rounding, transposed);
      }
    }
    benchmark::RegisterBenchmark(("decode/" + std::string(name)).c_str(), BM_Decode, format);
  }
  const BlockFormat nvfp4 = *FindBlockFormat("nvfp4");
  benchmark::RegisterBenchmark("reference/nvfp4/rne", BM_Reference, nvfp4, Rounding::kNearestEven);
  benchmark::RegisterBenchmark("reference/nvfp4/sr", BM_Reference, nvfp4, Rounding::kStochastic);
  benchmark::RegisterBenchmark("amax", BM_Amax);
  for (const int size : {16, 32}) {
    for (const bool transposed : {false, true}) {
      benchmark::RegisterBenchmark(
          ("hadamard" + std::to_string(size) + (transposed ? "/columns" : "/rows")).c_str(),
          BM_Hadamard, size, transposed);
    }
  }
  return 0;
}();

}  // namespace
}  // namespace fp4lab
