#include "fp4lab/study/report/figures/overlay.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/io/file.h"
#include "fp4lab/study/parity/metric_log.h"

namespace fp4lab::study {

std::string OverlayNames() {
  return "tokens: " + Joined(kTokenNames, ", ") + "; steps: " + Joined(kStepNames, ", ") +
         "; losses: " + NamesOfMetric(kMetrics[0]);
}

Overlay ReadOverlay(const std::string& argument, std::int64_t tokens_per_step) {
  const IeeeArithmetic ieee;
  const std::size_t equals = argument.find('=');
  // A file whose own name has an equals sign needs no label.
  const bool labelled = equals != argument.npos && !Exists(argument);
  const std::string path = labelled ? argument.substr(equals + 1) : argument;
  Overlay overlay;
  overlay.label =
      labelled ? argument.substr(0, equals) : std::filesystem::path(path).filename().string();
  if (overlay.label.empty()) throw Error(argument, "has no label before \"=\"; write LABEL=FILE");
  RefuseControlCharacters(overlay.label, "--overlay");
  const MetricLog log = ReadMetricText(ReadFile(path), path, {.axis = LogAxis::kTokensFirst});
  const auto losses = log.series.find(kLossKey);
  const double tokens_each = log.by_tokens ? 1 : static_cast<double>(tokens_per_step);
  if (losses != log.series.end()) {
    if (tokens_each == 0) {
      throw Error(path, "line " + std::to_string(log.first_line) +
                            ": has a step but no tokens; give --overlay-tokens-per-step N, or add "
                            "a column \"tokens\"");
    }
    for (const auto& [at, loss] : losses->second) {
      if (!std::isfinite(loss)) continue;
      overlay.tokens.push_back(at * tokens_each);
      overlay.loss.push_back(loss);
    }
  }
  if (overlay.loss.size() < 2) {
    throw Error(path, "line " + std::to_string(std::max<std::size_t>(log.lines, 1)) +
                          ": the file ends, with losses of " +
                          CountText(overlay.loss.size(), "step") +
                          "; a curve needs two. It reads " + OverlayNames());
  }
  if (!log.notes.empty()) overlay.note = log.notes[0];
  return overlay;
}

}  // namespace fp4lab::study
