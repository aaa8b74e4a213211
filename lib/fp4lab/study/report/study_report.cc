#include "fp4lab/study/report/study_report.h"

#include <algorithm>
#include <utility>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/study/analysis/analyze.h"
#include "fp4lab/study/analysis/safe_rate.h"
#include "fp4lab/study/results/sweep.h"

namespace fp4lab::study {

StudyReport AnalyzeStudy(const std::filesystem::path& file, Json json, int draws) {
  const IeeeArithmetic ieee;
  StudyReport study{file, std::move(json), {}, {}};
  study.results = ReadResults(study.json, file.string());
  try {
    for (const Results& model : ByModel(study.results)) {
      for (Results& view : ViewsOf(model)) {
        Analysis analysis = Analyze(view, draws);
        if (view.view == View::kSharedRate) analysis.safe_rates = SafeRates(model);
        study.models.push_back({std::move(view), std::move(analysis)});
      }
    }
  } catch (const Json::exception& e) {
    throw MalformedStudy(study.file, e);
  }
  return study;
}

StudyReport LoadStudyReport(const std::filesystem::path& file_or_folder) {
  const IeeeArithmetic ieee;
  const std::filesystem::path file = ResultsPath(file_or_folder);
  return AnalyzeStudy(file, ReadJsonFile(file));
}

std::vector<std::string> NotesOn(const StudyReport& study) {
  const IeeeArithmetic ieee;
  if (HasHash(study.json)) return {};
  return {study.file.string() +
          ": has no \"sha256\", as older versions wrote it: edits of its numbers cannot be "
          "detected"};
}

bool HasCurves(const Results& results) {
  return std::any_of(results.runs.begin(), results.runs.end(),
                     [](const RunResult& run) { return !run.curve.empty(); });
}

Error MalformedStudy(const std::filesystem::path& file, const Json::exception& problem) {
  return Error(file.string() + "#/study", "is not as fp4lab writes it: " + ProblemOf(problem));
}

}  // namespace fp4lab::study
