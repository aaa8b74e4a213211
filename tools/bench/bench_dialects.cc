// Rows of `fp4lab bench`: the kernels of every dialect, and training steps with them.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/base/threads_scope.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/quantize/blocks.h"
#include "fp4lab/quantize/implementation.h"
#include "tools/bench/bench_rows.h"

namespace fp4lab::tools {
namespace {

using measure::Cell;
using measure::Work;
using View = MatrixView<const float>;

constexpr const char* kDialectsTopic = "Any dialect";

// Whether the kernel tries two scales for a block, or searches for codes.
bool IsSearched(const Dialect& d) {
  return d.adaptive != Adaptive::kNo || d.rounding == ElementRounding::kClosest;
}

// Quantizes x into codes and scale bytes whose memory is allocated before the measurement.
Work Quantizing(const Dialect& d, View x) {
  struct Job {
    Dialect dialect;
    DialectOptions options;
    std::vector<std::uint8_t> codes, scales;
  };
  const auto job = std::make_shared<Job>();
  job->dialect = d;
  job->options.amax = TensorAmaxes(d, x, {});
  const BlockGrid grid(d, x.rows, x.cols);
  job->codes.resize(x.size());
  job->scales.resize(grid.rows * grid.cols);
  const View part = x.Block(0, 0, std::min<std::size_t>(x.rows, 32), x.cols);
  Expects(QuantizeAs(d, part) == reference::QuantizeAs(d, part),
          "a quantizer under measurement gives the reference's bytes");
  return [x, job] {
    Make({job->dialect,
          x,
          job->options,
          {.codes = job->codes.data(), .scale_bytes = job->scales.data()}});
  };
}

BenchEntry QuantizeEntry(const Dialect& d) {
  BenchEntry e{.id = "dialect." + std::string(d.name),
               .topic = kDialectsTopic,
               .what = std::string(d.name) + ", in L2, 1 thread",
               .unit = "G elements/s",
               .against = "nvfp4 (nvfp4.te) by its tuned kernel",
               .target = AtLeast(IsSearched(d) ? 0.1 : 0.25)};
  e.measure = [d](const BenchContext& c) {
    const ThreadsScope scope(1);
    const View x = c.inputs->InCache();
    const QuantizeOptions options{.dialect = *FindDialect("nvfp4"), .amax = TensorAmax(x)};
    const auto q = std::make_shared<Quantized>();
    return CompareRates(
        c.OneThread(), 1e-9 * static_cast<double>(x.size()), Quantizing(d, x),
        {{"", [x, options, q] { Quantize(x, options, q.get()); }}},
        OwnInstructions([d](View v) { return Quantizing(d, v); }, x, d.block_rows <= 1 ? 4 : 16));
  };
  return e;
}

BenchEntry StepEntry(const Dialect& d) {
  BenchEntry e{.id = "train.dialect." + std::string(d.name),
               .topic = kDialectsTopic,
               .what = "step with " + std::string(d.name) + " in all operands, d 256, 1 thread",
               .unit = "ms",
               .against = "step of te_nvfp4",
               .target = AtMost(IsSearched(d) ? 3.0 : 1.8)};
  e.measure = [d](const BenchContext& c) {
    const ThreadsScope scope(1);
    Trainer& ours = c.inputs->TrainerOf({256, kAllOperands + std::string(d.name)});
    Trainer& te = c.inputs->TrainerOf({256, "te_nvfp4"});
    return CompareTimes(c.OneThread(), 1e3, Step(&ours), {{"", Step(&te)}});
  };
  return e;
}

}  // namespace

std::vector<BenchEntry> DialectEntries() {
  std::vector<BenchEntry> entries;
  for (const Dialect& d : Dialects()) {
    if (IsApproximate(d) || IsStochastic(d)) continue;
    if (ImplementationOf(d).name == "generic") entries.push_back(QuantizeEntry(d));
  }
  for (const char* name :
       {"nvfp4.te.row-scaled", "nvfp4.torchao.inference", "nvfp4.modelopt",
        "nvfp4.compressed-tensors", "nvfp4.quartet2", "mxfp4.torchao.rceil", "mxfp4.microxcaling",
        "mxfp8_e4m3.torchao.rceil", "nvfp4.te.4over6.mse.256", "nvfp4.ggml"}) {
    entries.push_back(StepEntry(*FindDialect(name)));
  }
  return entries;
}

}  // namespace fp4lab::tools
