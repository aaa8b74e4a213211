// The diagnostics of a chosen step of a run: their table, and an observation, which has their
// numbers.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/io/json.h"
#include "fp4lab/quantize/diagnostics/block_statistics.h"
#include "fp4lab/quantize/statistics.h"

namespace fp4lab {

// The subject of a number. An observation has a row for each subject that it measured:
enum class Subject : std::uint8_t {
  kOperand,  // a quantized operand, "blocks.0.mlp.up.fprop.input"
  kProduct,  // the result of a GEMM, "blocks.0.mlp.up.dgrad"
  kWeight,   // a linear's weight and its gradient, "blocks.0.mlp.up.weight"
  kStep      // the step as a whole, "step"
};

// A diagnostic over the course of training. Those of operands are the table of
// quantize/statistics.h, and the numbers of the block scales.
struct CourseDiagnostic {
  Subject subject = Subject::kOperand;
  std::string_view key;  // in observations, results.json and diagnostics.csv
  std::string_view name, label, unit;
  std::string_view definition;
  std::string_view reading;  // sentences, with the source of a definition that is not fp4lab's
  int digits = 0;            // after the point; 0: significant ones
};
std::span<const CourseDiagnostic> CourseDiagnostics();

// The rule of FP4 All the Way (arXiv 2505.19115): training with quantization noise ceases to be
// effective where the norm of the gradient is below sqrt(3) times that of the noise.
inline constexpr double kNoiseThreshold = 1.7320508075688772;

struct ObservedRow {
  std::string name;
  std::string format;                     // of an operand: a dialect's name, or its JSON
  std::map<std::string, double> numbers;  // by key; finite, of six significant digits
  std::optional<ScaleHistogram> scales;   // of an operand that has block scales

  friend bool operator==(const ObservedRow&, const ObservedRow&) = default;
};

// The numbers are those of the state after `step` optimizer steps, on the first `tokens` tokens of
// the next step.
struct Observation {
  std::int64_t step = 0;
  std::int64_t budget = 0;  // of a study: the budget whose decay the step is part of; 0: the trunk
  std::int64_t tokens = 0;
  std::vector<ObservedRow> rows;

  friend bool operator==(const Observation&, const Observation&) = default;
};

// Six significant digits, which every file has, so that files hold the same numbers.
double Shortened(double x);

// ReadObservation gives every bit back and throws Error at `where` for any other JSON.
Json ToJson(const Observation& observation);
Observation ReadObservation(const Json& json, const std::string& where);

Json ToJson(const ScaleHistogram& scales);
ScaleHistogram ReadScaleHistogram(const Json& json, const std::string& where);

// The steps to observe, of a run or of a study: "diagnostics".
struct DiagnosticsConfig {
  std::int64_t every = 0;           // steps 0, every, 2 every, ...; 0: only `steps`
  std::vector<std::int64_t> steps;  // ascending
  std::int64_t tokens = 2048;  // that are observed, rounded up to a sequence; at most a micro-batch

  bool Asked() const { return every > 0 || !steps.empty(); }
  bool IsDue(std::int64_t step) const;

  friend bool operator==(const DiagnosticsConfig&, const DiagnosticsConfig&) = default;
};
DiagnosticsConfig ReadDiagnosticsConfig(const Json& json, const std::string& where);

// Throws Error for a step to observe beyond `last`, the last step of every run; `where` is the
// place of `config`.
void CheckObservedSteps(const DiagnosticsConfig& config, std::int64_t last,
                        const std::string& where);
Json ToJson(const DiagnosticsConfig& config);

}  // namespace fp4lab
