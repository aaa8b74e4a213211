// Made-up studies whose token ratios, shares, laws and noise are known in closed form.
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "fp4lab/io/file.h"
#include "fp4lab/io/json.h"
#include "fp4lab/io/temporary_folder.h"
#include "tests/support/catch.h"

namespace fp4lab::study {

namespace fs = std::filesystem;
using Catch::Approx;

// The loss of an arm of `parameters` after `tokens`, in one seed.
using LossOf =
    std::function<double(const std::string& arm, double parameters, double tokens, int seed)>;

struct Made {
  std::string name;
  double parameters = 1e6;
  std::vector<std::int64_t> budgets = {8000000, 16000000, 32000000, 64000000, 128000000};
  std::vector<int> seeds = {1, 2, 3, 4};
  std::vector<std::string> arms = {"bf16", "nvfp4", "mxfp4"};
};

// Chunks of the validation text: their mean is the loss.
inline Json Chunks(double loss) {
  Json chunks = Json::array();
  for (int c = 0; c < 16; ++c) chunks.push_back(loss + (c % 2 == 0 ? 0.01 : -0.01) * (1 + c / 2));
  return chunks;
}

inline Json ResultsOf(const Made& made, const LossOf& loss) {
  Json runs = Json::array(), arms = Json::object(), numerics = Json::object();
  for (const std::string& arm : made.arms) {
    arms[arm] = {{"recipe", arm == "mxfp4" ? "mxfp4" : arm == "bf16" ? "bf16" : "te_nvfp4"}};
    numerics[arm] = "fingerprint of " + arm;
    for (const int seed : made.seeds) {
      Json points = Json::array();
      for (const std::int64_t tokens : made.budgets) {
        const double own = loss(arm, made.parameters, static_cast<double>(tokens), seed);
        points.push_back({{"tokens", tokens},
                          {"steps", tokens / 1000},
                          {"validation_loss", own},
                          {"validation_loss_high", own - 0.001},
                          {"chunk_losses", Chunks(own)}});
      }
      runs.push_back({{"arm", arm}, {"seed", seed}, {"status", "ok"}, {"points", points}});
    }
  }
  const auto parameters = static_cast<std::int64_t>(made.parameters);
  return {{"schema", "fp4lab.study.results/1"},
          {"name", made.name},
          {"fp4lab_version", "0.1.0"},
          {"numerics", numerics},
          {"analysis", {{"token_ratios", Json::array()}}},
          {"study",
           {{"arm_order", made.arms},
            {"arms", arms},
            {"seeds", made.seeds},
            {"budgets", made.budgets},
            {"model", {{"layers", 2}, {"d_model", 64}, {"heads", 2}, {"sequence", 128}}},
            {"evaluation", {{"tokens", 131072}, {"chunk_tokens", 8192}}},
            {"batch", 256},
            {"analysis", {{"reference", made.arms[0]}, {"primary_tokens", made.budgets[0]}}}}},
          {"corpus",
           {{"name", "made up"},
            {"train_tokens", 1000},
            {"validation_tokens", 1000},
            {"train_sha256", std::string(64, '0')},
            {"validation_sha256", std::string(64, '0')}}},
          {"model", {{"parameters", parameters}, {"block_parameters", parameters}}},
          {"runs", runs}};
}

// A folder of studies, and of files that name them.
class Folder {
 public:
  Folder() { fs::create_directories(folder_ / "several"); }
  void Add(const Made& made, const LossOf& loss) { Add(made.name, ResultsOf(made, loss)); }
  void Add(const std::string& name, const Json& results) {
    fs::create_directories(Path(name));
    WriteFileAtomically(Path(name) / "results.json", results.dump());
  }
  fs::path Path(const std::string& name) const { return folder_ / name; }
  fs::path Ask(const Json& json) {
    const fs::path path = folder_ / "several" / "ask.json";
    WriteFileAtomically(path, json.dump());
    return path;
  }

 private:
  TemporaryFolder folder_;
};

// Each arm has the curve of the reference, which a power law is, after 1/k of the tokens: it needs
// k times as many. Seeds shift all arms alike.
inline constexpr double kExponent = 0.3;
inline LossOf Scaled(const std::map<std::string, double>& k) {
  return [k](const std::string& arm, double, double tokens, int seed) {
    const auto found = k.find(arm);
    const double scale = found == k.end() ? 1 : found->second;
    return 1 + 0.001 * seed + 40 * std::pow(tokens / scale, -kExponent);
  };
}

inline const std::vector<std::string> kCornerArms = {"c000", "c001", "c010", "c011",
                                                     "c100", "c101", "c110", "c111"};

inline Json SurfaceAsk(const std::vector<std::string>& studies) {
  Json list = Json::array();
  for (const std::string& name : studies) list.push_back({{"results", "../" + name}});
  return {{"studies", list}, {"reference", "bf16"}, {"formats", {"nvfp4", "mxfp4"}}};
}

}  // namespace fp4lab::study
