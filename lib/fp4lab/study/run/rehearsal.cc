#include "fp4lab/study/run/rehearsal.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "fp4lab/base/ieee_arithmetic.h"

namespace fp4lab::study {
namespace {

constexpr int kWidth = 128;  // the largest Hadamard group and block of recipes
constexpr int kHeads = 4, kExperts = 8, kSequence = 64, kChannels = 2;
constexpr std::int64_t kTokensPerStep = 256, kLeastSteps = 4;  // tokens: fewer for odd sequences

// Models that differ stay different: the i-th distinct one of the study gets its own FFN.
class Models {
 public:
  ModelConfig Small(const ModelConfig& model) {
    auto found = std::find(seen_.begin(), seen_.end(), model);
    if (found == seen_.end()) found = seen_.insert(seen_.end(), model);
    ModelConfig small = model;
    small.d_model = std::min(model.d_model, kWidth);
    small.heads = std::min(model.heads, kHeads);
    // Three heads of 192 columns do not divide the small width.
    while (small.head_dim == 0 && small.heads > 1 && small.d_model % (2 * small.heads) != 0) {
      --small.heads;
    }
    small.kv_heads = 0;
    // Heads together as wide as the small model, at most, and a window within its sequences.
    small.head_dim = std::min(model.head_dim, 2 * kWidth / small.heads);
    small.window = std::min(model.window, kSequence / 2);
    small.ffn = 2 * kWidth + kWidth * static_cast<int>(found - seen_.begin());
    small.moe.experts = std::min(model.moe.experts, kExperts);
    small.moe.top_k = std::min(model.moe.top_k, small.moe.experts);
    small.moe.ffn = 0;
    small.outliers.channels = std::min(model.outliers.channels, kChannels);
    small.outliers.step = std::min<std::int64_t>(model.outliers.step, kLeastSteps / 2);
    small.sequence = std::min(model.sequence, kSequence);
    small.vocabulary = 256;
    return small;
  }

 private:
  std::vector<ModelConfig> seen_;
};

ScheduleConfig Short(ScheduleConfig schedule) {
  schedule.warmup_steps = std::min<std::int64_t>(schedule.warmup_steps, 2);
  return schedule;
}

// Budgets in steps, in the proportions of the study's, ascending.
std::vector<std::int64_t> StepsOf(const std::vector<std::int64_t>& budgets) {
  std::vector<std::int64_t> steps;
  for (const std::int64_t budget : budgets) {
    const double share = static_cast<double>(budget) / static_cast<double>(budgets.back());
    const std::int64_t least = steps.empty() ? kLeastSteps : steps.back() + 1;
    steps.push_back(std::max<std::int64_t>(least, std::llround(share * kRehearsalSteps)));
  }
  return steps;
}

// The rehearsal's budget in place of one of the study's, or of the next larger one; the largest for
// numbers beyond.
std::int64_t Mapped(const Study& study, const std::vector<std::int64_t>& budgets, double tokens) {
  std::size_t i = 0;
  while (i + 1 < budgets.size() && static_cast<double>(study.budgets[i]) < tokens) ++i;
  return budgets[i];
}

}  // namespace

Study RehearsalOf(const Study& study) {
  const IeeeArithmetic ieee;
  Study quick = study;
  quick.name += "-quick";
  quick.title = "Rehearsal: " + (study.title.empty() ? study.name : study.title);
  quick.description = "A small version of the study " + study.name +
                      " on synthetic text, which shows that its recipes, analysis and report work. "
                      "Its losses, gaps and verdicts "
                      "mean nothing.";
  Models models;
  quick.base.model = models.Small(study.base.model);
  quick.base.start.clear();
  quick.base.teacher = {};
  quick.base.schedule = Short(study.base.schedule);
  for (Arm& arm : quick.arms) {
    arm.model = models.Small(arm.model);
    arm.start.clear();
    arm.teacher = {};
    arm.schedule = Short(arm.schedule);
  }
  quick.base.device = Device::kCpu;
  quick.base.data = {};
  quick.base.data.source = "synthetic";
  quick.base.data.synthetic_bytes = 100'000;
  quick.base.batch = static_cast<int>(kTokensPerStep / quick.base.model.sequence);
  quick.base.micro_batches = 1;
  const std::int64_t per_step = TokensPerStep(quick.base);
  quick.base.evaluation.tokens = 8 * per_step;
  quick.base.evaluation.chunk_tokens = per_step;
  // Tokens of another vocabulary than the rehearsal's bytes.
  std::erase_if(quick.base.evaluation.texts,
                [](const ValidationText& text) { return !text.tokens.empty(); });
  quick.seeds.resize(std::min<std::size_t>(quick.seeds.size(), 2));
  quick.budgets = StepsOf(study.budgets);
  for (std::int64_t& budget : quick.budgets) budget *= per_step;
  if (DiagnosticsConfig& observed = quick.base.diagnostics; observed.Asked()) {
    observed.every = 0;
    observed.steps = {0, kLeastSteps - 1};
    observed.tokens = per_step;
  }
  const auto mapped = [&](double tokens) { return Mapped(study, quick.budgets, tokens); };
  quick.analysis.primary_tokens = mapped(static_cast<double>(study.analysis.primary_tokens));
  for (Json& criterion : quick.analysis.criteria) {
    if (criterion.contains("minimum_tokens")) {
      criterion["minimum_tokens"] = mapped(0.95 * criterion["minimum_tokens"].get<double>());
    }
  }
  // Reading it back checks the shapes, as of any study.
  return ParseStudy(ToJson(quick).dump(), study.name + " --quick");
}

}  // namespace fp4lab::study
