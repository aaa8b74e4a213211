// Parity of a person's training runs with a baseline's: are their losses equal within a margin?
//
// The gap is the mean loss of the runs over that of the baseline, less 1, over a window of steps
// that all runs have. Two one-sided Student tests (Schuirmann, J. Pharmacokinet. Biopharm. 15
// (1987) 657) decide on equivalence, so an interval at 2 * confidence - 1 must lie within the
// margin; a two-sided one at `confidence` decides on a difference. Its variance has two parts:
//   seeds  the scatter of the runs' means (Welch; paired: of the differences), which holds the
//          noise of each run's own steps, too. Unknown with one run in each arm.
//   steps  a circular block bootstrap over the steps of the mean series of the arms' differences
//          (step_error.h), less the part that runs do not share, which the seeds hold: what the
//          batches do to one arm and not to the other. With one run in each arm all of it.
// Degrees of freedom are Satterthwaite's. Losses of both arms at one step are subtracted first, so
// the fall of the loss and batches that both arms read cancel.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/io/json.h"
#include "fp4lab/study/parity/metric_log.h"

namespace fp4lab::study {

struct ParityOptions {
  double margin = 0.005;     // of the baseline's loss
  double confidence = 0.95;  // in (0.5, 1)
  double last = 1.0 / 3;     // the window: this share of the common steps, the last ones,
  std::optional<double> from = std::nullopt, to = std::nullopt;  // or the steps from and to these
  bool paired = false;  // run i of both arms belong together; runs with equal seeds always do
};

inline constexpr std::size_t kLeastSteps = 10;  // in the window

struct ParityArms {
  std::vector<MetricLog> runs, baseline;
};

// What the verdict may be.
inline constexpr std::string_view kEquivalent = "equivalent", kDifferent = "different",
                                  kNotTold = "not told apart";

// {"schema": "fp4lab.parity/1", "status", "verdict": a sentence, "gap", "power", "window",
// "course", "metrics", "spikes", "next", "notes", "runs", "baseline", "options"}. Losses as the
// files have them; shares are fractions. A run whose loss ends not finite is different; a
// baseline's such run leaves the two not told apart. Deterministic. Throws Error for no runs,
// options out of range, steps against tokens, a window of fewer than kLeastSteps common steps, and
// a baseline whose mean loss is not above 0.
Json ParityDocument(const ParityArms& arms, const ParityOptions& options = {});

// The document as text for a terminal; the verdict is the first line.
std::string ParityText(const Json& document);

}  // namespace fp4lab::study
