// Several results.json read as one study: more seeds or larger budgets of the same arms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fp4lab/io/json.h"
#include "fp4lab/study/numbers/statistics.h"
#include "fp4lab/study/numbers/token_gap.h"
#include "fp4lab/study/results/loss_cube.h"
#include "fp4lab/study/results/results_file.h"

namespace fp4lab::study {

// Names a study in the file of a command: its results.json, and those that join it.
struct StudyFiles {
  std::filesystem::path results;
  std::vector<std::filesystem::path> seeds = {};    // the same budgets, other seeds
  std::vector<std::filesystem::path> budgets = {};  // the same seeds, other budgets
  // The file that data/make_tokens.py wrote of a text of tokens; empty: bytes.
  std::filesystem::path tokens = {};
  std::string text = {};  // the name of the text in figures; empty: the corpus's
};

// Reads an element of "studies": a path, or {"results", "seeds": [...], "budgets": [...], "tokens",
// "text"}. Relative paths begin at `folder`.
StudyFiles ReadStudyFiles(const Json& json, const std::string& where,
                          const std::filesystem::path& folder);
// The array `key` of such elements, one at least.
std::vector<StudyFiles> ReadStudyList(JsonObject& o, const std::string& key,
                                      const std::filesystem::path& folder);

// Sums of losses that a number is: arm and factor, {{a, 1}, {b, -1}} for loss(a) - loss(b).
using LossTerms = std::vector<std::pair<std::size_t, double>>;

// One study of one or more results.json. Losses are nats a byte.
struct JoinedStudy {
  Results results;          // of the arms that all files have, complete; joined runs
  std::vector<Json> files;  // name, hash, commit, "analysis": the study's own first
  std::string text;
  double bytes_per_token = 1;
  LossCube cube, high;  // validation in the precision of the training, and in high precision
  ChunkLosses chunks;
  std::vector<bool> apart;  // [arm * budgets + budget]: the seeds are apart
  // The paired gaps of the null arm at the largest budget of the study's own file; may be empty.
  std::vector<double> null_gaps;

  const std::string& Name() const { return results.name; }
  double BytesEach(std::size_t budget) const;  // bytes of text per parameter of the blocks
  // The index of an arm. Throws Error, with the nearest names, if no file or not each file has it.
  std::size_t Arm(const std::string& arm) const;
  bool Has(const std::string& arm) const;
  bool Apart(std::size_t arm, std::size_t budget) const {
    return apart[arm * cube.Budgets() + budget];
  }
  // One number per seed: the loss, a sum of losses, the difference arm - base.
  std::vector<double> LossesAt(std::size_t arm, std::size_t budget) const;
  std::vector<double> SumsAt(const LossTerms& terms, std::size_t budget) const;
  std::vector<double> GapsAt(std::size_t arm, std::size_t base, std::size_t budget) const {
    return SumsAt({{arm, 1.0}, {base, -1.0}}, budget);
  }
};

// Seeds of an arm whose losses differ by more than this at a budget are apart there: one of them
// has fallen from a plateau that another one is still on. Nats a byte.
inline constexpr double kApart = 0.06;

// Whether arms may have models of their own. Losses of several models can be compared, their
// numbers per parameter cannot.
enum class Models { kOne, kSeveral };

// Reads and joins. `null` is compared with `reference` if the first file has it. Throws Error for a
// file whose set-up, text or fingerprints are not the first file's, a seed that two files have, and
// another loss at a budget of both.
JoinedStudy ReadJoinedStudy(const StudyFiles& files, const std::string& reference,
                            const std::string& null, Models models = Models::kOne);

// ln of the token ratio of `arm` to `base` in one seed of `cube` (the study's, or a resample of
// it), by CrossingRatio. nullopt where it is not inside the budgets, and at or beside a budget at
// which seeds are apart.
std::optional<double> StandingRatio(const JoinedStudy& study, const LossCube& cube,
                                    std::size_t seed, std::size_t arm, std::size_t base,
                                    std::size_t budget, Form form);
// The same for every seed; empty unless the ratio stands in all of them.
std::vector<double> StandingRatios(const JoinedStudy& study, const LossCube& cube, std::size_t arm,
                                   std::size_t base, std::size_t budget, Form form);
// ln of the tokens at which `curve` comes down to `loss`; apart[budget]: as above.
std::optional<double> StandingCrossing(const LossCurve& curve, const std::vector<bool>& apart,
                                       double loss);

// The name, hash and commit of each file, as documents made of the study say; `first`: the own one.
Json SourceOf(const Json& file);
Json JoinedSources(const JoinedStudy& study);

// {"mean", "interval_t" (null below kLeastSeeds), "seeds"} of one value a seed.
Json NumberJson(const std::vector<double>& values);
inline constexpr double kConfidence = 0.95;

}  // namespace fp4lab::study
