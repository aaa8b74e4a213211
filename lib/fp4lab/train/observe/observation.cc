#include "fp4lab/train/observe/observation.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"

namespace fp4lab {
namespace {

constexpr CourseDiagnostic kMeasured[] = {
    {.subject = Subject::kOperand,
     .key = "scale_spread",
     .name = "Spread of block scales",
     .label = "spread of scales",
     .unit = "binades",
     .definition = "standard deviation of floor(log2 s) over the block scales s above 0",
     .reading = "One tensor scale has to serve them all: far apart, small blocks lose precision.",
     .digits = 3},
    {.subject = Subject::kOperand,
     .key = "zero_scale_percent",
     .name = "Block scales of 0",
     .label = "scales of 0",
     .unit = "%",
     .definition = "share of the block scales that are 0",
     .reading = "All elements of such a block are decoded to 0.",
     .digits = 3},
    {.subject = Subject::kProduct,
     .key = "cosine",
     .name = "Cosine with the unquantized product",
     .label = "cosine",
     .unit = "",
     .definition = "<q, h> / (|q| |h|), q a GEMM's result and h that of the same tensors "
                   "without quantization",
     .reading = "1 where quantization does not turn the result.",
     .digits = 5},
    {.subject = Subject::kProduct,
     .key = "projection_percent",
     .name = "Bias along the unquantized product",
     .label = "bias of product",
     .unit = "%",
     .definition = "100 (<q, h> / <h, h> - 1), q a GEMM's result and h that of the same tensors "
                   "without quantization",
     .reading = "Negative: quantization shortens the result. Unbiased noise leaves it near 0.",
     .digits = 3},
    {.subject = Subject::kProduct,
     .key = "product_sqnr_db",
     .name = "Signal to noise of products",
     .label = "SQNR of product",
     .unit = "dB",
     .definition = "10 log10(sum h^2 / sum (q - h)^2), q a GEMM's result and h that of the same "
                   "tensors without quantization",
     .reading = "Sums average noise that is independent; what is left enters the next layer.",
     .digits = 2},
    {.subject = Subject::kWeight,
     .key = "flips_percent",
     .name = "Weights whose code changed",
     .label = "codes changed",
     .unit = "%",
     .definition = "share of the weights whose element code differs from that of the observation "
                   "before",
     .reading = "The fprop weight, as it is quantized; of at most 65536 weights a linear, evenly "
                "spaced. -0 counts as 0.",
     .digits = 3},
    {.subject = Subject::kWeight,
     .key = "returns_percent",
     .name = "Weights whose code flipped and came back",
     .label = "codes that came back",
     .unit = "%",
     .definition = "share of the weights whose element code differs from that of the observation "
                   "before and is that of the observation before it",
     .reading = "Oscillation: a change of the integer weight against the change before it (Nagel "
                "et al., arXiv 2203.08008), seen at the observed steps only. TetraJet (arXiv "
                "2502.20853) compares how far quantized and master weights travel instead.",
     .digits = 3},
    {.subject = Subject::kWeight,
     .key = "weight_noise_ratio",
     .name = "Gradient against noise, by weight",
     .label = "gradient / noise",
     .unit = "",
     .definition = "|h| / |q - h|, q the gradient of a weight in a pass under the recipe and h in "
                   "a pass without any quantization",
     .reading = "As gradient / noise of the step, of one linear's weight.",
     .digits = 3},
    {.subject = Subject::kStep,
     .key = "noise_ratio",
     .name = "Gradient against quantization noise",
     .label = "gradient / noise",
     .unit = "",
     .definition = "|g| / (sigma sqrt(d)) = |h| / |q - h| over the d weights of the quantized "
                   "linears, q their gradient under the recipe and h without any quantization",
     .reading = "Below sqrt(3) training ceases to be effective, by the rule of FP4 All the Way "
                "(arXiv 2505.19115), for noise of standard deviation sigma on the gradient. "
                "The noise here is that of all three GEMMs, and of the observed tokens: a larger "
                "batch averages the part that is independent between tokens.",
     .digits = 3},
    {.subject = Subject::kStep,
     .key = "gradient_cosine",
     .name = "Cosine with the unquantized gradient",
     .label = "cosine of gradients",
     .unit = "",
     .definition = "<q, h> / (|q| |h|) over the weights of the quantized linears, q their gradient "
                   "under the recipe and h without any quantization",
     .reading = "The direction in which a step goes, after all layers.",
     .digits = 5},
    {.subject = Subject::kStep,
     .key = "loss_increase",
     .name = "Loss that quantization adds",
     .label = "loss added",
     .unit = "nats",
     .definition =
         "the loss of the observed tokens under the recipe, less that of the same weights "
         "without any quantization",
     .reading = "What the forward pass costs at that step; the rest of a gap is in the weights.",
     .digits = 5},
    {.subject = Subject::kStep,
     .key = "gradient_norm",
     .name = "Norm of the unquantized gradient",
     .label = "gradient norm",
     .unit = "",
     .definition = "|h| over the weights of the quantized linears, without any quantization",
     .reading = "The norm falls in training, and the noise of a format falls with the tensors.",
     .digits = 0},
    {.subject = Subject::kStep,
     .key = "noise_norm",
     .name = "Norm of the quantization noise",
     .label = "noise norm",
     .unit = "",
     .definition = "|q - h| over the weights of the quantized linears, q their gradient under the "
                   "recipe and h without any quantization",
     .reading = "The denominator of gradient / noise.",
     .digits = 0},
};

std::vector<CourseDiagnostic> MakeTable() {
  std::vector<CourseDiagnostic> table;
  for (const Diagnostic& d : Diagnostics()) {
    table.push_back(
        {Subject::kOperand, d.key, d.name, d.label, d.unit, d.definition, d.reading, d.digits});
  }
  table.insert(table.end(), std::begin(kMeasured), std::end(kMeasured));
  return table;
}

}  // namespace

std::span<const CourseDiagnostic> CourseDiagnostics() {
  static const std::vector<CourseDiagnostic> table = MakeTable();
  return table;
}

double Shortened(double x) {
  const IeeeArithmetic ieee;
  if (!std::isfinite(x)) return x;
  char text[40];
  std::snprintf(text, sizeof text, "%.6g", x);
  return std::strtod(text, nullptr);
}

Json ToJson(const ScaleHistogram& scales) {
  const IeeeArithmetic ieee;
  return {{"zeros", scales.zeros},
          {"not_finite", scales.not_finite},
          {"first", scales.first},
          {"counts", scales.counts}};
}

ScaleHistogram ReadScaleHistogram(const Json& json, const std::string& where) {
  const IeeeArithmetic ieee;
  JsonObject o(json, where);
  ScaleHistogram scales;
  std::uint64_t zeros = 0, not_finite = 0;
  std::int64_t first = 0;
  std::vector<std::uint64_t> counts;
  o.Require("zeros", &zeros);
  o.Require("not_finite", &not_finite);
  o.Require("first", &first);
  o.Require("counts", &counts);
  if (first < -1100 || first > 1100) throw Error(o.Where("first"), "is not a binary exponent");
  scales.zeros = zeros;
  scales.not_finite = not_finite;
  scales.first = static_cast<int>(first);
  scales.counts.assign(counts.begin(), counts.end());
  return scales;
}

Json ToJson(const Observation& observation) {
  const IeeeArithmetic ieee;
  Json rows = Json::array();
  for (const ObservedRow& row : observation.rows) {
    Json json = {{"name", row.name}, {"numbers", row.numbers}};
    if (!row.format.empty()) json["format"] = row.format;
    if (row.scales) json["scales"] = ToJson(*row.scales);
    rows.push_back(std::move(json));
  }
  return {{"step", observation.step},
          {"budget", observation.budget},
          {"tokens", observation.tokens},
          {"rows", std::move(rows)}};
}

Observation ReadObservation(const Json& json, const std::string& where) {
  const IeeeArithmetic ieee;
  JsonObject o(json, where);
  Observation observation;
  o.Require("step", &observation.step);
  o.Require("budget", &observation.budget);
  o.Require("tokens", &observation.tokens);
  const Json* rows = o.Member("rows");
  if (rows == nullptr || !rows->is_array()) throw Error(o.Where("rows"), "must be an array");
  for (const Json& member : *rows) {
    JsonObject r(member, o.Where("rows"));
    ObservedRow row;
    r.Require("name", &row.name);
    r.Read("format", &row.format);
    const Json* numbers = r.Member("numbers");
    if (numbers == nullptr || !numbers->is_object()) {
      throw Error(r.Where("numbers"), "must be an object");
    }
    JsonObject n(*numbers, r.Where("numbers"));
    for (const auto& [key, value] : numbers->items()) n.Read(key, &row.numbers[key]);
    if (const Json* scales = r.Member("scales")) {
      row.scales = ReadScaleHistogram(*scales, r.Where("scales"));
    }
    observation.rows.push_back(std::move(row));
  }
  return observation;
}

bool DiagnosticsConfig::IsDue(std::int64_t step) const {
  if (every > 0 && step % every == 0) return true;
  return std::binary_search(steps.begin(), steps.end(), step);
}

DiagnosticsConfig ReadDiagnosticsConfig(const Json& json, const std::string& where) {
  const IeeeArithmetic ieee;
  DiagnosticsConfig c;
  JsonObject o(json, where);
  o.Read("every", &c.every);
  o.Read("steps", &c.steps);
  o.Read("tokens", &c.tokens);
  o.Finish();
  if (o.Has("every") == o.Has("steps")) {
    throw Error(where, "needs \"every\": a number of steps, or \"steps\": a list of them");
  }
  if (o.Has("every") && c.every < 1) throw Error(o.Where("every"), "must be at least 1");
  if (o.Has("steps") && c.steps.empty()) throw Error(o.Where("steps"), "needs a step");
  for (std::size_t i = 0; i < c.steps.size(); ++i) {
    if (c.steps[i] >= 0 && (i == 0 || c.steps[i] > c.steps[i - 1])) continue;
    throw Error(o.Where("steps") + "/" + std::to_string(i),
                "must be at least 0 and above the step before it");
  }
  if (c.tokens < 1) throw Error(o.Where("tokens"), "must be at least 1");
  return c;
}

void CheckObservedSteps(const DiagnosticsConfig& config, std::int64_t last,
                        const std::string& where) {
  for (std::size_t i = 0; i < config.steps.size(); ++i) {
    const std::int64_t step = config.steps[i];
    if (step <= last) continue;
    throw Error(where + "/steps/" + std::to_string(i),
                "is step " + std::to_string(step) + ", and training ends at step " +
                    std::to_string(last) + "; name an earlier step or train longer");
  }
}

Json ToJson(const DiagnosticsConfig& config) {
  const IeeeArithmetic ieee;
  Json json = {{"tokens", config.tokens}};
  if (config.every > 0) json["every"] = config.every;
  if (!config.steps.empty()) json["steps"] = config.steps;
  return json;
}

}  // namespace fp4lab
