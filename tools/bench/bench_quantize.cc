// Rows of `fp4lab bench`: quantizers and dequantizers, compared with passes that only move memory.
#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "fp4lab/base/threads_scope.h"
#include "fp4lab/block/packing.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/measure/probes.h"
#include "fp4lab/quantize/quantize.h"
#include "fp4lab/transform/hadamard.h"
#include "fp4lab/transform/hadamard_quantize.h"
#include "tools/bench/bench_rows.h"

namespace fp4lab::tools {
namespace {

using measure::Cell;
using measure::Work;
using View = MatrixView<const float>;

QuantizeOptions OptionsFor(const std::string& name, View x, ElementRounding rounding) {
  return {.dialect = WithRounding(*FindDialect(name), rounding),
          .random = {.seed = 1},
          .amax = TensorAmax(x)};
}

// Checks that the kernel's bytes on the first rows of x are the reference's.
void Check(View x, const QuantizeOptions& options) {
  const View part = x.Block(0, 0, std::min<std::size_t>(x.rows, 32), x.cols);
  const Quantized got = Quantize(part, options);
  const Quantized want = reference::QuantizeAs(
      options.dialect, part,
      {.amax = {options.amax.value_or(TensorAmax(part))}, .source = RandomSource{options.random}});
  Expects(InOrder(got, CodeOrder::kBytes) == want,
          "a quantizer under measurement gives the reference's bytes");
}

// The place of a row's input, and the number of threads that work on it.
struct Place {
  const char* id;
  const char* text;
  bool in_memory;
  bool all_threads;
};
constexpr Place kMemory = {"dram", "from DRAM, all threads", true, true};
constexpr Place kMemoryOne = {"dram-1", "from DRAM, 1 thread", true, false};
constexpr Place kCache = {"l2", "in L2, 1 thread", false, false};

int ThreadsAt(const Place& place, const BenchContext& c) {
  return place.all_threads ? c.threads : 1;
}
View InputAt(const Place& place, const BenchContext& c) {
  return place.in_memory ? c.inputs->InMemory() : c.inputs->InCache();
}

// Quantizes x into codes and scales whose memory the first call allocates.
Work Quantizing(View x, const QuantizeOptions& options) {
  Check(x, options);
  const auto q = std::make_shared<Quantized>();
  return [x, options, q] { Quantize(x, options, q.get()); };
}

Work Maximum(View x) {
  return [x] { TensorAmax(x); };
}

// Copies the bytes of x with memcpy.
Work Copying(View x, std::span<std::byte> to) {
  const auto from = std::as_bytes(std::span(x.data, x.size()));
  return [from, to] { measure::CopyBytes(from, to.first(from.size())); };
}

constexpr const char* kMoving = "moving the same bytes";

// Reads x and writes as many bytes as its codes and scales have, `outputs` times: what a kernel
// from DRAM must do at least.
Limit Moving(const BenchContext& c, View x, const QuantizeOptions& options,
             std::size_t outputs = 1) {
  const Quantized row = Quantize(x.Block(0, 0, 1, x.cols), options);
  const auto from = std::as_bytes(std::span(x.data, x.size()));
  const std::span<std::byte> to =
      c.inputs->MemoryOutput().first(outputs * x.rows * (row.codes.size() + row.scales.size()));
  return {[from, to] { measure::MoveBytes(from, to); }, kMoving};
}

constexpr double kGiga = 1e-9;
constexpr const char* kQuantizeTopic = "Quantize and dequantize";

BenchEntry AgainstAmax(const Place& place, const std::string& format, bool two_passes,
                       double bound) {
  BenchEntry e{
      .id = "quantize." + format + "." + place.id + (two_passes ? ".two-pass" : ""),
      .topic = kQuantizeTopic,
      .what = format + (two_passes ? ", amax found first (two passes), " : ", ") + place.text,
      .unit = "G elements/s",
      .against = "read-only amax pass",
      .target = AtLeast(bound)};
  e.measure = [place, format, two_passes](const BenchContext& c) {
    const int threads = ThreadsAt(place, c);
    const ThreadsScope scope(threads);
    const View x = InputAt(place, c);
    const QuantizeOptions options = OptionsFor(format, x, ElementRounding::kNearestEven);
    Work ours = Quantizing(x, options);
    Limit limit = Moving(c, x, options);
    if (two_passes) {
      limit = {[x, move = limit.work] {
                 TensorAmax(x);
                 move();
               },
               "amax, then " + limit.name};
      ours = [x, options, q = std::make_shared<Quantized>()] {
        QuantizeOptions o = options;
        o.amax = TensorAmax(x);
        Quantize(x, o, q.get());
      };
    }
    return CompareRates(c.On(threads), kGiga * static_cast<double>(x.size()), ours,
                        {{"", Maximum(x)}}, limit);
  };
  return e;
}

// Against a pass that reads x and writes as many bytes as the codes and scales have.
BenchEntry AgainstSameBytes(const std::string& format, double bound) {
  BenchEntry e{.id = "quantize." + format + "." + kMemory.id + ".same-bytes",
               .topic = kQuantizeTopic,
               .what = format + ", " + kMemory.text,
               .unit = "G elements/s",
               .against = "pass that moves the same bytes",
               .target = AtLeast(bound)};
  e.measure = [format](const BenchContext& c) {
    const ThreadsScope scope(c.threads);
    const View x = c.inputs->InMemory();
    const QuantizeOptions options = OptionsFor(format, x, ElementRounding::kNearestEven);
    return CompareRates(c.AllThreads(), kGiga * static_cast<double>(x.size()),
                        Quantizing(x, options), {{"", Moving(c, x, options).work}});
  };
  return e;
}

BenchEntry AgainstCopy(const Place& place, double bound) {
  BenchEntry e{.id = std::string("quantize.nvfp4.") + place.id + ".memcpy",
               .topic = kQuantizeTopic,
               .what = std::string("nvfp4, ") + place.text,
               .unit = "G elements/s",
               .against = "memcpy of the input",
               .target = AtLeast(bound)};
  e.measure = [place](const BenchContext& c) {
    const int threads = ThreadsAt(place, c);
    const ThreadsScope scope(threads);
    const View x = InputAt(place, c);
    const QuantizeOptions options = OptionsFor("nvfp4", x, ElementRounding::kNearestEven);
    std::vector<std::byte> cache_output(place.in_memory ? 0 : x.size() * sizeof(float));
    const std::span<std::byte> to =
        place.in_memory ? c.inputs->MemoryOutput() : std::span<std::byte>(cache_output);
    const auto ours = [options](View v) { return Quantizing(v, options); };
    return CompareRates(c.On(threads), kGiga * static_cast<double>(x.size()), ours(x),
                        {{"", Copying(x, to)}},
                        place.in_memory ? Moving(c, x, options) : OwnInstructions(ours, x));
  };
  return e;
}

// A row in cycles: the kernel takes turns with a dependent chain of known length in cycles
// (measure/probes.h).
BenchEntry Cycles(const std::string& format, double bound) {
  BenchEntry e{.id = "quantize." + format + ".l2.cycles",
               .topic = kQuantizeTopic,
               .what = format + ", in L2, 1 thread",
               .unit = "cycles / 16 elements",
               .against = "cycles of the clock",
               .target = AtMost(bound)};
  e.measure = [format](const BenchContext& c) {
    const ThreadsScope scope(1);
    const View x = c.inputs->InCache();
    constexpr std::size_t kCycles = 1'000'000;
    const QuantizeOptions options = OptionsFor(format, x, ElementRounding::kNearestEven);
    const auto ours = [options](View v) { return Quantizing(v, options); };
    const Cell cell =
        CompareTimes(c.OneThread(), 1, ours(x), {{"", [] { measure::SpendCycles(kCycles); }}},
                     OwnInstructions(ours, x));
    const double scale = static_cast<double>(kCycles) / (static_cast<double>(x.size()) / 16);
    const auto scaled = [&](const measure::Summary& r) {
      return measure::Summary{r.median * scale, r.low * scale, r.high * scale, r.count};
    };
    return Cell{
        .value = scaled(*cell.ratio), .limit = scaled(*cell.limit), .limit_of = cell.limit_of};
  };
  return e;
}

// A way to quantize nvfp4 that is compared with 1x16 blocks rounded to nearest even, as a ratio of
// times or of rates.
struct Variant {
  const char* id;
  const char* what;
  Place place;
  measure::Target target;
  std::function<Work(View x)> make;
  // The limit that any kernel of the variant has; empty: that of its own instructions.
  std::function<Limit(const BenchContext& c, View x)> least = {};
};

template <ElementRounding kRounding>
Work Stochastic(View x) {
  return Quantizing(x, OptionsFor("nvfp4", x, kRounding));
}

Work Squares(View x) {
  return Quantizing(x, OptionsFor("nvfp4.2d", x, ElementRounding::kNearestEven));
}

Work BothWays(View x) {
  const QuantizeOptions options = OptionsFor("nvfp4", x, ElementRounding::kNearestEven);
  Check(x, options);
  Check(x.Transposed(), options);
  const auto rows = std::make_shared<Quantized>(), columns = std::make_shared<Quantized>();
  return [x, options, rows, columns] {
    QuantizeBothWays(x, options, options, rows.get(), columns.get());
  };
}

Work AfterHadamard(View x) {
  QuantizeOptions options = OptionsFor("nvfp4", x, ElementRounding::kNearestEven);
  options.amax = HadamardAmax(x, 16, kTeSignMask16);
  Matrix<float> y(x.rows, x.cols);
  RandomHadamard(x, 16, kTeSignMask16, y.View());
  const auto q = std::make_shared<Quantized>();
  HadamardQuantize(x, 16, kTeSignMask16, options, q.get());
  Expects(*q == Quantize(y.View(), options), "the fused transform gives the separate one's bytes");
  return [x, options, q] { HadamardQuantize(x, 16, kTeSignMask16, options, q.get()); };
}

Limit MovingBoth(const BenchContext& c, View x) {
  return Moving(c, x, OptionsFor("nvfp4", x, ElementRounding::kNearestEven), 2);
}

measure::Summary Inverse(const measure::Summary& r) {
  return {1 / r.median, 1 / r.high, 1 / r.low, r.count};
}

BenchEntry VariantEntry(const Variant& v) {
  BenchEntry e{.id = std::string("quantize.nvfp4.") + v.id,
               .topic = kQuantizeTopic,
               .what = v.what + std::string(", ") + v.place.text,
               .unit = "G elements/s",
               .against = "nvfp4 1x16, nearest even",
               .target = v.target};
  e.measure = [v](const BenchContext& c) {
    const int threads = ThreadsAt(v.place, c);
    const ThreadsScope scope(threads);
    const View x = InputAt(v.place, c);
    const Work plain = Quantizing(x, OptionsFor("nvfp4", x, ElementRounding::kNearestEven));
    Cell cell = CompareRates(c.On(threads), kGiga * static_cast<double>(x.size()), v.make(x),
                             {{"", plain}}, v.least ? v.least(c, x) : OwnInstructions(v.make, x));
    if (v.target.comparison == measure::Comparison::kAtMost) {  // a ratio of times
      cell.ratio = Inverse(*cell.ratio);
      if (cell.limit) cell.limit = Inverse(*cell.limit);
    }
    return cell;
  };
  return e;
}

BenchEntry DequantizeEntry(const std::string& format, double bound) {
  BenchEntry e{.id = "dequantize." + format + ".fp32",
               .topic = kQuantizeTopic,
               .what = "dequantize " + format + " to FP32, into DRAM, all threads",
               .unit = "GB/s written",
               .against = "memset of the output",
               .target = AtLeast(bound)};
  e.measure = [format](const BenchContext& c) {
    const ThreadsScope scope(c.threads);
    const View x = c.inputs->InMemory();
    const Dialect d = *FindDialect(format);
    const auto q = std::make_shared<Quantized>(
        Quantize(x, OptionsFor(format, x, ElementRounding::kNearestEven)));
    const std::span<std::byte> out = c.inputs->MemoryOutput();
    const MatrixView<float> y(reinterpret_cast<float*>(out.data()), x.rows, x.cols);
    const Limit least = {[q, out] { measure::MoveBytes(std::as_bytes(std::span(q->codes)), out); },
                         kMoving};
    return CompareRates(
        c.AllThreads(), kGiga * static_cast<double>(out.size()),
        [d, q, y] { Dequantize(d, *q, y); }, {{"", [out] { measure::WriteBytes(out); }}}, least);
  };
  return e;
}

// The rate of another project's quantizer, measured on another machine, 1 core, in cache.
struct Quoted {
  const char* id;
  const char* name;
  double rate;  // G elements/s
  double bound;
};
constexpr Quoted kQuoted[] = {
    {"ggml", "ggml d99724f, quantize_row_nvfp4_ref", 0.0431, 150},
    {"microxcaling", "microxcaling 7bc4195, MXFP4, torch 1.13.1", 0.0169, 300},
    {"cpfloat", "CPFloat 3583976, E2M1, nearest", 0.159, 40},
    {"gemma", "gemma.cpp 3ed403e, SFP8 encode", 9.738, 1}};

BenchEntry QuotedEntry(const Quoted& q) {
  BenchEntry e{.id = std::string("quoted.") + q.id,
               .topic =
                   "Quantizers of others (quoted: measured elsewhere, on a 2-core AMD Zen 5 "
                   "with AVX-512 at about 3.65 GHz, GCC 12)",
               .what = "nvfp4, in L2, 1 thread",
               .unit = "G elements/s",
               .against = std::string(q.name) + ": " + measure::NumberText(q.rate),
               .target = AtLeast(q.bound)};
  e.measure = [q](const BenchContext& c) {
    const ThreadsScope scope(1);
    const View x = c.inputs->InCache();
    const auto make = [](View part) {
      return Quantizing(part, OptionsFor("nvfp4", part, ElementRounding::kNearestEven));
    };
    return AgainstRate(CompareRates(c.OneThread(), kGiga * static_cast<double>(x.size()), make(x),
                                    {}, OwnInstructions(make, x)),
                       q.rate);
  };
  return e;
}

}  // namespace

std::vector<BenchEntry> QuantizeEntries() {
  std::vector<BenchEntry> entries = {AgainstAmax(kMemory, "nvfp4", false, 0.75),
                                     AgainstAmax(kMemoryOne, "nvfp4", false, 0.75),
                                     AgainstSameBytes("nvfp4", 0.75),
                                     AgainstCopy(kMemory, 1.5),
                                     AgainstAmax(kMemory, "nvfp4", true, 0.40),
                                     Cycles("nvfp4", 5.5),
                                     AgainstCopy(kCache, 0.4)};
  const Variant variants[] = {
      {"2d", "nvfp4 16x16", kCache, AtLeast(0.6), Squares},
      {"both.dram", "nvfp4 1x16 rowwise and columnwise", kMemory, AtLeast(0.6), BothWays,
       MovingBoth},
      {"both.l2", "nvfp4 1x16 rowwise and columnwise", kCache, AtLeast(0.6), BothWays},
      {"sr16", "nvfp4, stochastic, 16 random bits an element", kCache, AtMost(1.8),
       Stochastic<ElementRounding::kStochastic16>},
      {"sr32", "nvfp4, stochastic, 32 random bits an element", kCache, AtMost(2.4),
       Stochastic<ElementRounding::kStochastic32>},
      {"rht", "nvfp4 with RHT 16 fused", kCache, AtMost(1.5), AfterHadamard}};
  for (const Variant& v : variants) entries.push_back(VariantEntry(v));
  for (const char* format : {"mxfp4.rceil", "mxfp8_e4m3.rceil", "fp8_e4m3"}) {
    entries.push_back(AgainstAmax(kMemory, format, false, 0.75));
    entries.push_back(AgainstSameBytes(format, 0.75));
    entries.push_back(Cycles(format, 5.5));
  }
  for (const char* format : {"nvfp4", "mxfp4.rceil"}) {
    entries.push_back(DequantizeEntry(format, 0.9));
  }
  return entries;
}

std::vector<BenchEntry> QuotedPeerEntries() {
  std::vector<BenchEntry> entries;
  for (const Quoted& q : kQuoted) entries.push_back(QuotedEntry(q));
  return entries;
}

}  // namespace fp4lab::tools
