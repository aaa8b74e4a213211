// The metrics of a training run that any program wrote, by step: readers of the files that programs
// leave, and a table of the names under which they write losses, norms, speeds and memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/io/json.h"

namespace fp4lab::study {

// A name under which a program writes a metric, in lower case; value * scale has the metric's unit.
struct MetricName {
  std::string_view name;
  double scale = 1;
};

struct Metric {
  std::string_view key, title, unit;
  std::array<MetricName, 12> names;  // the first that a file has is read; the rest are empty
};

inline constexpr std::string_view kLossKey = "loss", kGradientNormKey = "gradient_norm";
inline constexpr double kGiB = 1.0 / (1 << 30);

// Names of MaxText (learning/, perf/), Megatron-LM (with a space or a hyphen), torchtitan
// (loss_metrics/, throughput(tps), time_metrics/, memory/), TensorBoard's export (value), pandas.
inline constexpr std::array<Metric, 5> kMetrics = {{
    {kLossKey,
     "loss",
     "nats per token",
     {{{"loss"},
       {"learning/loss"},
       {"lm loss"},
       {"loss_metrics/global_avg_loss"},
       {"train/loss"},
       {"train_loss"},
       {"value"}}}},
    {kGradientNormKey,
     "gradient norm",
     "",
     {{{"grad_norm"},
       {"learning/raw_grad_norm"},
       {"learning/grad_norm"},
       {"grad-norm"},
       {"grad norm"},
       {"train/grad_norm"},
       {"gradient_norm"}}}},
    {"tokens_per_second",
     "tokens per second",
     "",
     {{{"tokens_per_second"},
       {"perf/per_device_tokens_per_sec"},
       {"throughput(tps)"},
       {"tokens/s"},
       {"tps"}}}},
    {"step_seconds",
     "step",
     "s",
     {{{"step_seconds"},
       {"perf/step_time_seconds"},
       {"iteration-time"},
       {"time_metrics/end_to_end(s)"},
       {"step_time"},
       {"elapsed time per iteration (ms)", 1e-3}}}},
    {"memory",
     "memory",
     "GiB",
     {{{"memory_gib"},
       {"memory/max_reserved(gib)"},
       {"memory/max_active(gib)"},
       {"mem-max-allocated-bytes", kGiB},
       {"mem-allocated-bytes", kGiB},
       {"mem-reserved-bytes", kGiB},
       {"memory_bytes", kGiB}}}},
}};

// Names of the columns and members of tokens and steps, in lower case.
inline constexpr std::array<std::string_view, 6> kTokenNames = {
    "tokens",      "consumed_tokens", "consumed tokens",
    "tokens_seen", "n_tokens_seen",   "learning/total_tokens"};
inline constexpr std::array<std::string_view, 4> kStepNames = {"step", "steps", "iteration",
                                                               "global_step"};
// "loss, learning/loss, ..."
std::string NamesOfMetric(const Metric& metric);

enum class LogAxis {
  kSteps,        // tokens where a file has no steps
  kTokens,       // tokens alone
  kTokensFirst,  // steps where a file has no tokens
};

struct LogOptions {
  LogAxis axis = LogAxis::kSteps;
  std::string loss = {};  // the name of the loss, in place of those of the table
};

struct MetricLog {
  std::string name;        // of the file, or of the run in it
  bool by_tokens = false;  // the keys of `series` are tokens, not steps
  // By the metric's key: values by step, ascending; NaN and infinities are kept. Every log has a
  // loss.
  std::map<std::string, std::map<double, double>, std::less<>> series = {};
  std::map<std::string, std::string, std::less<>> names = {};  // metric's key: its name in the file
  std::optional<std::uint64_t> seed = std::nullopt;            // of runs of a study
  std::vector<std::string> notes = {};
  std::size_t first_line = 0, lines = 0;  // of a text: of the first point, and of all
};

// Reads the runs of `path`:
//   CSV with a header, as TensorBoard and pandas write it; an empty cell was not measured
//   JSON Lines, an object a line, as MaxText, Megatron-LM's and torchtitan's loggers and
//     `fp4lab train` write metrics; objects without a known metric are passed over, as are nulls
//   TensorBoard event files (event_file.h), or a folder with some of one run
//   RESULTS#ARM: the training losses of an arm of a study, a run a seed; RESULTS is a results.json
//     or its folder
// A step that is there twice, after a restart, has its last value, with a note. Throws Error with
// the file, the line (of an event file the byte) and the remedy.
std::vector<MetricLog> ReadMetricLogs(const std::string& path, const LogOptions& options = {});

// The same of texts, for tests and fuzzers. `where` names them in errors.
MetricLog ReadMetricText(std::string_view text, const std::string& where,
                         const LogOptions& options = {});
std::vector<MetricLog> ReadMetricResults(const Json& results, const std::string& arm,
                                         const std::string& where, const LogOptions& options = {});
// A run of {"step": [...], "loss": [...], ...}; NaN and infinities as "nan", "inf" and "-inf".
MetricLog ReadMetricColumns(const Json& columns, const std::string& where,
                            const LogOptions& options = {});
// A TensorBoard event file's bytes.
MetricLog ReadMetricEvents(std::string_view bytes, const std::string& where,
                           const LogOptions& options = {});

}  // namespace fp4lab::study
