// fp4lab study surface | law | league | differences: one analysis of several studies.
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "fp4lab/study/numbers/number_text.h"
#include "fp4lab/study/numbers/statistics.h"
#include "fp4lab/study/report/tables/text_table.h"
#include "fp4lab/study/several/differences.h"
#include "fp4lab/study/several/law.h"
#include "fp4lab/study/several/league.h"
#include "fp4lab/study/several/surface.h"
#include "tools/options/commands.h"
#include "tools/options/number_option.h"
#include "tools/options/print.h"

namespace fp4lab::tools {
namespace {

struct SeveralOptions {
  std::string file;
  int draws = study::kBootstrapDraws;
  bool json = false;
};

// "1.36 [1.21, 1.52]" of {mean, interval}, each through `map`.
template <class Map>
std::string NumberText(const Json& mean, const Json& interval, int digits, Map map) {
  std::string text = study::Fixed(map(mean.get<double>()), digits);
  if (interval.is_null()) return text;
  return text + " " +
         study::IntervalText({map(interval[0].get<double>()), map(interval[1].get<double>())},
                             digits);
}

double Same(double x) { return x; }
double Exp(double x) { return std::exp(x); }

std::string ArmText(const Json& name) { return Printable(name.get<std::string>()); }

// A row a study, budget and form at which the ratio of the formats stands.
void PrintSurface(const Json& document) {
  const std::string better = ArmText(document["formats"][0]),
                    worse = ArmText(document["formats"][1]);
  study::TextRows rows = {
      {"study", "parameters", "bytes each", "form", "tokens of " + worse + " / " + better}};
  for (const Json& of : document["studies"]) {
    for (const Json& r : of["ratios"]) {
      rows.push_back({ArmText(of["name"]), study::TokensText(of["block_parameters"].get<double>()),
                      study::PerParameterText(r["bytes_per_parameter"].get<double>()),
                      r["form"].get<std::string>(),
                      NumberText(r["log_ratio"]["mean"], r["log_ratio"]["interval_t"], 2, Exp) +
                          (r["estimators_agree"] == true ? "" : " ?")});
    }
  }
  Print("%s?: another estimator lies outside the interval\n", study::AlignedText(rows).c_str());
  if (!document.contains("sizes") || document["sizes"]["reference_size"].empty()) return;
  rows = {{"study", "arm", "bytes each",
           "size of a " + ArmText(document["reference"]) + " model of the same loss / its own"}};
  for (const Json& r : document["sizes"]["reference_size"]) {
    const bool text = !r["interval_with_text"].is_null();
    rows.push_back({ArmText(r["studies"][1]), ArmText(r["arm"]),
                    study::PerParameterText(r["bytes_per_parameter"].get<double>()),
                    NumberText(r["size"], r[text ? "interval_with_text" : "interval"], 2, Same) +
                        (text ? "" : " *")});
  }
  Print("\n%s*: over seeds alone\n", study::AlignedText(rows).c_str());
}

// A row a format and place.
void PrintLaw(const Json& document) {
  study::TextRows rows = {{"gap", "a", "b", "bytes each", "predicted gap, nats per byte"}};
  for (const auto& [name, law] : document["arms"].items()) {
    for (const Json& p : law["predictions"]) {
      rows.push_back({Printable(name), NumberText(law["a"], law["a_interval"], 3, Same),
                      NumberText(law["b"], law["b_interval"], 3, Same),
                      study::PerParameterText(p["bytes_per_parameter"].get<double>()),
                      NumberText(p["gap"], p["interval_three_seeds"], 4, Same)});
    }
  }
  Print("gap = c N^-a (D/N)^b at N = %s\n%s",
        study::TokensText(document["predicted_parameters"].get<double>()).c_str(),
        study::AlignedText(rows).c_str());
}

// A row a difference.
void PrintDifferences(const Json& document) {
  study::TextRows rows = {{"study", "arm", "minus", "nats per byte", "share", "verdict"}};
  for (const Json& d : document["differences"]) {
    std::string share;
    if (d.contains("share") && !d["share"]["ratio"].is_null()) {
      share = NumberText(d["share"]["ratio"], d["share"]["interval"], 2, Same);
    }
    std::string base = ArmText(d["base"]), verdict;
    if (d.contains("against")) {
      base += ", less (" + ArmText(d["against"][0]) + " minus " + ArmText(d["against"][1]) + ")";
    }
    if (d.contains("tokens")) {
      base += ", at " + study::TokensText(d["tokens"].get<double>()) + " tokens";
    }
    if (d.contains("verdict")) {
      verdict = ArmText(d["verdict"]) + " (" + study::Fixed(d["margin"].get<double>(), 4) + ")";
    }
    const Json& interval =
        d["interval_with_text"].is_null() ? d["interval_t"] : d["interval_with_text"];
    rows.push_back({ArmText(d["study"]), ArmText(d["arm"]), base,
                    NumberText(d["mean"], interval, 4, Same), share, verdict});
  }
  Print("%s", study::AlignedText(rows).c_str());
}

// A row a recipe, by loss.
void PrintLeague(const Json& document) {
  const std::string reference = document["reference"], base = document["base"];
  study::TextRows rows = {{"recipe", "seeds", "minus " + Printable(reference),
                           "minus " + Printable(base), "tokens / " + Printable(reference)}};
  for (const Json& row : document["rows"]) {
    const Json &gap = row["gap"], &ratio = row["log_ratio"][reference];
    rows.push_back({ArmText(row["recipe"]), std::to_string(row["seeds"].size()),
                    NumberText(gap[reference]["mean"], gap[reference]["interval"], 4, Same),
                    NumberText(gap[base]["mean"], gap[base]["interval"], 4, Same),
                    ratio.is_null() ? "-" : NumberText(ratio["mean"], ratio["interval"], 2, Exp)});
  }
  Print("%s", study::AlignedText(rows).c_str());
}

}  // namespace

void AddStudySeveral(CLI::App& app) {
  CLI::App* study = app.get_subcommand("study");
  auto options = std::make_shared<SeveralOptions>();
  const auto add = [&](const char* name, const char* text, bool has_draws, const char* keys) {
    CLI::App* command = study->add_subcommand(name, text);
    command->add_option("file", options->file, "The file that names the studies and the arms")
        ->required();
    if (has_draws) {
      command->add_option("--draws", options->draws, "Draws of the bootstrap")
          ->transform(WholeNumber(2, 1000000))
          ->capture_default_str();
    }
    command->add_flag("--json", options->json, "Print JSON");
    command->footer(std::string("The file, whose paths begin at its own folder:\n") + keys +
                    "A study is a folder with a results.json, or {\"results\": FOLDER, "
                    "\"seeds\": [FOLDER,\n  ...], \"budgets\": [FOLDER, ...]}, which more seeds or "
                    "larger budgets join (studies/README.md).\n");
    return command;
  };
  add("surface", "The token ratio of two formats over sizes, texts and budgets", true,
      "  {\"studies\": [\"../out/small\", \"../out/large\"], \"reference\": \"bf16\",\n"
      "   \"formats\": [\"nvfp4\", \"mxfp4\"], \"sizes\": [\"small\", \"large\"]}\n")
      ->callback([=] {
        const Json document =
            study::SurfaceDocument(study::ReadSurfaceFile(options->file), options->draws);
        options->json ? PrintJson(document, 1) : PrintSurface(document);
      });
  add("law", "The gaps of two formats as a law over sizes, and its prediction", true,
      "  {\"studies\": [\"../out/small\", \"../out/large\"], \"reference\": \"bf16\",\n"
      "   \"formats\": [\"nvfp4\", \"mxfp4\"], \"predict\": 25165824, \"places\": [4, 8, 12]}\n")
      ->callback([=] {
        const Json document = study::LawDocument(study::ReadLawFile(options->file), options->draws);
        options->json ? PrintJson(document, 1) : PrintLaw(document);
      });
  add("differences", "Differences of arms, paired over seeds, and shares of them", false,
      "  {\"studies\": [\"../out/blocks\"], \"differences\": [{\"study\": \"blocks\", \"arm\": "
      "\"nvfp4\",\n   \"base\": \"nvfp4-first1\", \"of\": [\"nvfp4\", \"bf16\"]}]}\n"
      "A difference may also have \"tokens\", a budget of the study [the largest];\n"
      "\"against\", two arms whose difference is taken off; \"margin\", the nats within\n"
      "which it counts as nothing.\n")
      ->callback([=] {
        const Json document = study::DifferencesDocument(study::ReadDifferencesFile(options->file));
        options->json ? PrintJson(document, 1) : PrintDifferences(document);
      });
  add("league", "Recipes of one model by loss, with the noise of seeds pooled over them", false,
      "  {\"studies\": [\"../out/recipes\"], \"curves\": [\"../out/references\"], \"budget\": "
      "37748736,\n"
      "   \"reference\": \"bf16\", \"base\": \"te_nvfp4\", \"pairs\": [[\"te_nvfp4_no_sr\", "
      "\"te_nvfp4\", \"no SR\"]]}\n")
      ->callback([=] {
        const Json document = study::LeagueDocument(study::ReadLeagueFile(options->file));
        options->json ? PrintJson(document, 1) : PrintLeague(document);
      });
}

}  // namespace fp4lab::tools
