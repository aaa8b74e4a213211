#include "fp4lab/study/report/compare.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/io/file.h"
#include "fp4lab/study/numbers/number_text.h"
#include "fp4lab/study/report/figures/figure_compare.h"
#include "fp4lab/study/report/figures/overlay_range.h"
#include "fp4lab/study/report/html.h"
#include "fp4lab/study/report/report_sections.h"
#include "fp4lab/study/report/tables/report_tables.h"
#include "fp4lab/study/report/tables/text_table.h"

namespace fp4lab::study {
namespace {

constexpr std::size_t kShownDigits = 12;  // of fingerprints and commits, in tables and messages

std::string Tokens(std::int64_t tokens) { return TokensText(static_cast<double>(tokens)); }

// The fingerprint of an arm; empty in files of older versions.
std::string NumericsOf(const StudyReport& study, const std::string& arm) {
  const Json& numerics = study.results.numerics;
  if (!numerics.is_object() || !numerics.contains(arm) || !numerics[arm].is_string()) return "";
  return numerics[arm].get<std::string>();
}

// The inputs of an arm's fingerprint, beside the build and the chip.
Json MeasuredFrom(const StudyReport& study, const std::string& name) {
  const Json& resolved = study.results.study;
  const Json& arm = resolved.at("arms").at(name);
  const Json& model = study.results.ModelOf(name);
  return {{"recipe", arm.at("recipe")},
          {"activation", model.value("activation", Json())},
          {"tied_head", model.value("tied_head", Json())},
          {"device", resolved.value("device", Json("cpu"))}};
}

// The commit of the program that wrote the file, shortened; empty where the file has none.
std::string CommitOf(const StudyReport& study) {
  const Json commit = study.json.value("fp4lab_commit", Json());
  return commit.is_string() ? commit.get<std::string>().substr(0, kShownDigits) : "";
}

// The largest budget that all models of all studies have.
std::optional<std::int64_t> CommonBudget(const std::vector<StudyReport>& studies) {
  std::set<std::int64_t> common(studies[0].results.budgets.begin(),
                                studies[0].results.budgets.end());
  for (const StudyReport& study : studies) {
    const std::vector<std::int64_t>& own = study.results.budgets;
    std::erase_if(common, [&](std::int64_t tokens) {
      return std::find(own.begin(), own.end(), tokens) == own.end();
    });
  }
  if (common.empty()) return std::nullopt;
  return *common.rbegin();
}

// One arm of one study, as text.
struct ArmRow {
  std::size_t study = 0;
  std::string arm, size, budgets, seeds, at, gap, numerics;
  std::vector<std::pair<std::string, const TokenRatio*>> ratios;  // the reference, and the ratio
  bool is_reference = false, mixed = false;
};

ArmRow RowOf(const ModelReport& model, const std::string& arm, std::int64_t tokens) {
  const Results& results = model.results;
  const double size = static_cast<double>(results.block_parameters);
  ArmRow row;
  row.arm = arm;
  row.size = TokensText(size);
  const std::size_t budgets = results.budgets.size();
  row.budgets = Tokens(results.budgets.front());
  if (budgets > 1) row.budgets += " to " + Tokens(results.budgets.back());
  row.budgets += " (" + std::to_string(budgets) + ")";
  row.seeds = std::to_string(results.seeds.size());
  row.at = Tokens(tokens) + ", D/N " + PerParameterText(static_cast<double>(tokens) / size);
  row.is_reference = arm == results.question.reference;
  const LossGap* gap =
      model.analysis.FindGap(arm, results.question.reference, tokens, Precision::kTraining);
  if (row.is_reference) {
    row.gap = "reference";
  } else if (gap == nullptr || gap->summary.count == 0) {
    row.gap = "-";
  } else {
    row.gap = Signed(gap->summary.mean, 4);
    if (gap->interval) row.gap += " " + IntervalText(*gap->interval, 4);
    if (gap->diverged > 0) row.gap += ", " + std::to_string(gap->diverged) + " diverged";
  }
  for (const ArmPair& pair : PairsOf(results)) {
    const TokenRatio* ratio = ShownRatio(model.analysis, pair, tokens);
    if (pair.format == arm && ratio != nullptr) row.ratios.emplace_back(pair.reference, ratio);
  }
  return row;
}

std::vector<ArmRow> RowsOf(const std::vector<StudyReport>& studies,
                           const std::vector<NumericsConflict>& conflicts) {
  const std::optional<std::int64_t> common = CommonBudget(studies);
  std::vector<ArmRow> rows;
  for (std::size_t s = 0; s < studies.size(); ++s) {
    for (const ModelReport& model : studies[s].models) {
      for (const std::string& arm : model.results.arms) {
        ArmRow row = RowOf(model, arm, common.value_or(model.results.budgets.back()));
        row.study = s;
        row.numerics = NumericsOf(studies[s], arm).substr(0, kShownDigits);
        row.mixed = std::any_of(conflicts.begin(), conflicts.end(), [&](const auto& c) {
          return (c.first == s && c.first_arm == arm) || (c.second == s && c.second_arm == arm);
        });
        rows.push_back(std::move(row));
      }
    }
  }
  return rows;
}

std::string Marked(const char* style, const std::string& text) {
  return "<span class=\"" + std::string(style) + "\">" + EscapedMarkup(text) + "</span>";
}

std::string RatioCell(const ArmRow& row) {
  std::string cell;
  for (const auto& [reference, ratio] : row.ratios) {
    if (!cell.empty()) cell += "<br>";
    const std::string match = EscapedMarkup("to match " + reference);
    if (!ratio->identified) {
      const std::string& reason = ratio->reason;
      cell += match + ": " + Marked("open", "not identified") + " " +
              EscapedMarkup(reason.substr(0, reason.find(':')));
      continue;
    }
    cell +=
        EscapedMarkup(RatioText(*ratio)) + (ratio->form == Form::kShrink ? " r' " : " ") + match;
    if (!ratio->disagreement.empty()) cell += ", " + Marked("open", "not identified");
  }
  return cell.empty() ? "-" : cell;
}

std::string TableHtml(const std::vector<StudyReport>& studies,
                      const std::vector<std::string>& labels, const std::vector<ArmRow>& rows) {
  HtmlTable table;
  const std::string caption =
      "One row a study and arm. N: parameters of the blocks. Gap (nats per token) and token ratio: "
      "means over seeds with t interval, at D tokens" +
      std::string(CommonBudget(studies)
                      ? ", the largest budget that all studies have."
                      : ", each study's largest budget, as the studies have none in common.") +
      " r': shrink form. A ratio "
      "beside the words not identified is one on which the estimators disagree.";
  table.head = {"study", "arm",         "N",       "seeds",    "D",
                "gap",   "token ratio", "budgets", "numerics", "version, commit"};
  table.text_columns = 10;
  for (const ArmRow& row : rows) {
    const StudyReport& study = studies[row.study];
    const bool first = &row == rows.data() || (&row - 1)->study != row.study;
    std::string name;
    if (first) {
      name = "<a href=\"#study-" + std::to_string(row.study + 1) + "\">" +
             EscapedMarkup(labels[row.study]) + "</a>";
      if (study.results.exploratory) name += "<br>" + Marked("failed", "exploratory");
    }
    std::string numerics = row.numerics.empty()
                               ? Marked("muted", "not in the file")
                               : "<code>" + EscapedMarkup(row.numerics) + "</code>";
    if (row.mixed) numerics += " " + Marked("failed", "mixed");
    const std::string commit = CommitOf(study);
    table.rows.push_back({name, EscapedMarkup(row.arm), row.size, row.seeds, row.at,
                          EscapedMarkup(row.gap), RatioCell(row), row.budgets, numerics,
                          "<code>" + EscapedMarkup(study.results.version) +
                              (commit.empty() ? "" : ", " + EscapedMarkup(commit)) + "</code>"});
  }
  return "<p class=\"note\">" + caption + "</p>\n" + table.Html();
}

std::string ConflictText(const std::vector<std::string>& names, const NumericsConflict& c) {
  return "arm \"" + c.first_arm + "\" of " + names[c.first] + " (numerics " +
         c.first_numerics.substr(0, kShownDigits) + ") and arm \"" + c.second_arm + "\" of " +
         names[c.second] + " (" + c.second_numerics.substr(0, kShownDigits) + ")";
}

std::string NotesHtml(const std::vector<StudyReport>& studies,
                      const std::vector<std::string>& labels,
                      const std::vector<NumericsConflict>& conflicts) {
  std::string html;
  for (const NumericsConflict& c : conflicts) {
    html +=
        "<p class=\"warning\"><b>Mixed numerics.</b> The same recipe on the same kind of "
        "device, trained by builds or on chips whose numbers differ: " +
        EscapedMarkup(ConflictText(labels, c)) + ".</p>\n";
  }
  std::string without;
  for (std::size_t s = 0; s < studies.size(); ++s) {
    const std::vector<std::string>& arms = studies[s].results.arms;
    const bool has = std::all_of(arms.begin(), arms.end(), [&](const std::string& arm) {
      return !NumericsOf(studies[s], arm).empty();
    });
    if (!has) without += (without.empty() ? "" : ", ") + labels[s];
  }
  if (!without.empty()) {
    html += "<p class=\"note\">Files of older versions, without fingerprints of their numerics: " +
            EscapedMarkup(without) +
            ". Whether their numerics are those of the others is not "
            "known.</p>\n";
  }
  return html;
}

std::string ComparisonText(const std::vector<std::string>& labels,
                           const std::vector<ArmRow>& rows) {
  TextRows text = {{"study", "arm", "N", "seeds", "D", "gap", "token ratio"}};
  for (const ArmRow& row : rows) {
    std::string ratio = "-";
    if (!row.ratios.empty()) {  // the contrast where the arm has one, else to the reference
      const TokenRatio& r = *row.ratios.front().second;
      ratio = (r.identified ? RatioText(r) : "not identified") + " to " + row.ratios.front().first;
      if (r.identified && !r.disagreement.empty()) ratio += " ?";
    }
    text.push_back({labels[row.study], row.arm + (row.mixed ? " (mixed)" : ""), row.size, row.seeds,
                    row.at, row.gap, ratio});
  }
  return AlignedText(text) +
         "  gaps to each study's reference, nats per token; []: t intervals; ?: estimators "
         "disagree\n";
}

}  // namespace

std::vector<NumericsConflict> NumericsConflicts(const std::vector<StudyReport>& studies) {
  const IeeeArithmetic ieee;
  struct Arm {
    std::size_t study;
    std::string name, numerics;
    Json from;
  };
  std::vector<Arm> arms;
  for (std::size_t s = 0; s < studies.size(); ++s) {
    for (const std::string& name : studies[s].results.arms) {
      const std::string numerics = NumericsOf(studies[s], name);
      if (!numerics.empty()) arms.push_back({s, name, numerics, MeasuredFrom(studies[s], name)});
    }
  }
  std::vector<NumericsConflict> conflicts;
  for (std::size_t i = 0; i < arms.size(); ++i) {
    for (std::size_t j = i + 1; j < arms.size(); ++j) {
      const Arm &a = arms[i], &b = arms[j];
      if (a.study == b.study || a.numerics == b.numerics || a.from != b.from) continue;
      conflicts.push_back({a.study, b.study, a.name, b.name, a.numerics, b.numerics});
    }
  }
  return conflicts;
}

std::vector<std::string> LabelsOf(const std::vector<StudyReport>& studies) {
  std::vector<std::string> labels;
  for (const StudyReport& study : studies) {
    const auto same = std::count_if(studies.begin(), studies.end(), [&](const StudyReport& other) {
      return other.results.name == study.results.name;
    });
    labels.push_back(study.results.name);
    if (same > 1) {
      const std::filesystem::path folder = study.file.parent_path().filename();
      labels.back() += " (" + (folder.empty() ? study.file.stem() : folder).string() + ")";
    }
  }
  // Folders of one name do not tell studies apart either; their places on the page do.
  const std::vector<std::string> before = labels;
  for (std::size_t s = 0; s < labels.size(); ++s) {
    if (std::count(before.begin(), before.end(), before[s]) > 1) {
      labels[s] += " " + std::to_string(s + 1);
    }
  }
  return labels;
}

std::string ComparisonHtml(const std::vector<StudyReport>& studies,
                           const std::vector<NumericsConflict>& conflicts,
                           const std::vector<Overlay>& overlays) {
  const IeeeArithmetic ieee;
  const std::vector<std::string> labels = LabelsOf(studies);
  const std::string title = std::to_string(studies.size()) + " studies side by side";
  std::string body =
      "<h1>" + title + "</h1>\n<p class=\"lead\">" + EscapedMarkup(Joined(labels, ", ")) + "</p>\n";
  body += NotesHtml(studies, labels, conflicts) +
          TableHtml(studies, labels, RowsOf(studies, conflicts));
  const std::vector<Figure> figures = DrawComparison(studies, labels);
  if (!figures.empty()) body += "<h2>All studies</h2>\n" + std::string(FigureHint());
  for (const Figure& figure : figures) body += FigureHtml(figure, "studies");
  for (std::size_t s = 0; s < studies.size(); ++s) {
    const Results& results = studies[s].results;
    body += "<h1 class=\"study\" id=\"study-" + std::to_string(s + 1) + "\">" +
            EscapedMarkup(labels[s] + ": " + results.title) + "</h1>\n";
    if (!results.description.empty()) {
      body += "<p class=\"lead\">" + EscapedMarkup(results.description) + "</p>\n";
    }
    body += FindingsHtml(studies[s].models, overlays) + "<h2>Setup</h2>\n";
    for (const ModelReport& model : studies[s].models) body += SetupTables(model.results);
  }
  return HtmlPage(title, body + MethodHtml());
}

ReportFiles WriteComparison(const std::vector<std::filesystem::path>& files,
                            const ComparisonOptions& options) {
  const IeeeArithmetic ieee;
  std::vector<StudyReport> studies;
  std::vector<std::string> names;
  ReportFiles written{options.out_dir / "report.html", "", options.out_dir / "figures", "", {}};
  for (const std::filesystem::path& file : files) {
    studies.push_back(LoadStudyReport(file));
    const StudyReport& study = studies.back();
    names.push_back(study.file.string());
    for (std::size_t s = 0; s + 1 < studies.size(); ++s) {
      if (std::filesystem::equivalent(studies[s].file, study.file)) {
        throw Error(study.file.string(), "is named twice; name each study once");
      }
    }
    for (const std::string& note : NotesOn(study)) written.notes.push_back(note);
  }
  CheckOverlays(options.overlays, studies);
  try {
    const std::vector<NumericsConflict> conflicts = NumericsConflicts(studies);
    if (!conflicts.empty() && !options.allow_mixed) {
      throw Error(names[conflicts[0].second],
                  "the same recipe has other numerics: " + ConflictText(names, conflicts[0]) +
                      ". Compare results of one build and chip, or give --allow-mixed, which "
                      "marks them");
    }
    const std::vector<std::string> labels = LabelsOf(studies);
    written.summary = ComparisonText(labels, RowsOf(studies, conflicts));
    const std::string html = ComparisonHtml(studies, conflicts, options.overlays);
    for (const Figure& figure : DrawComparison(studies, labels)) {
      WriteFileAtomically(written.figures / figure.file, figure.standalone);
    }
    WriteFileAtomically(written.html, html);
  } catch (const Json::exception& e) {
    throw Error(names.back() + "#/study",
                "this study, or one named before it, is not as fp4lab writes it: " + ProblemOf(e));
  }
  return written;
}

}  // namespace fp4lab::study
