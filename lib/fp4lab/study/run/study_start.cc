#include "fp4lab/study/run/study_start.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/train/corpus_fit.h"
#include "fp4lab/train/engine.h"
#include "fp4lab/train/model/memory.h"
#include "fp4lab/train/model/recipe_plan.h"
#include "fp4lab/train/model/shapes.h"

namespace fp4lab::study {
namespace {

// Copies of a run's state in memory while a checkpoint from inside a branch is read: the branch's
// and the trunk's state in one array, and the trunk's state by itself.
constexpr double kStatesOfCheckpoint = 3;

// The first of the runs with the largest `size`; null without runs.
template <class Size>
const TrainConfig* LargestRun(const std::vector<TrainConfig>& runs, const Size& size) {
  const TrainConfig* largest = nullptr;
  double most = 0.0;
  for (const TrainConfig& run : runs) {
    const double here = size(run);
    if (largest != nullptr && here <= most) continue;
    largest = &run;
    most = here;
  }
  return largest;
}

}  // namespace

int JobsOf(const Study& study, int jobs, std::size_t runs) {
  const bool on_gpu = study.base.device == Device::kCuda;
  const int places = on_gpu ? std::max(1, CudaGpus()) : Threads();
  return std::clamp(jobs > 0 ? jobs : places, 1, std::max(1, static_cast<int>(runs)));
}

std::uintmax_t BytesOfRun(const Trainer& trainer) {
  return 3 * trainer.SaveState().size() + (1 << 20);
}

Corpus LoadCorpusOf(const Study& study) {
  Corpus corpus = LoadCorpusFor(study.base);
  for (const Arm& arm : study.arms) {
    CheckCorpus(ConfigOf(study, arm, study.seeds.front()), corpus, study.name);
  }
  return corpus;
}

void CheckMachine(const std::string& name, const std::vector<TrainConfig>& runs,
                  const Corpus& corpus, int jobs, std::uintmax_t* bytes) {
  const IeeeArithmetic ieee;
  if (runs.empty()) return;
  CheckMemory(*LargestRun(runs, [](const TrainConfig& c) { return EstimateMemory(c).Total(); }),
              name, jobs, kStatesOfCheckpoint);
  const TrainConfig* const largest = LargestRun(
      runs, [](const TrainConfig& c) { return static_cast<double>(ParameterCount(c.model)); });
  const Trainer trainer(*largest, corpus, name);
  if (bytes != nullptr) *bytes = BytesOfRun(trainer);
}

Corpus CheckStart(const Study& study, int jobs) {
  Corpus corpus = LoadCorpusOf(study);
  std::vector<TrainConfig> runs;
  for (const Arm& arm : study.arms) {
    for (const std::uint64_t seed : study.seeds) runs.push_back(ConfigOf(study, arm, seed));
  }
  CheckMachine(study.name, runs, corpus, JobsOf(study, jobs, runs.size()));
  return corpus;
}

namespace {

// Whether the recipe is for linears that the model does not have, so that it quantizes nothing.
bool QuantizesNothing(const Recipe& recipe, const ModelConfig& model) {
  const auto is_plain = [](std::string_view name) { return name == "bf16" || name == "fp32"; };
  if (is_plain(recipe.base)) return false;
  const std::vector<RecipePlanRow> plan = RecipePlanOf(recipe, model);
  return std::all_of(plan.begin(), plan.end(),
                     [&](const RecipePlanRow& row) { return is_plain(row.recipe); });
}

// A note on each head size for which a GPU has no attention on tensor cores; `arm` has it first.
void AddSlowAttention(const Study& study, std::vector<std::string>* notes) {
  std::set<std::size_t> said;
  for (const Arm& arm : study.arms) {
    const std::size_t head_dim = AttentionHeadDim(arm.model);
    if (HasTensorCoreAttention(arm.model) || !said.insert(head_dim).second) continue;
    notes->push_back(study.name + ": heads of " + std::to_string(head_dim) + " columns (arm \"" +
                     arm.name +
                     "\") have no attention on tensor cores, and a step takes several "
                     "times as long; heads of 16, 32, 64 and 128 have");
  }
}

}  // namespace

std::vector<std::string> NotesOn(const Study& study, const Corpus& corpus) {
  std::vector<std::string> notes;
  std::string shortfall = EvaluationShortfall(study.base, corpus);
  if (!shortfall.empty()) notes.push_back(study.name + ": " + std::move(shortfall));
  for (const Arm& arm : study.arms) {
    if (!QuantizesNothing(arm.recipe, arm.model)) continue;
    notes.push_back(study.name + ": the recipe of the arm \"" + arm.name +
                    "\" is for no linear of its model, so it trains as without it; give "
                    "\"rules\" with the names that `fp4lab study check` lists");
  }
  if (study.base.device == Device::kCuda) AddSlowAttention(study, &notes);
  return notes;
}

}  // namespace fp4lab::study
