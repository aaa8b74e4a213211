// Formats, quantizers, transforms and products under the floating-point states of host programs.
#include <bit>
#include <functional>
#include <string>
#include <vector>

#include "fp4lab/base/text/text.h"
#include "fp4lab/block/fp4_integers.h"
#include "fp4lab/block/tuned.h"
#include "fp4lab/dialect/describe.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/formats/encode.h"
#include "fp4lab/formats/replay.h"
#include "fp4lab/formats/stochastic_verdict.h"
#include "fp4lab/formats/tail_bounds.h"
#include "fp4lab/quantize/behaviours.h"
#include "fp4lab/quantize/blocks.h"
#include "fp4lab/quantize/diagnostics/block_statistics.h"
#include "fp4lab/quantize/operand.h"
#include "fp4lab/quantize/quantize.h"
#include "fp4lab/quantize/replay.h"
#include "fp4lab/quantize/statistics.h"
#include "fp4lab/te/gemm.h"
#include "fp4lab/te/quantize.h"
#include "fp4lab/tensor/accumulation.h"
#include "fp4lab/tensor/fp4_gemm.h"
#include "fp4lab/tensor/gemm.h"
#include "fp4lab/tensor/tensor_core.h"
#include "fp4lab/tensor/tensor_core_gemm.h"
#include "fp4lab/transform/hadamard.h"
#include "fp4lab/transform/hadamard_quantize.h"
#include "tests/ieee/host_states.h"
#include "tests/ieee/inputs.h"

namespace fp4lab::host {
namespace {

constexpr RandomStream kStream{.seed = 3, .step = 1, .tensor = 2};

// The options of every dialect: random bits where it takes them.
DialectOptions OptionsFor(const Dialect& dialect) {
  DialectOptions options;
  if (TakesRandomBits(dialect)) options.source = RandomSource{.stream = kStream};
  return options;
}

Matrix<float> ValuesOf(const Matrix<float>& x,
                       const std::function<void(MatrixView<float>)>& write) {
  Matrix<float> out(x.rows, x.cols);
  write(out.View());
  return out;
}

void AddFormats(std::vector<Call>* calls) {
  for (const NamedFormat& f : kFormats) {
    for (const NamedInput& input : Inputs()) {
      const std::string of = std::string(f.name) + ", " + input.name;
      const std::vector<float>& x = input.x.values;
      std::vector<std::uint32_t> bits(x.size());
      for (std::size_t i = 0; i < bits.size(); ++i) {
        bits[i] =
            static_cast<std::uint32_t>(i) & (f.format.bits < 32 ? (1u << f.format.bits) - 1 : ~0u);
      }
      calls->push_back(CallOf("Encode " + of, [&x, id = f.id] {
        std::vector<std::uint32_t> near(x.size()), random(x.size());
        Encode(id, x, std::span(near));
        Encode(id, x, std::span(random), {.rounding = Rounding::kStochastic, .random = kStream});
        return std::tuple{near, random};
      }));
      calls->push_back(CallOf("Decode " + of, [bits, id = f.id] {
        std::vector<float> values(bits.size());
        Decode(id, std::span<const std::uint32_t>(bits), std::span(values));
        return values;
      }));
    }
  }
  // Constexpr functions of headers, which hold no guard: they are integers only.
  for (const NamedFormat& f : kFormats) {
    calls->push_back(CallOf("Encode and Decode of one number " + std::string(f.name), [&f] {
      std::vector<std::uint32_t> codes;
      std::vector<float> values;
      for (const NamedInput& input : Inputs()) {
        for (const float v : input.x.values) {
          codes.push_back(Encode(f.format, v, Rounding::kNearestEven));
          codes.push_back(Encode(f.format, v, Rounding::kStochastic, 0x9E37u));
          codes.push_back(Encode(f.format, v, Rounding::kTowardZero));
          values.push_back(Decode(f.format, codes.back()));
          values.push_back(RoundToBf16(v));
        }
      }
      return std::tuple{codes, values};
    }));
  }
  for (const NamedInput& input : Inputs()) {
    const std::vector<float>& x = input.x.values;
    calls->push_back(CallOf("RoundToBf16 " + input.name, [&x] {
      std::vector<float> values(x.size());
      RoundToBf16(x, values);
      return values;
    }));
    calls->push_back(CallOf("EncodeReplayed " + input.name, [&x] {
      const std::vector<std::uint32_t> words(x.size() / 4, 0x12345678u);
      std::vector<std::uint32_t> codes(x.size());
      EncodeReplayed(FormatId::kE2M1, RandomForm::kTe8, x, words, codes);
      std::vector<std::uint32_t> ups;
      for (const float v : x) ups.push_back(UpCount(FormatId::kE2M1, RandomForm::kCvtRs, v));
      return std::tuple{codes, ups};
    }));
    calls->push_back(CallOf("ShortestText " + input.name, [&x] {
      std::string text;
      for (const float v : x) text += ShortestText(v) + " ";
      return text;
    }));
  }
}

void AddDialects(std::vector<Call>* calls) {
  for (const Dialect& d : Dialects()) {
    for (const NamedInput& input : Inputs()) {
      const std::string of = " " + std::string(d.name) + ", " + input.name;
      const MatrixView<const float> x = input.x.View();
      const auto both = [x, &d] {
        return std::tuple{QuantizeAs(d, x, OptionsFor(d)),
                          reference::QuantizeAs(d, x, OptionsFor(d))};
      };
      calls->push_back(CallOf("QuantizeAs" + of, both));
      const Quantized q = QuantizeAs(d, x, OptionsFor(d));
      calls->push_back(CallOf("DequantizeAs" + of, [q, &d] { return DequantizeAs(d, q); }));
      calls->push_back(CallOf("IsAllowed" + of, [q, x, &d] {
        const Allowed a = IsAllowed(d, x, q, OptionsFor(d));
        return std::tuple{a.ok, a.scales_outside, a.codes_outside};
      }));
      calls->push_back(CallOf("QuantizeToValues" + of, [x, &d, &input] {
        DialectOptions options = OptionsFor(d);
        options.amax = TensorAmaxes(d, x, options);
        return std::tuple{options.amax, ValuesOf(input.x, [&](MatrixView<float> out) {
                            QuantizeToValues(d, x, options, out);
                          })};
      }));
      calls->push_back(CallOf("ToOperandValues" + of, [q, &d, &input] {
        return ValuesOf(input.x, [&](MatrixView<float> out) { ToOperandValues(d, q, out); });
      }));
      calls->push_back(CallOf("MeasureQuantization" + of, [q, x, &d] {
        return std::tuple{MeasureQuantization(d, x, q).values.numbers,
                          MeasureBlockErrors(d, x, q).relative, MeasureScales(d, q).Spread(),
                          MeasureScales(d, q).ZeroPercent()};
      }));
      calls->push_back(CallOf("TraceAs" + of, [x, &d] {
        const Trace t = TraceAs(d, x, 1, 17, OptionsFor(d));
        return std::tuple{t.encode, t.decode, t.block_amax, t.scale_before,   t.scale,
                          t.factor, t.scaled, t.code,       t.scale_tie_ulps, t.code_tie_ulps};
      }));
    }
    calls->push_back(CallOf("Behaviours " + std::string(d.name), [&d] {
      std::string bytes;
      for (const Behaviour& b : Behaviours(d)) {
        bytes += std::string(b.input) + BytesOf(std::tuple{b.scale, b.code, b.neighbour});
      }
      return bytes;
    }));
    calls->push_back(CallOf("Describe " + std::string(d.name), [&d] {
      std::string text;
      for (const DialectLine& line : Describe(d)) {
        text += std::string(line.stage) + line.text;
      }
      return text;
    }));
  }
}

void AddTuned(std::vector<Call>* calls) {
  for (const Dialect& d : Dialects()) {
    if (!WhyNotTuned(d).empty() || IsStochastic(d)) continue;
    for (const NamedInput& input : Inputs()) {
      const std::string of = " " + std::string(d.name) + ", " + input.name;
      const MatrixView<const float> x = input.x.View();
      calls->push_back(CallOf("Quantize" + of, [x, &d] {
        const QuantizeOptions stochastic{WithRounding(d, ElementRounding::kStochastic16), kStream};
        return std::tuple{Quantize(x, {d}), Quantize(x, stochastic), TensorAmax(x)};
      }));
      calls->push_back(CallOf("QuantizeBothWays" + of, [x, &d] {
        Quantized rows, columns;
        QuantizeBothWays(x, {d}, {d}, &rows, &columns);
        return std::tuple{rows, columns};
      }));
      const Quantized q = Quantize(x, {d});
      calls->push_back(CallOf("Dequantize" + of, [q, &d, &input] {
        return std::tuple{
            ValuesOf(input.x, [&](MatrixView<float> out) { Dequantize(d, q, out); }),
            ValuesOf(input.x, [&](MatrixView<float> out) { BlockScaledValues(d, q, out); }),
            ValuesOf(input.x, [&](MatrixView<float> out) {
              QuantizeToValues(input.x.View(), QuantizeOptions{d}, out);
            })};
      }));
      if (!HasFp4Integers(d)) continue;
      calls->push_back(CallOf("QuantizeToFp4Integers" + of, [x, &d] {
        const auto lines = static_cast<std::size_t>(d.block_rows),
                   length = static_cast<std::size_t>(d.block_cols);
        Matrix<std::uint8_t> codes(x.rows, x.cols);
        Matrix<float> scales((x.rows + lines - 1) / lines, (x.cols + length - 1) / length);
        const bool fits =
            QuantizeToFp4Integers(x, QuantizeOptions{d}, {codes.View(), scales.View()});
        return fits ? std::tuple{fits, codes, scales}
                    : std::tuple{fits, Matrix<std::uint8_t>(), Matrix<float>()};
      }));
    }
  }
}

void AddTransforms(std::vector<Call>* calls) {
  const Dialect& te = *FindDialect("nvfp4.te");
  for (const NamedInput& input : Inputs()) {
    const Matrix<float> x = Bf16Matrix(input.x);
    for (const int size : {16, 32}) {
      const std::string of = " " + std::to_string(size) + ", " + input.name;
      calls->push_back(CallOf("RandomHadamard" + of, [x, size] {
        return std::tuple{ValuesOf(x,
                                   [&](MatrixView<float> out) {
                                     RandomHadamard(x.View(), size, kTeSignMask32, out);
                                   }),
                          ValuesOf(x, [&](MatrixView<float> out) {
                            reference::RandomHadamard(x.View(), size, kTeSignMask32, out);
                          })};
      }));
      calls->push_back(CallOf("HadamardQuantize" + of, [x, size, &te] {
        Quantized q;
        HadamardQuantize(x.View(), size, kTeSignMask32, {te}, &q);
        return std::tuple{q, HadamardAmax(x.View(), size, kTeSignMask32),
                          ValuesOf(x, [&](MatrixView<float> out) {
                            HadamardQuantizeToValues(x.View(), size, kTeSignMask32, {te}, out);
                          })};
      }));
    }
  }
}

void AddProducts(std::vector<Call>* calls) {
  for (const char* name : {"nvfp4.te", "mxfp4.rceil"}) {
    const Dialect& d = *FindDialect(name);
    for (const NamedInput& input : Inputs()) {
      const MmaOperand a = MakeMmaOperand(d, Quantize(input.x.View(), {d}));
      const MmaOperand b =
          MakeMmaOperand(d, Quantize(RandomMatrix(7, input.x.cols, 0, 130).View(), {d}));
      for (const Accumulation& sum : Accumulations()) {
        if (!WhyNot(sum, a, b).empty()) continue;
        const auto product = [a, b, &sum] {
          Matrix<float> c(a.rows, b.rows);
          GemmAs(sum, a, b, {.alpha = 0x1.8p-130f}, c.View());
          return c;
        };
        calls->push_back(
            CallOf("GemmAs " + std::string(sum.name) + ", " + name + ", " + input.name, product));
      }
      calls->push_back(CallOf("ExactValues " + std::string(name) + ", " + input.name, [a] {
        return std::tuple{ExactValues(a), FloatValues(a)};
      }));
    }
  }
  const Matrix<float> a = RandomMatrix(9, 64, 0, 190), b = RandomMatrix(6, 64, 60, 10, 2);
  calls->push_back(CallOf("Gemm", [a, b] {
    Matrix<float> fused(9, 6), blocks(9, 6), scalar(9, 6);
    Gemm(a.View(), b.View(), {}, fused.View());
    Gemm(a.View(), b.View(), {.block = 16, .alpha = 0.3f}, blocks.View());
    reference::Gemm(a.View(), b.View(), {.block = 16, .alpha = 0.3f}, scalar.View());
    return std::tuple{fused, blocks, scalar};
  }));
  calls->push_back(CallOf("FinishProduct", [a] {
    std::vector<float> values;
    for (const float y : a.values) {
      values.push_back(FinishProduct(y, {.alpha = 0.3f}));
      values.push_back(FinishProduct(y, {.alpha = 0.3f, .output = GemmOutput::kFp16}));
    }
    return values;
  }));
}

void AddTransformerEngine(std::vector<Call>* calls) {
  for (const NamedInput& input : Inputs()) {
    std::vector<std::uint16_t> bits;
    for (const float v : input.x.values) {
      bits.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(v) >> 16));
    }
    const std::size_t rows = input.x.rows / 16 * 16, cols = input.x.cols;
    if (rows == 0) continue;
    calls->push_back(CallOf("TeQuantize " + input.name, [bits, rows, cols] {
      const TeMatrix x{.bf16 = bits.data(), .rows = rows, .cols = cols};
      float amax = 0, transformed = 0;
      TeAmaxes(x, kTeSignMask16, &amax, &transformed);
      std::string bytes = BytesOf(std::tuple{amax, transformed});
      for (const auto quantize : {TeQuantize, reference::TeQuantize}) {
        std::vector<std::uint8_t> a(rows * cols / 2), b(a), s(rows * cols / 16), t(s);
        quantize(x, {.hadamard = true,
                     .sign_mask = kTeSignMask16,
                     .stochastic = true,
                     .seed = 7,
                     .rows = {a.data(), s.data(), cols / 16, amax},
                     .columns = {b.data(), t.data(), rows / 16, transformed}});
        bytes += BytesOf(std::tuple{a, b, s, t});
      }
      return bytes;
    }));
    std::vector<std::uint8_t> codes(rows * cols / 2), scales(rows * cols / 16);
    for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(37 * i);
    for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<std::uint8_t>(i % 127);
    calls->push_back(CallOf("PackedFp4Gemm " + input.name, [codes, scales, rows, cols] {
      const PackedFp4 side{codes.data(), scales.data(), cols / 16, rows, cols};
      std::vector<float> y(rows * rows), z(rows * rows);
      PackedFp4Gemm(side, side, 0x1.2p-140f, {}, {.fp32 = y.data(), .rows = rows, .cols = rows});
      reference::PackedFp4Gemm(side, side, 0x1.2p-140f, {},
                               {.fp32 = z.data(), .rows = rows, .cols = rows});
      return std::tuple{y, z};
    }));
  }
}

void AddStochasticVerdicts(std::vector<Call>* calls) {
  calls->push_back(CallOf("JudgeStochastic", [] {
    const Matrix<float> x = RandomMatrix(4, 32, 124, 3);
    std::vector<std::vector<std::uint8_t>> runs;
    StochasticSample sample{.rows = x.rows, .cols = x.cols, .scaled = x.values, .outputs = {}};
    for (std::uint64_t run = 0; run < 24; ++run) {
      std::vector<std::uint8_t> codes(x.values.size());
      Encode(FormatId::kE2M1, x.values, std::span(codes),
             {.rounding = Rounding::kStochastic, .random = {.seed = run, .step = 0, .tensor = 0}});
      runs.push_back(codes);
    }
    for (const std::vector<std::uint8_t>& codes : runs) sample.outputs.emplace_back(codes);
    const StochasticVerdict verdict = JudgeStochastic(sample);
    std::string bytes = verdict.reason;
    for (const StochasticStatistic& s : verdict.statistics) {
      bytes += std::string(s.name) + s.what + BytesOf(s.p_value);
    }
    return bytes;
  }));
  calls->push_back(CallOf("BinomialPValue", [] {
    DrawSum sum;
    sum.Add(0.3, 100, 20);
    sum.Add(0.1, 50, 9);
    return std::tuple{BinomialPValue(100, 20, 0.3), sum.PValue(), sum.PValueOf(0), sum.Mean()};
  }));
}

TEST_CASE("Formats give the same bytes in every state of the host", "[ieee]") {
  std::vector<Call> calls;
  AddFormats(&calls);
  AddStochasticVerdicts(&calls);
  CheckCalls(calls);
}

TEST_CASE("Quantizers give the same bytes in every state of the host", "[ieee]") {
  std::vector<Call> calls;
  AddDialects(&calls);
  AddTuned(&calls);
  CheckCalls(calls);
}

TEST_CASE("Transforms and products give the same bytes in every state of the host", "[ieee]") {
  std::vector<Call> calls;
  AddTransforms(&calls);
  AddProducts(&calls);
  AddTransformerEngine(&calls);
  CheckCalls(calls);
}

TEST_CASE("Two blocks of 1e-40 have scale 3 in nvfp4.te where the host flushes subnormals",
          "[ieee]") {
  const Call call = CallOf("scales", [] {
    const Matrix<float>& x = Inputs().back().x;
    return QuantizeAs(*FindDialect("nvfp4.te"), x.View()).scales;
  });
  for (const NamedState& s : HostStates()) {
    CAPTURE(s.name);
    CHECK(BytesUnder(s.state, call) == BytesOf(std::vector<std::uint8_t>(4, 3)));
  }
}

}  // namespace
}  // namespace fp4lab::host
