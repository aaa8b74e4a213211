// `fp4lab study run --quick`: rehearsals of studies.
#include "fp4lab/study/run/rehearsal.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "fp4lab/base/error.h"
#include "tests/study/support/tiny_study.h"
#include "tests/support/catch.h"

namespace fp4lab::study {
namespace {

std::vector<std::filesystem::path> StudyFiles() {
  std::vector<std::filesystem::path> files;
  const auto studies = std::filesystem::path(std::getenv("FP4LAB_SOURCE_DIR")) / "studies";
  for (const auto& folder : std::filesystem::directory_iterator(studies)) {
    const std::string name = folder.path().filename().string();
    if (!folder.is_directory() || name == "results" || name == "several") continue;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() == ".json") files.push_back(entry.path());
    }
  }
  return files;
}

TEST_CASE("Every study of the repository has a rehearsal with its arms, rates and criteria",
          "[study]") {
  const std::vector<std::filesystem::path> files = StudyFiles();
  CHECK(files.size() > 30);
  for (const std::filesystem::path& file : files) {
    CAPTURE(file);
    const Study study = ReadStudy(file), quick = RehearsalOf(study);
    CHECK(quick.name == study.name + "-quick");
    REQUIRE(quick.arms.size() == study.arms.size());
    for (std::size_t a = 0; a < study.arms.size(); ++a) {
      CHECK(quick.arms[a].name == study.arms[a].name);
      CHECK(quick.arms[a].recipe == study.arms[a].recipe);
      CHECK(quick.arms[a].nudge_ulps == study.arms[a].nudge_ulps);
      CHECK(quick.arms[a].model.layers == study.arms[a].model.layers);
    }
    CHECK(quick.rates == study.rates);
    CHECK(quick.base.device == Device::kCpu);
    CHECK(quick.seeds ==
          std::vector(study.seeds.begin(),
                      study.seeds.begin() + std::min<std::ptrdiff_t>(2, std::ssize(study.seeds))));
    CHECK(quick.budgets.size() == study.budgets.size());
    CHECK(quick.budgets.back() <=
          TokensPerStep(quick.base) *
              std::max<std::int64_t>(kRehearsalSteps, std::ssize(quick.budgets) + 3));
    CHECK(quick.analysis.references == study.analysis.references);
    CHECK(quick.analysis.contrasts == study.analysis.contrasts);
    CHECK(quick.analysis.null_arms == study.analysis.null_arms);
    CHECK(quick.analysis.criteria.size() == study.analysis.criteria.size());
    const auto primary =
        std::find(study.budgets.begin(), study.budgets.end(), study.analysis.primary_tokens);
    CHECK(quick.analysis.primary_tokens ==
          quick.budgets[static_cast<std::size_t>(primary - study.budgets.begin())]);
  }
}

TEST_CASE("Models of several sizes stay several in a rehearsal", "[study]") {
  Json json = TinyStudyJson();
  json["arms"]["wide"] = {{"recipe", "bf16"}, {"model", {{"d_model", 256}}}};
  json["arms"]["wide-nvfp4"] = {{"recipe", "te_nvfp4"}, {"model", {{"d_model", 256}}}};
  const Study study = TinyStudy(json), quick = RehearsalOf(study);
  for (std::size_t a = 0; a < quick.arms.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      CHECK((quick.arms[a].model == quick.arms[b].model) ==
            (study.arms[a].model == study.arms[b].model));
    }
  }
  CHECK(quick.analysis.references == study.analysis.references);
}

TEST_CASE("A rehearsal takes any number of heads", "[study]") {
  struct Heads {
    int width, heads, small;
  };
  for (const auto& [width, heads, small] :
       {Heads{192, 3, 2}, {192, 4, 4}, {320, 5, 4}, {96, 3, 3}}) {
    CAPTURE(width, heads);
    Json json = TinyStudyJson();
    json["model"]["d_model"] = width;
    json["model"]["heads"] = heads;
    CHECK(RehearsalOf(TinyStudy(json)).base.model.heads == small);
  }
}

TEST_CASE("A rehearsal takes sequences of any length", "[study]") {
  for (const int sequence : {32, 48, 100, 4096}) {
    Json json = TinyStudyJson();
    json["model"]["sequence"] = sequence;
    json["evaluation"] = {{"tokens", 2 * sequence}, {"chunk_tokens", sequence}};
    json["budgets"] = {40 * sequence, 80 * sequence};
    const Study quick = RehearsalOf(TinyStudy(json));
    CHECK(quick.base.model.sequence == std::min(sequence, 64));
    CHECK(quick.budgets.back() == 48 * TokensPerStep(quick.base));
  }
}

TEST_CASE("A criterion's smallest budget and the steps to observe follow the rehearsal's budgets",
          "[study]") {
  Json json = TinyStudyJson();
  json["budgets"] = {1280, 2560, 12800};
  json["diagnostics"] = {{"every", 50}};
  json["analysis"] = {{"contrast", {"nvfp4", "bf16"}},
                      {"primary_tokens", 2560},
                      {"criteria",
                       {{{"kind", "token_ratio"},
                         {"arms", {"nvfp4", "bf16"}},
                         {"minimum_tokens", 2560},
                         {"low", 1},
                         {"high", 2}}}}};
  const Study quick = RehearsalOf(TinyStudy(json));
  CHECK(quick.budgets == std::vector<std::int64_t>{5 * 256, 10 * 256, 48 * 256});
  CHECK(quick.analysis.primary_tokens == 10 * 256);
  CHECK(quick.analysis.criteria[0].at("minimum_tokens") == 10 * 256);
  CHECK(quick.base.diagnostics.steps == std::vector<std::int64_t>{0, 3});
  CHECK(quick.base.diagnostics.every == 0);
}

}  // namespace
}  // namespace fp4lab::study
