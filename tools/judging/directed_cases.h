// Directed cases of products and attention: the commands `cases KIND`, and `verify KIND --cases`.
// A bench is one of ProductBench, GroupedBench and AttentionBench (products/bench_coverage.h); its
// files are written and read by overloads of WriteDirectedCases, WriteDirectedAnswer and
// ReadDirectedAnswer.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/matrix.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/io/json.h"
#include "fp4lab/judge/products/bench_coverage.h"
#include "tools/help/help_group.h"
#include "tools/options/print.h"

namespace fp4lab::tools {

struct DirectedOptions {
  std::string out_dir, answer;
  std::vector<std::string> deviations;
  bool mutation_report = false, json = false;
};

// Adds --out-dir, --answer, --deviation, --mutation-report and --json.
inline void AddDirectedOptions(CLI::App* command, DirectedOptions* o) {
  const HelpGroup group(command, kCasesGroup);
  CLI::Option* out = command->add_option("--out-dir", o->out_dir, "Write NAME.safetensors files");
  out->type_name("FOLDER");
  CLI::Option* answer = command->add_option(
      "--answer", o->answer, "Write the answers of a kernel of fp4lab into this folder");
  answer->type_name("FOLDER")->excludes(out);
  command
      ->add_option("--deviation", o->deviations,
                   "Answer as this wrong kernel (a name from the mutation report)")
      ->type_name("NAME");
  command
      ->add_flag("--mutation-report", o->mutation_report,
                 "Run wrong kernels on the cases: which are caught, and named by their answers")
      ->excludes(out)
      ->excludes(answer);
  command->add_flag("--json", o->json, "Print the list or the report as JSON");
}

template <class Bench>
std::size_t FindWrong(const Bench& bench, const std::string& name, const std::string& kind) {
  const auto& wrong = bench.wrong();
  const auto at =
      std::find_if(wrong.begin(), wrong.end(), [&](const auto& w) { return w.name == name; });
  if (at == wrong.end()) {
    throw Error(
        "--deviation " + name,
        "is not known; " + DidYouMean(name, NamesOf(wrong),
                                      "`fp4lab cases " + kind + " --mutation-report` lists them"));
  }
  return static_cast<std::size_t>(at - wrong.begin());
}

// Answers the cases in a folder with a kernel of this library, right or wrong; writes the cases; or
// prints the report. `list` prints the list of cases.
template <class Bench, class MakeCases, class List>
void RunDirectedCases(const DirectedOptions& o, const std::string& kind, MakeCases make,
                      List list) {
  if (!o.deviations.empty() && o.answer.empty()) {
    throw Error("--deviation", "needs --answer FOLDER, in which this kernel answers the cases");
  }
  if (o.mutation_report) {
    const Bench bench(make());
    const BenchCoverage coverage = MeasureBench(bench);
    o.json ? PrintJson(CoverageJson(bench, coverage), 1) : PrintText(CoverageText(bench, coverage));
  } else if (!o.answer.empty()) {
    const Bench bench(make());
    std::vector<std::size_t> wrong;
    for (const std::string& name : o.deviations) wrong.push_back(FindWrong(bench, name, kind));
    const std::vector<Matrix<float>> answers = bench.AnswersOf(wrong);
    for (std::size_t i = 0; i < answers.size(); ++i) {
      WriteDirectedAnswer(bench.cases()[i].name, answers[i], o.answer);
    }
    Print("%zu answers in %s\n", answers.size(), Printable(o.answer).c_str());
  } else if (!o.out_dir.empty()) {
    const auto cases = make();
    WriteDirectedCases(cases, o.out_dir);
    Print("%zu cases in %s\n", cases.size(), Printable(o.out_dir).c_str());
  } else {
    list(make(), o.json);
  }
}

// The verdict on a kernel's answers to the directed cases of `bench` in a folder. Returns whether
// they pass.
template <class Bench>
bool JudgeDirected(const Bench& bench, const std::string& folder, const std::string& kind,
                   bool allow_declined, bool as_json) {
  std::vector<std::optional<Matrix<float>>> answers;
  std::size_t right = 0, declined = 0;
  Json list = Json::array();
  std::string text;
  for (std::size_t i = 0; i < bench.cases().size(); ++i) {
    const auto& c = bench.cases()[i];
    answers.push_back(ReadDirectedAnswer(c.name, bench.Right(i), folder));
    const bool has = answers.back().has_value();
    const bool is_right = has && bench.IsRight(i, *answers.back());
    right += is_right ? 1 : 0;
    declined += has ? 0 : 1;
    list.push_back({{"name", c.name}, {"declined", !has}, {"right", is_right}});
    if (is_right || (!has && allow_declined)) continue;
    text += "  " + std::string(c.name) + (has ? ": wrong; it tests " : ": no answer; it tests ") +
            std::string(c.what) + "\n";
  }
  if (declined == answers.size()) {
    throw Error(folder,
                "has no answer: a kernel writes NAME.d.npy beside NAME.safetensors, which "
                "`fp4lab cases " +
                    kind + " --out-dir` writes");
  }
  const bool passes = right + declined == answers.size() && (declined == 0 || allow_declined);
  const std::vector<std::size_t> names = bench.Name(answers);
  if (as_json) {
    Json causes = Json::array();
    for (const std::size_t w : names) {
      causes.push_back({{"name", bench.wrong()[w].name}, {"what", bench.wrong()[w].what}});
    }
    PrintJson({{"cases", std::move(list)},
               {"right", right},
               {"declined", declined},
               {"passes", passes},
               {"causes", std::move(causes)}},
              2);
    return passes;
  }
  Print("%zu of %zu cases right", right, answers.size());
  PrintText(declined > 0 ? "; " + std::to_string(declined) + " declined\n" : "\n");
  PrintText(text);
  for (const std::size_t w : names) {
    PrintText(
        std::string(names.size() == 1 ? "Cause: The kernel " : "Possible cause: The kernel ") +
        std::string(bench.wrong()[w].what) + ". (" + std::string(bench.wrong()[w].name) + ")\n");
  }
  if (right + declined < answers.size() && names.empty()) {
    Print("None of %zu wrong kernels gives these answers.\n", bench.wrong().size());
  }
  return passes;
}

}  // namespace fp4lab::tools
