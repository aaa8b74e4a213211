// The block quantizers, the Hadamard transform and what fuses them: elements a second, beside
// memcpy and a pass that only reads, in the second-level cache and from memory, one thread.
//
// Every result is checked against the scalar reference before it is timed (in the cached size). The
// SIMD target is that of FP4LAB_TARGET.
#include <benchmark/benchmark.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include "fp4lab/base/aligned.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/base/random.h"
#include "fp4lab/base/simd.h"
#include "fp4lab/block/fp4_integers.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/transform/hadamard_quantize.h"

namespace fp4lab {
namespace {

// Normal numbers (a sum of uniform ones) rounded to BF16, on a cache line; room for all results.
struct Data {
  std::size_t rows, cols;
  FloatBuffer x, y;
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;
  QuantizedMatrix q, turned;
  float amax = 0.0f;

  Data(std::size_t rows, std::size_t cols) : rows(rows), cols(cols), x(rows * cols), y(x.size()) {
    const RandomStream stream{.seed = 7};
    for (std::size_t i = 0; i < x.size(); i += 2) {
      const PhiloxBlock b = stream.Block(i);
      const double wide = UniformOpen(b[0]) + UniformOpen(b[1]) + UniformOpen(b[2]);
      x[i] = RoundToBf16(static_cast<float>(wide - 1.5));
      x[i + 1] = RoundToBf16(static_cast<float>(UniformOpen(b[3]) - 0.5) * x[i]);
    }
    codes.resize(x.size());
    scales.resize(x.size() / 16);
    amax = TensorAmax(X());
  }
  MatrixView<const float> X() const { return {x.data(), rows, cols}; }
  MatrixView<float> Y() { return {y.data(), rows, cols}; }
};

struct Case {
  BlockFormat format;
  Rounding rounding = Rounding::kNearestEven;
  int random_bits = 16;
  bool columns = false;
  bool hadamard = false;

  QuantizeOptions Options(const Data& d) const {
    return {.format = format,
            .rounding = rounding,
            .random = {.seed = 1},
            .random_bits = random_bits,
            .amax = d.amax};
  }
  template <class V>
  V Turn(V view) const {
    return columns ? view.Transposed() : view;
  }
  MatrixView<const float> X(const Data& d) const { return Turn(d.X()); }
};

bool SameAsReference(const Case& c, Data* d) {
  MatrixView<const float> x = c.X(*d);
  if (c.hadamard) {
    reference::RandomHadamard(x, 16, kTeSignMask16, c.Turn(d->Y()));
    x = c.Turn(MatrixView<const float>(d->Y()));
    HadamardQuantize(c.X(*d), 16, kTeSignMask16, c.Options(*d), &d->q);
  } else {
    Quantize(x, c.Options(*d), &d->q);
  }
  return d->q == reference::Quantize(x, c.Options(*d));
}

void Codes(const Case& c, Data* d) {
  if (c.hadamard) return HadamardQuantize(c.X(*d), 16, kTeSignMask16, c.Options(*d), &d->q);
  Quantize(c.X(*d), c.Options(*d), &d->q);
}

void Values(const Case& c, Data* d) { QuantizeToValues(c.X(*d), c.Options(*d), c.Turn(d->Y())); }

void Integers(const Case& c, Data* d) {
  const auto m = static_cast<std::size_t>(c.format.block_rows);
  const auto n = static_cast<std::size_t>(c.format.block_cols);
  const MatrixView<const float> x = c.X(*d);
  const MatrixView<std::uint8_t> codes(d->codes.data(), d->rows, d->cols);
  const std::size_t rows = x.rows / m, cols = x.cols / n;
  MatrixView<float> scales(d->scales.data(), rows, cols);
  if (c.columns) scales = MatrixView<float>(d->scales.data(), cols, rows).Transposed();
  const Fp4Integers out{c.Turn(codes), scales};
  if (c.hadamard) {
    HadamardQuantizeToFp4Integers(x, 16, kTeSignMask16, c.Options(*d), out);
  } else {
    QuantizeToFp4Integers(x, c.Options(*d), out);
  }
}

using Body = std::function<void(Data*)>;

void Run(benchmark::State& state, bool from_memory, const Body& body, const Case* check) {
  SetThreads(1);
  PinSimdTargetFromEnvironment();
  static std::unique_ptr<Data> cached, large;
  std::unique_ptr<Data>& data = from_memory ? large : cached;
  if (data == nullptr) {
    data = from_memory ? std::make_unique<Data>(8192, 4096) : std::make_unique<Data>(256, 512);
  }
  if (check != nullptr && !from_memory && !SameAsReference(*check, data.get())) {
    state.SkipWithError("not the reference's bytes");
  }
  for (auto _ : state) {
    body(data.get());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(data->x.size()));
  state.SetLabel(ActiveSimdTarget());
}

void Register(const std::string& name, const Body& body, const Case* check = nullptr) {
  const std::shared_ptr<Case> kept = check == nullptr ? nullptr : std::make_shared<Case>(*check);
  for (const bool from_memory : {false, true}) {
    benchmark::RegisterBenchmark(
        ("quantize/" + std::string(from_memory ? "memory/" : "cache/") + name).c_str(),
        [=](benchmark::State& state) { Run(state, from_memory, body, kept.get()); });
  }
}

void RegisterFormats() {
  for (const char* name : {"nvfp4", "nvfp4.2d", "mxfp4.rceil", "mxfp8_e4m3.floor", "fp8_e4m3"}) {
    const BlockFormat format = *FindBlockFormat(name);
    for (const bool columns : {false, true}) {
      const std::string where = std::string(name) + (columns ? "/columns" : "/rows");
      const Case c{.format = format, .columns = columns};
      Register(
          "codes/" + where, [=](Data* d) { Codes(c, d); }, &c);
      Register("values/" + where, [=](Data* d) { Values(c, d); });
      if (HasFp4Integers(format)) Register("integers/" + where, [=](Data* d) { Integers(c, d); });
    }
    Register("decode/" + std::string(name), [=](Data* d) {
      if (d->q.format != format || d->q.rows != d->rows) Codes({.format = format}, d);
      UnscaledValues(d->q, d->Y());
    });
  }
}

void RegisterNvfp4() {
  const BlockFormat nvfp4 = *FindBlockFormat("nvfp4");
  for (const bool columns : {false, true}) {
    const std::string where = columns ? "/columns" : "/rows";
    for (const int bits : {8, 16, 32}) {
      const Case c{nvfp4, Rounding::kStochastic, bits, columns};
      const std::string name = "stochastic" + std::to_string(bits) + where;
      Register(
          "codes/" + name, [=](Data* d) { Codes(c, d); }, &c);
      Register("integers/" + name, [=](Data* d) { Integers(c, d); });
    }
    const Case c{.format = nvfp4, .columns = columns, .hadamard = true};
    Register(
        "codes/hadamard16" + where, [=](Data* d) { Codes(c, d); }, &c);
    Register("integers/hadamard16" + where, [=](Data* d) { Integers(c, d); });
    Register("hadamard16_amax" + where,
             [=](Data* d) { benchmark::DoNotOptimize(HadamardAmax(c.X(*d), 16, kTeSignMask16)); });
    Register("hadamard16" + where,
             [=](Data* d) { RandomHadamard(c.X(*d), 16, kTeSignMask16, c.Turn(d->Y())); });
  }
  Register("codes/nvfp4/both_ways", [=](Data* d) {
    const QuantizeOptions options = Case{.format = nvfp4}.Options(*d);
    QuantizeBothWays(d->X(), options, options, &d->q, &d->turned);
  });
  Register("codes/nvfp4/with_amax", [=](Data* d) {
    QuantizeOptions options = Case{.format = nvfp4}.Options(*d);
    options.amax = TensorAmax(d->X());
    Quantize(d->X(), options, &d->q);
  });
}

const int kRegistered = [] {
  Register("memcpy", [](Data* d) { std::memcpy(d->y.data(), d->x.data(), 4 * d->x.size()); });
  Register("amax", [](Data* d) { benchmark::DoNotOptimize(TensorAmax(d->X())); });
  RegisterFormats();
  RegisterNvfp4();
  return 0;
}();

}  // namespace
}  // namespace fp4lab
