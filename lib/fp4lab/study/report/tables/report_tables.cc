#include "fp4lab/study/report/tables/report_tables.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/recipe/recipe_json.h"
#include "fp4lab/study/numbers/number_text.h"
#include "fp4lab/study/report/figures/svg.h"
#include "fp4lab/study/report/html.h"
#include "fp4lab/study/report/tables/operand_name.h"
#include "fp4lab/train/optimizer/optimizers.h"

namespace fp4lab::study {
namespace {

std::string Tokens(std::int64_t tokens) { return TokensText(static_cast<double>(tokens)); }

std::string Percent(double share) { return Signed(100 * share, 2) + " %"; }

std::string MeanAndDeviation(const Summary& summary, std::size_t diverged) {
  std::string text = summary.count == 0 ? "-" : Fixed(summary.mean, 4);
  if (summary.count > 1) text += " &plusmn; " + Fixed(summary.deviation, 4);
  if (diverged > 0) {
    text += " <span class=\"failed\">" + std::to_string(diverged) + " diverged</span>";
  }
  return text;
}

std::string IntervalOr(const std::optional<Interval>& interval, int digits) {
  return interval ? IntervalText(*interval, digits) : "<span class=\"muted\">not given</span>";
}

std::string SeedRatio(const LogRatio& r) {
  switch (r.status) {
    case LogRatio::Status::kIdentified:
      return Fixed(std::exp(r.value), 2) + (r.extrapolated ? "*" : "");
    case LogRatio::Status::kAbove:
      return "&gt; " + Fixed(std::exp(r.value), 2);
    case LogRatio::Status::kBelow:
      return "&lt; " + Fixed(std::exp(r.value), 2);
    case LogRatio::Status::kUndefined:
      return "-";
  }
  return "";
}

const char* EstimatorText(Estimator estimator) {
  switch (estimator) {
    case Estimator::kCrossing:
      return "1 crossing";
    case Estimator::kPowerLaw:
      return "2 power law";
    case Estimator::kSharedBaseline:
      return "3 shared baseline";
  }
  return "";
}

HtmlTable GapRows(const Results& results, const Analysis& analysis, Precision precision) {
  HtmlTable table;
  table.caption = precision == Precision::kTraining
                      ? "Paired differences of the final loss, nats per token, seed by seed. "
                        "The t interval leaves out the error of the validation text, which all "
                        "seeds share; the bootstrap draws that text, too."
                      : "Paired differences with the same weights validated in high precision.";
  table.head = {"difference", "D"};
  for (const std::uint64_t seed : results.seeds) {
    table.head.push_back("seed " + std::to_string(seed));
  }
  for (const char* name : {"mean", "s.d.", "t interval", "bootstrap", "relative"}) {
    table.head.emplace_back(name);
  }
  table.text_columns = 2;
  for (const LossGap& gap : analysis.gaps) {
    if (gap.precision != precision) continue;
    std::vector<std::string> row = {EscapedMarkup(gap.arm + " - " + gap.reference),
                                    Tokens(gap.tokens)};
    for (const auto& value : gap.per_seed) row.push_back(value ? Signed(*value, 4) : "-");
    std::string mean = "<b>" + (gap.summary.count > 0 ? Signed(gap.summary.mean, 4) : "-") + "</b>";
    if (gap.diverged > 0) {
      mean += " <span class=\"failed\">diverged: " + std::to_string(gap.diverged) + "</span>";
    }
    row.insert(row.end(),
               {mean, gap.summary.count > 1 ? Fixed(gap.summary.deviation, 4) : "-",
                IntervalOr(gap.interval, 4), IntervalOr(gap.bootstrap, 4), Percent(gap.relative)});
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::string NotIdentified(const std::string& reason) {
  return "<span class=\"open\">not identified</span> " + EscapedMarkup(reason);
}

std::vector<std::string> RatioRow(const TokenRatio& r) {
  std::string seeds;
  for (const LogRatio& ratio : r.per_seed) seeds += (seeds.empty() ? "" : " ") + SeedRatio(ratio);
  std::vector<std::string> row = {Tokens(r.tokens), EstimatorText(r.estimator),
                                  r.form == Form::kExtend ? "r" : "r'"};
  if (r.identified) {
    std::string ratio = "<b>" + Fixed(r.ratio, 3) + "</b>" + (r.extrapolated ? "*" : "");
    if (!r.disagreement.empty()) ratio += " " + NotIdentified(r.disagreement);
    row.insert(row.end(), {ratio, IntervalOr(r.interval, 2), IntervalOr(r.bootstrap, 2)});
  } else {
    row.insert(row.end(), {NotIdentified(r.reason), std::string(kJoined), std::string(kJoined)});
  }
  row.insert(row.end(), {Signed(r.loss_difference, 4), Fixed(r.slope, 3), Fixed(r.first_order, 2),
                         PerParameterText(r.tokens_per_parameter), seeds});
  return row;
}

HtmlTable RatioTable(const Analysis& analysis, const ArmPair& pair, Precision precision) {
  HtmlTable table;
  table.caption = "Tokens that " + pair.format + " needs to match " + pair.reference +
                  ", as a multiple of the tokens " + pair.reference + " had" +
                  (precision == Precision::kHigh ? "; by the losses in high precision." : ".");
  table.head = {"D", "estimator",       "form", "ratio", "t interval", "bootstrap", "&Delta;L",
                "s", "exp(&Delta;L/s)", "D/N",  "seeds"};
  table.text_columns = 3;
  std::string no_law;  // why no law was fitted: one row for all budgets and forms
  bool any_law = false;
  for (const TokenRatio& r : analysis.ratios) {
    if (r.format != pair.format || r.reference != pair.reference || r.precision != precision) {
      continue;
    }
    const bool law = r.estimator == Estimator::kPowerLaw;
    any_law = any_law || (law && r.identified);
    if (law && !r.identified) no_law = r.reason;
  }
  for (const TokenRatio& r : analysis.ratios) {
    if (r.format != pair.format || r.reference != pair.reference || r.precision != precision) {
      continue;
    }
    if (r.estimator == Estimator::kPowerLaw && !any_law) continue;
    table.rows.push_back(RatioRow(r));
  }
  if (!any_law && !no_law.empty()) {
    std::vector<std::string> row = {"all", EstimatorText(Estimator::kPowerLaw), "",
                                    NotIdentified(no_law)};
    row.resize(table.head.size(), std::string(kJoined));
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::string FitText(const FitNotes& notes) {
  const bool high = notes.precision == Precision::kHigh;
  std::string text = high ? "High-precision losses: " : "Losses in the training precision: ";
  if (notes.gamma) {
    text += "estimator 3 has gamma = " + Fixed(*notes.gamma, 3) + " (rms " +
            Fixed(*notes.gamma_rms, 4) + " nats)";
  } else {
    text += "estimator 3 has nothing to fit";
  }
  if (!notes.power_law.empty()) return text + "; estimator 2 " + notes.power_law + ".";
  const Summary beta = Summarize(notes.beta), rms = Summarize(notes.beta_rms);
  return text + "; estimator 2 has beta = " + Fixed(beta.mean, 3) + " (s.d. over seeds " +
         Fixed(beta.deviation, 3) + ", rms " + Fixed(rms.mean, 4) + " nats).";
}

std::string RecipeTable(const Results& results) {
  HtmlTable table;
  table.caption =
      "What each GEMM of a quantized linear reads: block format, rounding where it is "
      "stochastic, and the size of the Hadamard transform.";
  table.head = {"arm",        "recipe",       "fprop input", "fprop weight",
                "dgrad grad", "dgrad weight", "wgrad grad",  "wgrad input"};
  table.text_columns = 8;
  const auto add = [&](const std::string& arm, const Json& recipe, const std::string& of) {
    if (!recipe.is_object() || !recipe.contains("fprop")) {
      table.rows.push_back({EscapedMarkup(arm), EscapedMarkup(recipe.dump())});
      return;
    }
    const auto cell = [&](const char* gemm, const char* operand) {
      return EscapedMarkup(OperandText(recipe.at(gemm).at(operand)));
    };
    std::string base = recipe.value("base", "");
    if (recipe.contains("then")) {
      base += ", from " + recipe["then"]["at"].dump() + " of the steps on " +
              recipe["then"]["recipe"].value("base", "");
    }
    table.rows.push_back({EscapedMarkup(arm), EscapedMarkup(base + of), cell("fprop", "input"),
                          cell("fprop", "weight"), cell("dgrad", "grad"), cell("dgrad", "weight"),
                          cell("wgrad", "grad"), cell("wgrad", "input")});
  };
  for (const std::string& arm : results.arms) {
    const Json& recipe = results.study.at("arms").at(arm).at("recipe");
    if (!recipe.is_object() || !recipe.contains("rules")) {
      add(arm, recipe, "");
      continue;
    }
    for (const Json& rule : recipe.at("rules")) {
      std::string of = ": " + rule.at("linears").dump();
      for (const char* key : {"blocks", "steps"}) {
        if (rule.contains(key)) of += ", " + std::string(key) + " " + rule.at(key).dump();
      }
      add(arm, rule.at("recipe"), of);
    }
    add(arm, recipe.at("rest"), ": the rest");
  }
  return table.Html();
}

// "AdamW"; the name itself if another release wrote it.
std::string OptimizerTitle(const std::string& name) {
  for (const Optimizer* optimizer : Optimizers()) {
    if (optimizer->name == name) return std::string(optimizer->title);
  }
  return name;
}

std::string Members(const Json& object) {
  std::string text;
  for (const auto& [key, value] : object.items()) {
    text += (text.empty() ? "" : ", ") + key + " " +
            (value.is_string() ? value.get<std::string>() : value.dump());
  }
  return text;
}

std::string List(const auto& values) {
  std::string text;
  for (const auto& value : values) text += (text.empty() ? "" : ", ") + std::to_string(value);
  return text;
}

std::string DiagnosticText(const Diagnostic& diagnostic, double value) {
  if (!std::isfinite(value)) return "-";
  return diagnostic.digits > 0 ? Fixed(value, diagnostic.digits) : SignificantText(value);
}

// One operand of one GEMM in one arm: the tensors of all linears, blocks and seeds.
struct OperandGroup {
  std::string arm, gemm, operand;
  std::vector<const TensorStatistics*> tensors;
};

std::vector<OperandGroup> GroupsOf(const Results& results) {
  std::vector<OperandGroup> groups;
  for (const std::string& arm : results.arms) {
    const std::size_t first = groups.size();
    for (const RunResult& run : results.runs) {
      if (run.arm != arm) continue;
      for (const TensorStatistics& tensor : run.tensors) {
        const OperandName name = ParseOperandName(tensor.name);
        auto group = std::find_if(
            groups.begin() + static_cast<std::ptrdiff_t>(first), groups.end(),
            [&](const auto& g) { return g.gemm == name.gemm && g.operand == name.operand; });
        if (group == groups.end()) {
          group = groups.insert(groups.end(), {arm, name.gemm, name.operand, {}});
        }
        group->tensors.push_back(&tensor);
      }
    }
    std::sort(groups.begin() + static_cast<std::ptrdiff_t>(first), groups.end(),
              [](const auto& a, const auto& b) {
                return std::pair(PlaceOfGemm(a.gemm), a.operand) <
                       std::pair(PlaceOfGemm(b.gemm), b.operand);
              });
  }
  return groups;
}

double MeanOf(const OperandGroup& group, const Diagnostic& diagnostic) {
  std::vector<double> values;
  for (const TensorStatistics* tensor : group.tensors) {
    const double value = tensor->values[diagnostic.key];
    if (std::isfinite(value)) values.push_back(value);
  }
  return values.empty() ? NAN : Summarize(values).mean;
}

// The number of runs of each GPU, or of GPUs that shared a run in turn.
std::map<std::string, int> RunsByProcessors(const Results& results) {
  std::map<std::string, int> runs;
  for (const RunResult& run : results.runs) {
    std::string names;
    for (const std::string& name : run.processors) names += (names.empty() ? "" : ", then ") + name;
    if (!names.empty()) ++runs[names];
  }
  return runs;
}

std::string DurationText(double seconds) {
  if (seconds < 90) return Fixed(seconds, 0) + " s";
  return seconds < 5400 ? Fixed(seconds / 60, 1) + " min" : Fixed(seconds / 3600, 1) + " h";
}

// "20 min in 12 runs, 1.7 min each in the median, 20k tokens per second".
std::string TimeText(const Results& results) {
  std::vector<double> seconds, speeds;
  for (const RunResult& run : results.runs) {
    seconds.push_back(run.seconds);
    speeds.push_back(run.tokens_per_second);
  }
  const auto median = [](std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
  };
  const double all = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  return DurationText(all) + " in " + CountText(results.runs.size(), "run") + ", " +
         DurationText(median(seconds)) + " each in the median, " + TokensText(median(speeds)) +
         " tokens per second";
}

}  // namespace

std::string OperandTable(const Results& results) {
  const IeeeArithmetic ieee;
  const std::vector<OperandGroup> groups = GroupsOf(results);
  if (groups.empty()) return "<p>No operand was measured.</p>\n";
  HtmlTable table;
  table.caption =
      "Quantized operands at the end of the trunk: means over linears, blocks and seeds.";
  table.head = {"arm", "operand"};
  table.text_columns = 2;
  std::string notes;
  std::vector<std::string> absent;
  for (const Diagnostic& diagnostic : Diagnostics()) {
    const std::string label(diagnostic.label);
    if (!results.Has(diagnostic)) {
      absent.push_back(label);
      continue;
    }
    table.head.push_back(EscapedMarkup(LabelWithUnit(diagnostic)));
    notes += EscapedMarkup(label + ": " + std::string(diagnostic.definition) + ". " +
                           std::string(diagnostic.reading) + " ");
  }
  for (const OperandGroup& group : groups) {
    std::vector<std::string> row = {EscapedMarkup(group.arm),
                                    EscapedMarkup(group.gemm + " " + group.operand)};
    for (const Diagnostic& diagnostic : Diagnostics()) {
      if (!results.Has(diagnostic)) continue;
      row.push_back(DiagnosticText(diagnostic, MeanOf(group, diagnostic)));
    }
    table.rows.push_back(std::move(row));
  }
  std::string html = table.Html() + "<p class=\"note\">" + notes + "</p>\n";
  if (!absent.empty()) {
    html += "<p class=\"note\">Missing in this file of fp4lab " + EscapedMarkup(results.version) +
            ": " + EscapedMarkup(Joined(absent, ", ")) + ".</p>\n";
  }
  return html;
}

std::string RatioText(const TokenRatio& ratio) {
  const IeeeArithmetic ieee;
  if (!ratio.identified) return "not identified (" + ratio.reason + ")";
  return Fixed(ratio.ratio, 2) + (ratio.interval ? " " + IntervalText(*ratio.interval, 2) : "");
}

std::string CriteriaTable(const Analysis& analysis) {
  const IeeeArithmetic ieee;
  if (analysis.criteria.empty()) return "<p>This study registered no criteria.</p>\n";
  HtmlTable table;
  table.head = {"verdict", "criterion", "numbers"};
  table.text_columns = 3;
  for (const CriterionResult& c : analysis.criteria) {
    const char* style = c.status == CriterionResult::Status::kHeld     ? "held"
                        : c.status == CriterionResult::Status::kFailed ? "failed"
                                                                       : "open";
    const std::string published =
        c.source.empty() ? "" : "<br>published: " + EscapedMarkup(c.Published());
    std::string numbers = EscapedMarkup(c.numbers);
    for (std::size_t at = numbers.find("; "); at != numbers.npos; at = numbers.find("; ", at)) {
      // Puts every budget on a line of its own. The "; " of an entity, as in "&lt; ", stays.
      const std::size_t entity = numbers.rfind('&', at);
      if (entity != numbers.npos && at - entity <= 5) {
        at += 2;
        continue;
      }
      numbers.replace(at, 2, "<br>");
    }
    table.rows.push_back(
        {"<span class=\"" + std::string(style) + "\">" + std::string(c.Verdict()) + "</span>",
         EscapedMarkup(c.statement) + published, numbers});
  }
  return table.Html();
}

std::string LossTable(const Results& results, const Analysis& analysis) {
  const IeeeArithmetic ieee;
  std::string html;
  for (const Precision precision : {Precision::kTraining, Precision::kHigh}) {
    if (analysis.FindLoss(results.arms[0], results.budgets[0], precision) == nullptr) continue;
    HtmlTable table;
    table.caption =
        precision == Precision::kTraining
            ? "Final validation loss, nats per token, in the precision of the training: mean and "
              "s.d. over seeds. The s.d. includes variation that all arms of a seed share; the "
              "paired differences below do not."
            : "The same weights validated in high precision.";
    table.head = {"arm"};
    for (const std::int64_t tokens : results.budgets) table.head.push_back(Tokens(tokens));
    for (const std::string& arm : results.arms) {
      std::vector<std::string> row = {EscapedMarkup(arm)};
      for (const std::int64_t tokens : results.budgets) {
        const ArmLoss* loss = analysis.FindLoss(arm, tokens, precision);
        row.push_back(MeanAndDeviation(loss->summary, loss->diverged));
      }
      table.rows.push_back(std::move(row));
    }
    html += precision == Precision::kTraining
                ? table.Html()
                : "<details><summary>Losses in high precision</summary>\n" + table.Html() +
                      "</details>\n";
  }
  return html;
}

std::string GapTable(const Results& results, const Analysis& analysis) {
  const IeeeArithmetic ieee;
  const std::string html = GapRows(results, analysis, Precision::kTraining).Html();
  if (analysis.FindLoss(results.arms[0], results.budgets[0], Precision::kHigh) == nullptr) {
    return html;
  }
  return html + "<details><summary>The same of the losses in high precision</summary>\n" +
         GapRows(results, analysis, Precision::kHigh).Html() + "</details>\n";
}

std::string RatioTables(const Results& results, const Analysis& analysis) {
  const IeeeArithmetic ieee;
  std::string html;
  for (const ArmPair& pair : PairsOf(results)) {
    html += RatioTable(analysis, pair, Precision::kTraining).Html();
  }
  std::string high;
  for (const ArmPair& pair : PairsOf(results)) {
    const HtmlTable table = RatioTable(analysis, pair, Precision::kHigh);
    if (!table.rows.empty()) high += table.Html();
  }
  if (!high.empty()) {
    html += "<details><summary>The same of the losses in high precision</summary>\n" + high +
            "</details>\n";
  }
  html +=
      "<p class=\"note\">* extrapolated beyond the budgets, by half a grid step at most (the "
      "power law: by a factor of two). s: the local slope -dL/d ln D of the first format at D. "
      "t interval: over the seeds' ln r, " +
      Fixed(100 * results.question.confidence, 0) + " %; none from fewer than " +
      std::to_string(kLeastSeeds) +
      " seeds. It leaves out the error of the validation text, which all seeds share. Bootstrap: " +
      std::to_string(analysis.draws) + " draws of seeds" +
      (analysis.chunks > 0
           ? " and of the " + std::to_string(analysis.chunks) + " chunks of the validation text"
           : ", the same for all formats (no chunk losses to draw from)") +
      "; too narrow with three seeds or fewer. \"open\": more draws than the interval leaves "
      "out do not cross within the budgets' reach.</p>\n";
  for (const FitNotes& notes : analysis.fits) {
    html += "<p class=\"note\">" + EscapedMarkup(FitText(notes)) + "</p>\n";
  }
  return html;
}

std::string SetupTables(const Results& results) {
  const IeeeArithmetic ieee;
  const Json& study = results.study;
  HtmlTable table;
  table.head = {"property", "value"};
  table.text_columns = 2;
  const auto add = [&](const char* what, const std::string& value) {
    table.rows.push_back({what, "<code>" + EscapedMarkup(value) + "</code>"});
  };
  add("fp4lab", results.version);
  for (const auto& [arm, fingerprint] : results.numerics.items()) {
    if (fingerprint.is_string()) add("numerics", arm + ": " + fingerprint.get<std::string>());
  }
  add("training time", TimeText(results));
  if (RunsByProcessors(results).empty()) add("device", study.value("device", "cpu"));
  for (const auto& [processors, runs] : RunsByProcessors(results)) {
    add("GPU", processors + ": " + std::to_string(runs) + (runs == 1 ? " run" : " runs"));
  }
  add("model", Members(study.value("model", Json::object())));
  add("parameters", std::to_string(results.parameters) + ", of these in blocks (N) " +
                        std::to_string(results.block_parameters));
  Json optimizer = study.value("optimizer", Json::object());
  const std::string title = OptimizerTitle(optimizer.value("name", OptimizerConfig().name));
  optimizer.erase("name");
  add("optimizer", title + ", " + Members(optimizer));
  add("schedule", Members(study.value("schedule", Json::object())));
  add("batch", study.value("batch", Json()).dump() + " sequences in " +
                   study.value("micro_batches", Json(1)).dump() + " micro-batch(es)");
  add("budgets D", List(results.budgets));
  add("seeds", List(results.seeds));
  add("corpus", results.corpus + ": " + std::to_string(results.train_tokens) +
                    " tokens to train, " + std::to_string(results.validation_tokens) +
                    " to validate, vocabulary " + std::to_string(results.vocabulary));
  add("SHA-256, train", results.train_sha256);
  add("SHA-256, validation", results.validation_sha256);
  add("validation", Members(study.value("evaluation", Json::object())));
  return table.Html() + RecipeTable(results) +
         "<details><summary>The resolved study, with every default</summary>\n"
         "<pre>" +
         EscapedMarkup(study.dump(2)) + "</pre></details>\n";
}

std::string NotesHtml(const Results& results, const Analysis& analysis) {
  const IeeeArithmetic ieee;
  std::string html;
  if (results.exploratory) {
    html +=
        "<p class=\"warning\"><b>Exploratory.</b> The question or the criteria were changed "
        "after a run was complete, so the criteria are no predictions.</p>\n";
  }
  for (const RunResult& run : results.runs) {
    if (!run.diverged) continue;
    html += "<p class=\"warning\"><b>" + EscapedMarkup(run.arm) + ", seed " +
            std::to_string(run.seed) + " diverged</b> at step " +
            std::to_string(run.diverged_step) + ", first in " + EscapedMarkup(run.diverged_tensor) +
            ". It counts as a loss of +infinity; means and differences are over the seeds that "
            "finished.</p>\n";
  }
  if (RunsByProcessors(results).size() > 1) {
    html +=
        "<p class=\"warning\"><b>Several kinds of GPUs</b> trained these runs, as the setup below "
        "says. Kinds add in orders of their own, so a run on another kind is another sample of its "
        "rounding.</p>\n";
  }
  std::map<std::string, std::vector<std::string>> floors;  // of each twin, a text per budget
  for (const NullFloor& floor : analysis.null_floor) {
    floors[floor.arm].push_back(Signed(floor.summary.mean, 4) + " nats (s.d. " +
                                Fixed(floor.summary.deviation, 4) + ") at " + Tokens(floor.tokens));
  }
  for (const auto& [arm, texts] : floors) {
    html += "<p>Noise floor: " + EscapedMarkup(arm) +
            ", a twin of the reference, differs from it by " + Joined(texts, ", ") +
            ". Smaller gaps are not significant.</p>\n";
  }
  return html;
}

}  // namespace fp4lab::study
