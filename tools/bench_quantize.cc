// Rows of `fp4lab bench`: quantizers and dequantizers against what memory gives.
#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/measure/probes.h"
#include "fp4lab/transform/hadamard.h"
#include "fp4lab/transform/hadamard_quantize.h"
#include "tools/bench_rows.h"

namespace fp4lab::tools {
namespace {

using measure::Cell;
using measure::Work;
using View = MatrixView<const float>;

BlockFormat FormatNamed(const std::string& name) { return *FindBlockFormat(name); }

QuantizeOptions OptionsFor(const std::string& format, View x, Rounding rounding) {
  return {.format = FormatNamed(format),
          .rounding = rounding,
          .random = {.seed = 1},
          .amax = TensorAmax(x)};
}

// The kernel's bytes on the first rows of x are the reference's.
void Check(View x, const QuantizeOptions& options) {
  const View part = x.Block(0, 0, std::min<std::size_t>(x.rows, 32), x.cols);
  Expects(Quantize(part, options) == reference::Quantize(part, options),
          "a quantizer under measurement gives the reference's bytes");
}

// Where a row's input lies and how many threads work on it.
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

// Codes and scales go to memory that is there already.
Work Quantizing(View x, const QuantizeOptions& options) {
  Check(x, options);
  const auto q = std::make_shared<QuantizedMatrix>();
  return [x, options, q] { Quantize(x, options, q.get()); };
}

Work Maximum(View x) {
  return [x] { TensorAmax(x); };
}

// memcpy of x.
Work Copying(View x, std::span<std::byte> to) {
  const auto from = std::as_bytes(std::span(x.data, x.size()));
  return [from, to] { measure::CopyBytes(from, to.first(from.size())); };
}

constexpr double kGiga = 1e-9;
constexpr const char* kTopic = "Quantize and dequantize";

BenchEntry AgainstAmax(const Place& place, const std::string& format, bool two_passes,
                       double bound) {
  BenchEntry e{
      .id = "quantize." + format + "." + place.id + (two_passes ? ".two-pass" : ""),
      .topic = kTopic,
      .what = format + (two_passes ? ", amax found first (two passes), " : ", ") + place.text,
      .unit = "G elements/s",
      .against = "read-only amax pass",
      .target = AtLeast(bound)};
  e.measure = [place, format, two_passes](const BenchContext& c) {
    const int threads = ThreadsAt(place, c);
    const ThreadsScope scope(threads);
    const View x = InputAt(place, c);
    const QuantizeOptions options = OptionsFor(format, x, Rounding::kNearestEven);
    Work ours = Quantizing(x, options);
    if (two_passes) {
      ours = [x, options, q = std::make_shared<QuantizedMatrix>()] {
        QuantizeOptions o = options;
        o.amax = TensorAmax(x);
        Quantize(x, o, q.get());
      };
    }
    return CompareRates(c.On(threads), kGiga * static_cast<double>(x.size()), ours,
                        {{"", Maximum(x)}});
  };
  return e;
}

BenchEntry AgainstCopy(const Place& place, double bound) {
  BenchEntry e{.id = std::string("quantize.nvfp4.") + place.id + ".memcpy",
               .topic = kTopic,
               .what = std::string("nvfp4, ") + place.text,
               .unit = "G elements/s",
               .against = "memcpy of the input",
               .target = AtLeast(bound)};
  e.measure = [place](const BenchContext& c) {
    const int threads = ThreadsAt(place, c);
    const ThreadsScope scope(threads);
    const View x = InputAt(place, c);
    const Work ours = Quantizing(x, OptionsFor("nvfp4", x, Rounding::kNearestEven));
    std::vector<std::byte> cache_output(place.in_memory ? 0 : x.size() * sizeof(float));
    const std::span<std::byte> to =
        place.in_memory ? c.inputs->MemoryOutput() : std::span<std::byte>(cache_output);
    return CompareRates(c.On(threads), kGiga * static_cast<double>(x.size()), ours,
                        {{"", Copying(x, to)}});
  };
  return e;
}

// Cycles are counted by a chain of known length that takes turns (measure/probes.h).
BenchEntry Cycles(const std::string& format, double bound) {
  BenchEntry e{.id = "quantize." + format + ".l2.cycles",
               .topic = kTopic,
               .what = format + ", in L2, 1 thread",
               .unit = "cycles / 16 elements",
               .against = "cycles of the clock",
               .target = AtMost(bound)};
  e.measure = [format](const BenchContext& c) {
    const ThreadsScope scope(1);
    const View x = c.inputs->InCache();
    constexpr std::size_t kCycles = 1'000'000;
    const Cell cell =
        CompareTimes(c.OneThread(), 1, Quantizing(x, OptionsFor(format, x, Rounding::kNearestEven)),
                     {{"", [] { measure::SpendCycles(kCycles); }}});
    const double scale = static_cast<double>(kCycles) / (static_cast<double>(x.size()) / 16);
    const measure::Summary& r = *cell.ratio;
    return Cell{.value = {r.median * scale, r.low * scale, r.high * scale, r.count}};
  };
  return e;
}

// One way to quantize nvfp4 in L2 against the plain one, as a ratio of times or of rates.
struct Variant {
  const char* id;
  const char* what;
  measure::Target target;
  std::function<Work(View x)> make;
};

template <int kBits>
Work Stochastic(View x) {
  QuantizeOptions options = OptionsFor("nvfp4", x, Rounding::kStochastic);
  options.random_bits = kBits;
  return Quantizing(x, options);
}

Work Squares(View x) { return Quantizing(x, OptionsFor("nvfp4.2d", x, Rounding::kNearestEven)); }

Work BothWays(View x) {
  const QuantizeOptions options = OptionsFor("nvfp4", x, Rounding::kNearestEven);
  const Work rowwise = Quantizing(x, options), columnwise = Quantizing(x.Transposed(), options);
  return [rowwise, columnwise] {
    rowwise();
    columnwise();
  };
}

Work AfterHadamard(View x) {
  QuantizeOptions options = OptionsFor("nvfp4", x, Rounding::kNearestEven);
  options.amax = HadamardAmax(x, 16, kTeSignMask16);
  Matrix<float> y(x.rows, x.cols);
  RandomHadamard(x, 16, kTeSignMask16, y.View());
  const auto q = std::make_shared<QuantizedMatrix>();
  HadamardQuantize(x, 16, kTeSignMask16, options, q.get());
  Expects(*q == Quantize(y.View(), options), "the fused transform gives the separate one's bytes");
  return [x, options, q] { HadamardQuantize(x, 16, kTeSignMask16, options, q.get()); };
}

BenchEntry VariantEntry(const Variant& v) {
  BenchEntry e{.id = std::string("quantize.nvfp4.") + v.id,
               .topic = kTopic,
               .what = v.what,
               .unit = "G elements/s",
               .against = "nvfp4 1x16, nearest even",
               .target = v.target};
  e.measure = [v](const BenchContext& c) {
    const ThreadsScope scope(1);
    const View x = c.inputs->InCache();
    const Work plain = Quantizing(x, OptionsFor("nvfp4", x, Rounding::kNearestEven));
    Cell cell = CompareRates(c.OneThread(), kGiga * static_cast<double>(x.size()), v.make(x),
                             {{"", plain}});
    if (v.target.comparison == measure::Comparison::kAtMost) {  // a ratio of times
      const measure::Summary r = *cell.ratio;
      cell.ratio = {1 / r.median, 1 / r.high, 1 / r.low, r.count};
    }
    return cell;
  };
  return e;
}

BenchEntry DequantizeEntry(const std::string& format, double bound) {
  BenchEntry e{.id = "dequantize." + format + ".fp32",
               .topic = kTopic,
               .what = "dequantize " + format + " to FP32, into DRAM, all threads",
               .unit = "GB/s written",
               .against = "memset of the output",
               .target = AtLeast(bound)};
  e.measure = [format](const BenchContext& c) {
    const ThreadsScope scope(c.threads);
    const View x = c.inputs->InMemory();
    const auto q = std::make_shared<QuantizedMatrix>(
        Quantize(x, OptionsFor(format, x, Rounding::kNearestEven)));
    const std::span<std::byte> out = c.inputs->MemoryOutput();
    const MatrixView<float> y(reinterpret_cast<float*>(out.data()), x.rows, x.cols);
    return CompareRates(c.AllThreads(), kGiga * static_cast<double>(out.size()),
                        [q, y] { Dequantize(*q, y); }, {{"", [out] { measure::WriteBytes(out); }}});
  };
  return e;
}

// What another project's quantizer did elsewhere, 1 core, in cache. Not measured here.
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
    Cell cell = CompareRates(c.OneThread(), kGiga * static_cast<double>(x.size()),
                             Quantizing(x, OptionsFor("nvfp4", x, Rounding::kNearestEven)), {});
    const measure::Summary& v = cell.value;
    cell.reference = measure::Summary{q.rate, q.rate, q.rate, 1};
    cell.ratio = {v.median / q.rate, v.low / q.rate, v.high / q.rate, v.count};
    return cell;
  };
  return e;
}

}  // namespace

std::vector<BenchEntry> QuantizeEntries() {
  std::vector<BenchEntry> entries = {AgainstAmax(kMemory, "nvfp4", false, 0.75),
                                     AgainstAmax(kMemoryOne, "nvfp4", false, 0.75),
                                     AgainstCopy(kMemory, 1.5),
                                     AgainstAmax(kMemory, "nvfp4", true, 0.40),
                                     Cycles("nvfp4", 5.5),
                                     AgainstCopy(kCache, 0.4)};
  const Variant variants[] = {
      {"2d", "nvfp4 16x16, in L2, 1 thread", AtLeast(0.6), Squares},
      {"both", "nvfp4 1x16 rowwise and columnwise, in L2, 1 thread", AtLeast(0.6), BothWays},
      {"sr8", "nvfp4, stochastic, 8 random bits an element, in L2, 1 thread", AtMost(1.6),
       Stochastic<8>},
      {"sr16", "nvfp4, stochastic, 16 random bits an element, in L2, 1 thread", AtMost(1.8),
       Stochastic<16>},
      {"sr32", "nvfp4, stochastic, 32 random bits an element, in L2, 1 thread", AtMost(2.4),
       Stochastic<32>},
      {"rht", "nvfp4 with RHT 16 fused, in L2, 1 thread", AtMost(1.5), AfterHadamard}};
  for (const Variant& v : variants) entries.push_back(VariantEntry(v));
  for (const char* format : {"mxfp4.rceil", "mxfp8_e4m3.rceil", "fp8_e4m3"}) {
    entries.push_back(AgainstAmax(kMemory, format, false, 0.75));
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
