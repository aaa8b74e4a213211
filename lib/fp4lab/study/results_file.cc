#include "fp4lab/study/results_file.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fp4lab/base/error.h"
#include "fp4lab/base/suggest.h"

namespace fp4lab::study {
namespace {

// JSON has no NaN and no infinity; they are written as null.
double Number(const Json& json) {
  return json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>();
}

std::vector<double> Numbers(const Json& json, const char* key) {
  std::vector<double> values;
  if (const auto found = json.find(key); found != json.end() && found->is_array()) {
    for (const Json& value : *found) values.push_back(Number(value));
  }
  return values;
}

AnnealedPoint ReadPoint(const Json& json) {
  return {.tokens = json.at("tokens").get<std::int64_t>(),
          .steps = json.at("steps").get<std::int64_t>(),
          .loss = Number(json.at("validation_loss")),
          .loss_high = Number(json.value("validation_loss_high", Json())),
          .chunks = Numbers(json, "chunk_losses"),
          .chunks_high = Numbers(json, "chunk_losses_high")};
}

CurvePoint ReadCurvePoint(const Json& json) {
  return {.step = json.at("step").get<std::int64_t>(),
          .tokens = json.at("tokens").get<std::int64_t>(),
          .loss = Number(json.at("loss")),
          .learning_rate = Number(json.at("learning_rate"))};
}

TensorRow ReadTensor(const Json& json) {
  return {.name = json.at("name").get<std::string>(),
          .format = json.at("format").get<std::string>(),
          .amax = Number(json.at("amax")),
          .underflow_percent = Number(json.at("underflow_percent")),
          .clip_percent = Number(json.at("clip_percent")),
          .sqnr_db = Number(json.at("sqnr_db"))};
}

RunResult ReadRun(const Json& json) {
  RunResult run;
  run.arm = json.at("arm").get<std::string>();
  run.seed = json.at("seed").get<std::uint64_t>();
  run.diverged = json.at("status").get<std::string>() != "ok";
  if (const Json at = json.value("diverged_at", Json()); at.is_object()) {
    run.diverged_step = at.at("step").get<std::int64_t>();
    run.diverged_tensor = at.at("tensor").get<std::string>();
  }
  for (const Json& point : json.at("points")) run.points.push_back(ReadPoint(point));
  for (const Json& point : json.value("trunk_points", Json::array())) {
    run.trunk_points.push_back(
        {point.at("tokens").get<std::int64_t>(), Number(point.at("validation_loss"))});
  }
  for (const Json& point : json.value("curve", Json::array())) {
    run.curve.push_back(ReadCurvePoint(point));
  }
  for (const Json& tensor : json.value("tensors", Json::array())) {
    run.tensors.push_back(ReadTensor(tensor));
  }
  run.seconds = Number(json.value("seconds", Json()));
  run.tokens_per_second = Number(json.value("tokens_per_second", Json()));
  return run;
}

Question ReadQuestion(const Json& json) {
  Question question;
  question.reference = json.at("reference").get<std::string>();
  const auto contrast = json.value("contrast", std::vector<std::string>{});
  if (contrast.size() == 2) {
    question.format = contrast[0];
    question.format_reference = contrast[1];
  }
  question.primary_tokens = json.at("primary_tokens").get<std::int64_t>();
  question.confidence = json.value("confidence", 0.95);
  question.null_arms = json.value("null_arms", std::vector<std::string>{});
  question.criteria = json.value("criteria", Json::array());
  return question;
}

Results ReadMembers(const Json& json) {
  Results results;
  results.name = json.at("name").get<std::string>();
  results.version = json.at("fp4lab_version").get<std::string>();
  results.study = json.at("study");
  results.title = results.study.value("title", results.name);
  results.description = results.study.value("description", "");
  const Json& corpus = json.at("corpus");
  results.corpus = corpus.at("name").get<std::string>();
  results.vocabulary = corpus.value("vocabulary", std::int64_t{0});
  results.train_tokens = corpus.at("train_tokens").get<std::int64_t>();
  results.validation_tokens = corpus.at("validation_tokens").get<std::int64_t>();
  results.train_sha256 = corpus.at("train_sha256").get<std::string>();
  results.validation_sha256 = corpus.at("validation_sha256").get<std::string>();
  results.parameters = json.at("model").at("parameters").get<std::int64_t>();
  results.block_parameters = json.at("model").at("block_parameters").get<std::int64_t>();
  results.arms = results.study.at("arm_order").get<std::vector<std::string>>();
  results.seeds = results.study.at("seeds").get<std::vector<std::uint64_t>>();
  results.budgets = results.study.at("budgets").get<std::vector<std::int64_t>>();
  results.question = ReadQuestion(results.study.at("analysis"));
  for (const Json& run : json.at("runs")) results.runs.push_back(ReadRun(run));
  return results;
}

void CheckNames(const Results& results, const std::string& where) {
  const auto check = [&](const std::string& name, const char* member) {
    if (std::find(results.arms.begin(), results.arms.end(), name) == results.arms.end()) {
      throw Error(where + "#/study/analysis/" + member,
                  "there is no arm \"" + name + "\"; " + DidYouMean(name, results.arms));
    }
  };
  check(results.question.reference, "reference");
  for (const std::string& name : results.question.null_arms) check(name, "null_arms");
  if (results.question.format.empty()) return;
  check(results.question.format, "contrast/0");
  check(results.question.format_reference, "contrast/1");
}

}  // namespace

const RunResult* Results::Find(std::string_view arm, std::uint64_t seed) const {
  const auto found = std::find_if(runs.begin(), runs.end(), [&](const RunResult& run) {
    return run.arm == arm && run.seed == seed;
  });
  return found == runs.end() ? nullptr : &*found;
}

Results ReadResults(const Json& json, const std::string& where) {
  constexpr std::string_view kSchema = "fp4lab.study.results/1";
  if (!json.is_object() || json.value("schema", Json()) != Json(kSchema)) {
    throw Error(where,
                "is no results file: its \"schema\" is not \"" + std::string(kSchema) + "\"");
  }
  try {
    Results results = ReadMembers(json);
    CheckNames(results, where);
    return results;
  } catch (const Json::exception& e) {
    throw Error(where, std::string("is no results file: ") + e.what());
  }
}

std::filesystem::path ResultsPath(const std::filesystem::path& file_or_folder) {
  return std::filesystem::is_directory(file_or_folder) ? file_or_folder / "results.json"
                                                       : file_or_folder;
}

Results LoadResults(const std::filesystem::path& path) {
  const std::filesystem::path file = ResultsPath(path);
  return ReadResults(ReadJsonFile(file), file.string());
}

}  // namespace fp4lab::study
