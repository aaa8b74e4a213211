#include "fp4lab/study/run/cluster/collect.h"

#include <algorithm>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/io/file.h"
#include "fp4lab/study/run/record/run_folder.h"
#include "fp4lab/study/run/study_start.h"
#include "fp4lab/train/checkpoint.h"

namespace fp4lab::study {
namespace {

namespace fs = std::filesystem;

// The folders out_dir/runs/*, by name.
std::vector<fs::path> RunFoldersOf(const fs::path& out_dir) {
  std::vector<fs::path> folders;
  std::error_code status;
  for (const auto& entry : fs::directory_iterator(out_dir / "runs", status)) {
    if (entry.is_directory()) folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

struct Result {
  Json inputs;
  RunRecord record;
};

// The result in a run's folder, checked by its hash; nullopt: there is none.
std::optional<Result> ResultIn(const fs::path& folder) {
  const RunFolder run(folder);
  if (!Exists(run.Result())) return std::nullopt;
  Json json = ReadJsonFile(run.Result());
  if (!json.is_object() || !json.contains("inputs")) {
    throw Error(run.Result().string(), "is damaged, or was changed after fp4lab wrote it");
  }
  std::optional<RunRecord> record = run.ReadResult(json["inputs"]);
  if (!record) return std::nullopt;
  return Result{std::move(json["inputs"]), std::move(*record)};
}

// The annealed losses, by budget.
Json Losses(RunRecord record) {
  std::sort(
      record.points.begin(), record.points.end(),
      [](const BranchPoint& a, const BranchPoint& b) { return a.branch.tokens < b.branch.tokens; });
  RunRecord points;
  points.points = std::move(record.points);
  return ToJson(points).at("points");
}

void CopyFile(const fs::path& from, const fs::path& to) { WriteFileAtomically(to, ReadFile(from)); }

// Copies what out_dir lacks of one run. Returns whether it was a result.
bool JoinRun(const fs::path& from, const fs::path& to) {
  const RunFolder there(from), here(to);
  const std::optional<Result> theirs = ResultIn(from);
  std::optional<Result> ours;
  try {
    ours = ResultIn(to);
  } catch (const Error&) {  // damaged: theirs stands in for it
  }
  if (!theirs) {
    if (!ours && !Exists(here.Checkpoint()) && Exists(there.Checkpoint())) {
      CopyFile(there.Checkpoint(), here.Checkpoint());
    }
    return false;
  }
  if (ours) {
    // A study with more budgets may have left more points in one of the two.
    const bool same_size = ours->record.points.size() == theirs->record.points.size();
    const std::string difference =
        same_size ? FirstDifference(Losses(ours->record), Losses(theirs->record)) : "";
    if (!difference.empty()) {
      throw Error(there.Result().string(), "has other numbers than the same run in " +
                                               here.Result().string() + ": " + difference +
                                               "; remove the folder that is not to be kept");
    }
    if (ours->record.points.size() >= theirs->record.points.size()) return false;
  }
  CopyFile(there.Result(), here.Result());
  return true;
}

// The inputs of a run that do not depend on the machine, and the fingerprint by itself.
Json WithoutNumerics(Json inputs) {
  inputs.erase("numerics");
  return inputs;
}

}  // namespace

int JoinRuns(const fs::path& from, const fs::path& out_dir) {
  const IeeeArithmetic ieee;
  if (!Exists(from / "study.json")) {
    throw Error(from.string(), "has no study.json, which `fp4lab study run` writes at its start");
  }
  std::error_code status;
  if (fs::equivalent(from, out_dir, status)) return 0;
  if (!Exists(out_dir / "study.json")) {
    CopyFile(from / "study.json", out_dir / "study.json");
  } else if (const std::string difference = FirstDifference(ReadJsonFile(out_dir / "study.json"),
                                                            ReadJsonFile(from / "study.json"));
             !difference.empty()) {
    throw Error((from / "study.json").string(),
                "is another study than that of " + out_dir.string() + ": " + difference);
  }
  if (Exists(from / "registered.json") && !Exists(out_dir / "registered.json")) {
    CopyFile(from / "registered.json", out_dir / "registered.json");
  }
  int copied = 0;
  for (const fs::path& run : RunFoldersOf(from)) {
    copied += JoinRun(run, out_dir / "runs" / run.filename()) ? 1 : 0;
  }
  return copied;
}

std::string MissingText(const std::vector<std::string>& missing, std::size_t runs) {
  constexpr std::size_t kMostNames = 10;
  std::string text = std::to_string(missing.size()) + " of " + std::to_string(runs) +
                     (missing.size() == 1 ? " runs is missing: " : " runs are missing: ");
  for (std::size_t i = 0; i < std::min(missing.size(), kMostNames); ++i) {
    text += (i > 0 ? "; " : "") + missing[i];
  }
  if (missing.size() > kMostNames) {
    text += "; and " + std::to_string(missing.size() - kMostNames) + " more";
  }
  return text;
}

Collected Collect(const fs::path& out_dir) {
  const IeeeArithmetic ieee;
  if (!Exists(out_dir / "study.json")) {
    throw Error(out_dir.string(),
                "has no study.json, which `fp4lab study run` writes at its start");
  }
  Collected all{.study = ReadStudy(out_dir / "study.json"),
                .corpus = {},
                .outcome = {},
                .missing = {},
                .notes = {},
                .runs = 0};
  all.corpus = LoadCorpusOf(all.study);
  // By the inputs without the fingerprint: fingerprint, record.
  std::map<std::string, std::map<std::string, RunRecord>> found;
  for (const fs::path& folder : RunFoldersOf(out_dir)) {
    try {
      std::optional<Result> result = ResultIn(folder);
      if (!result) continue;
      const auto numerics = result->inputs.value("numerics", std::string());
      found[WithoutNumerics(std::move(result->inputs)).dump()][numerics] =
          std::move(result->record);
    } catch (const Error& e) {
      all.notes.push_back(std::string(e.what()) + "; it counts as missing");
    }
  }
  const Study whole = all.study;
  std::vector<std::vector<const RunRecord*>> records;  // [arm][seed]; nullptr: missing
  for (const Arm& arm : whole.arms) {
    const RunPlan plan = PlanOf(whole, arm);
    std::map<std::string, std::vector<const RunRecord*>> by_numerics;
    for (std::size_t s = 0; s < whole.seeds.size(); ++s) {
      const Json inputs =
          WithoutNumerics(RunInputs(ConfigOf(whole, arm, whole.seeds[s]), all.corpus, ""));
      const auto run = found.find(inputs.dump());
      if (run == found.end()) continue;
      for (const auto& [numerics, record] : run->second) {
        if (!record.Completes(plan)) continue;
        std::vector<const RunRecord*>& row = by_numerics[numerics];
        row.resize(whole.seeds.size());
        row[s] = &record;
      }
    }
    const auto complete = [](const auto& entry) {
      return entry.second.size() - std::count(entry.second.begin(), entry.second.end(), nullptr);
    };
    const auto most =
        std::max_element(by_numerics.begin(), by_numerics.end(),
                         [&](const auto& a, const auto& b) { return complete(a) < complete(b); });
    const bool any = most != by_numerics.end();
    if (by_numerics.size() > 1) {
      all.notes.push_back(arm.name + ": has runs of " + std::to_string(by_numerics.size()) +
                          " fingerprints, of builds or devices whose numbers differ; those of " +
                          most->first.substr(0, 16) + "... are taken");
    }
    all.outcome.numerics.push_back(any ? most->first : "");
    records.push_back(any ? most->second
                          : std::vector<const RunRecord*>(whole.seeds.size(), nullptr));
  }
  all.runs = whole.arms.size() * whole.seeds.size();
  std::vector<std::size_t> seeds;  // of which every arm is complete
  for (std::size_t s = 0; s < whole.seeds.size(); ++s) {
    bool is_complete = true;
    for (std::size_t a = 0; a < whole.arms.size(); ++a) {
      if (records[a][s] != nullptr) continue;
      is_complete = false;
      all.missing.push_back(whole.arms[a].name + ", seed " + std::to_string(whole.seeds[s]));
    }
    if (is_complete) seeds.push_back(s);
  }
  if (seeds.empty()) {
    throw Error(out_dir.string(), MissingText(all.missing, all.runs) +
                                      "; no seed is complete in every arm, so nothing is compared "
                                      "yet; train them with `fp4lab study run`");
  }
  all.study.seeds.clear();
  for (const std::size_t s : seeds) all.study.seeds.push_back(whole.seeds[s]);
  for (std::size_t a = 0; a < whole.arms.size(); ++a) {
    for (const std::size_t s : seeds) all.outcome.records.push_back(*records[a][s]);
  }
  all.outcome.cached = static_cast<int>(all.outcome.records.size());
  all.outcome.missing = all.missing;
  all.outcome.exploratory = DiffersFromRegistered(whole, out_dir);
  all.outcome.registered = RegisteredAt(out_dir);
  return all;
}

}  // namespace fp4lab::study
