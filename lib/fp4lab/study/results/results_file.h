// Reads results.json into the structures that the analysis and the report work on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/io/json.h"
#include "fp4lab/train/observe/diagnose.h"
#include "fp4lab/train/observe/observation.h"

namespace fp4lab::study {

// The losses on a text beside the validation part, as AnnealedPoint's.
struct TextLosses {
  double loss = 0;
  double loss_high = 0;  // NaN where it was not measured
};

// The annealed losses of a run at one budget, nats per token.
struct AnnealedPoint {
  std::int64_t tokens = 0, steps = 0;
  double loss = 0;       // validation in the precision of the training
  double loss_high = 0;  // the same weights in high precision; NaN where it was not measured
  std::vector<double> chunks, chunks_high;       // the same for each chunk of the validation text
  std::map<std::string, TextLosses> texts = {};  // by name
};

struct TrunkLoss {
  std::int64_t tokens = 0;
  double loss = 0;
};

struct CurvePoint {
  std::int64_t step = 0, tokens = 0;
  double loss = 0, learning_rate = 0;
};

struct RunResult {
  std::string arm;
  std::uint64_t seed = 0;
  bool diverged = false;
  std::int64_t diverged_step = 0;
  std::string diverged_tensor;
  std::vector<AnnealedPoint> points;
  std::vector<TrunkLoss> trunk_points;
  std::vector<CurvePoint> curve;
  std::vector<TensorStatistics> tensors;  // each quantized operand, where the trunk ends
  std::vector<Observation> observations;  // the trunk's, then those of each decay, by rising step
  double seconds = 0, tokens_per_second = 0;
  std::vector<std::string> processors;  // the GPUs, with their library of products; empty: CPUs, or
                                        // a file of an older version
};

// The question that the study registered before its runs: its member "analysis".
struct Question {
  std::string reference;
  std::string format, format_reference;  // the contrast {f, R}; empty: none was registered
  std::int64_t primary_tokens = 0;
  double confidence = 0.95;
  std::vector<std::string> null_arms;  // twins of the reference that measure the noise floor
  Json criteria = Json::array();
};

struct ModelSize {
  std::int64_t parameters = 0, block_parameters = 0;
};

// The learning rates of the runs that Results holds (sweep.h).
enum class View {
  kOnly,        // the study sweeps none
  kSharedRate,  // all arms at the rate that is best for the reference
  kBestRates,   // each arm at its own best rate
  kOtherRate,   // all arms at another rate
};

struct Results {
  std::string name, title, description, version;
  Json numerics;  // by arm, the fingerprint of its runs; empty in files of older versions
  Json study;     // resolved: every default spelled out; with the arms of a sweep
  std::string corpus;
  std::int64_t vocabulary = 0, train_tokens = 0, validation_tokens = 0;
  std::string train_sha256, validation_sha256;
  std::int64_t parameters = 0, block_parameters = 0;  // of arms without a model of their own
  std::map<std::string, ModelSize> sizes;             // of the other arms
  std::vector<std::string> arms;                      // in the study's order
  std::vector<std::uint64_t> seeds;                   // in the study's order
  std::vector<std::int64_t> budgets;
  Question question;                    // with the first reference and contrast
  bool exploratory = false;             // the question was changed after a run was complete
  std::vector<std::string> references;  // one for each model of the arms
  std::vector<std::vector<std::string>> contrasts;  // pairs {f, R}, at most one for each model
  std::vector<RunResult> runs;
  // The learning rates of a sweep, ascending; `arms` are then those of the file at each rate, and
  // the question names arms of the file. Empty: none, or one view of a sweep.
  std::vector<double> rates;
  View view = View::kOnly;
  std::string view_title;  // of a view of a sweep: which rates; empty: View::kOnly
  std::string folder;      // of the figures, below "figures"; empty for the only results of a study

  const RunResult* Find(std::string_view arm, std::uint64_t seed) const;
  // The resolved model of an arm: its own, or the study's.
  const Json& ModelOf(const std::string& arm) const;
  // Whether any operand of any run has a finite value of it; files of older versions may have none.
  bool Has(const Diagnostic& diagnostic) const;
  bool HasObservations() const;  // only files of studies with the key "diagnostics" have any
};

// The results of each model of a study by themselves, in the order of Results::references: its
// arms, runs, reference, contrast, null arms and criteria. A single element for a study with one
// model. Throws Error for a contrast of arms of different models.
std::vector<Results> ByModel(const Results& results);

// Reads schema "fp4lab.study.results/1" and ignores unknown members. Throws Error for another
// schema, for a missing or malformed member, and where "sha256" is not the hash of the content.
Results ReadResults(const Json& json, const std::string& where);
// The text of results.json: `results` with the member "sha256", the SHA-256 of the document without
// that member, its keys sorted and without spaces.
std::string ResultsText(Json results);
// Whether `results` has the member "sha256"; older versions wrote none.
bool HasHash(const Json& results);
// `path` is results.json or the folder it lies in.
Results LoadResults(const std::filesystem::path& path);
std::filesystem::path ResultsPath(const std::filesystem::path& file_or_folder);

}  // namespace fp4lab::study
