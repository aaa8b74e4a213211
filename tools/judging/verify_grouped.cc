// fp4lab verify grouped-gemm: compares a device's grouped product (experts) with an accumulation
// model or its error bound, group by group.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/exchange/matrix_file.h"
#include "fp4lab/io/json.h"
#include "fp4lab/judge/products/grouped/grouped_file.h"
#include "fp4lab/judge/products/grouped/grouped_gemm.h"
#include "fp4lab/judge/products/product_folder.h"
#include "tools/help/help_group.h"
#include "tools/judging/directed_cases.h"
#include "tools/judging/verdict_text.h"
#include "tools/options/commands.h"
#include "tools/options/comparing.h"
#include "tools/options/gemm_options.h"
#include "tools/options/print.h"

namespace fp4lab::tools {
namespace {

struct VerifyGrouped {
  GroupedFiles files;
  std::string d, under, output = "f32", cases;
  bool json = false, allow_declined = false;
};

Json GroupJson(const GroupedInputs& in, const GroupedJudgement::Group& g) {
  const GemmJudgement& j = g.judgement;
  Json json = {{"group", g.group},
               {"first_row", in.Begin(g.group)},
               {"rows", in.Size(g.group)},
               {"verdict", Name(j.verdict)},
               {"different", j.different},
               {"outside", j.outside},
               {"worst", ElementJson(j.worst)}};
  if (j.outside > 0) json["outside_in"] = RectangleJson(j.outside_in);
  return json;
}

void PrintGroup(const GroupedInputs& in, const GroupedJudgement::Group& g) {
  const GemmJudgement& j = g.judgement;
  const std::size_t rows = in.Size(g.group), cols = in.b[0].rows;
  Print("group %zu, rows %zu..%zu: %s", g.group, in.Begin(g.group), in.Begin(g.group) + rows - 1,
        std::string(Name(j.verdict)).c_str());
  Print(", %zu of %zu elements differ from the model, %zu outside of the %s bound\n", j.different,
        rows * cols, j.outside, std::string(j.bound).c_str());
  if (j.outside == 0) return;
  PrintText(OutsideText(j.outside_in, j.outside, rows, cols));
  const GemmElement& e = j.worst;
  Print("  first outside (%zu, %zu) of the group: got %s, exact %s, error %.4g, bound %.4g\n",
        e.row, e.col, Hex(e.got).c_str(), Hex(e.exact).c_str(), e.error, e.bound);
}

const Accumulation& AccumulationFor(const std::string& name, const GroupedInputs& in,
                                    const std::vector<AccumulationMatch>& matches) {
  if (name.empty()) {
    const auto equal = std::find_if(matches.begin(), matches.end(),
                                    [](const AccumulationMatch& m) { return m.different == 0; });
    return equal != matches.end() ? *equal->accumulation : *FindAccumulation("exact");
  }
  const Accumulation* under = FindAccumulation(name);
  if (under == nullptr) {
    throw Error("--under " + name,
                "is not an accumulation; " + DidYouMean(name, NamesOf(Accumulations()),
                                                        "`fp4lab gemm --models` lists them"));
  }
  for (const MmaOperand& b : in.b) {
    const std::string reason = WhyNot(*under, in.a, b);
    if (!reason.empty()) throw Error("--under " + name, reason);
  }
  return *under;
}

bool Run(VerifyGrouped o) {
  if (!o.cases.empty()) {
    if (!o.files.a.empty()) {
      throw Error("--cases " + o.cases, "holds operands and products: give no other file");
    }
    return JudgeDirected(GroupedBench(MakeGroupedCases()), o.cases, "grouped-gemm",
                         o.allow_declined, o.json);
  }
  if (o.files.a.empty() || o.files.b.empty() || o.d.empty()) {
    throw Error("verify grouped-gemm",
                "needs three files: A (rows, K), B (G, N, K) and the product D (rows, N)");
  }
  o.files.output = GemmOutputNamed(o.output);
  const GroupedInputs in = ReadGrouped(o.files);
  const Matrix<float> d = ReadMatrix(o.d).values;
  if (d.rows != in.a.rows || d.cols != in.b[0].rows) {
    throw Error(o.d, "is " + std::to_string(d.rows) + "x" + std::to_string(d.cols) +
                         "; the product is " + std::to_string(in.a.rows) + "x" +
                         std::to_string(in.b[0].rows));
  }
  if (d.values.empty()) throw Error(o.d, "the product has no elements");
  std::vector<AccumulationMatch> matches;
  if (o.under.empty()) matches = IdentifyGrouped(in, d.View());
  const Accumulation& under = AccumulationFor(o.under, in, matches);
  const GroupedJudgement judged = JudgeGrouped(in, d.View(), under);
  const bool outside = judged.verdict == GemmVerdict::kOutside;
  std::vector<GemmCause> causes;
  if (outside) causes = FindGroupedCauses(in, d.View(), under);
  if (o.json) {
    Json groups = Json::array();
    for (const GroupedJudgement::Group& g : judged.groups) groups.push_back(GroupJson(in, g));
    Json json = {{"under", under.name},
                 {"verdict", Name(judged.verdict)},
                 {"groups", std::move(groups)},
                 {"empty_groups", in.b.size() - judged.groups.size()},
                 {"padding_not_zero", judged.padding}};
    if (judged.padding > 0) json["padding_row"] = judged.padding_row;
    if (outside) json["causes"] = CausesJson(causes);
    for (const AccumulationMatch& m : matches) {
      json["accumulations"][std::string(m.accumulation->name)] = m.different;
    }
    PrintJson(json, 2);
    return !outside;
  }
  Print("%s: %s, %zu groups with rows, %zu without\n", std::string(under.name).c_str(),
        std::string(Name(judged.verdict)).c_str(), judged.groups.size(),
        in.b.size() - judged.groups.size());
  for (const GroupedJudgement::Group& g : judged.groups) {
    if (g.judgement.verdict != GemmVerdict::kEqual) PrintGroup(in, g);
  }
  if (judged.padding > 0) {
    Print("padding: %zu elements are not zero, the first in row %zu\n", judged.padding,
          judged.padding_row);
  }
  PrintCauses(causes);
  return !outside;
}

}  // namespace

void AddVerifyGrouped(CLI::App& app, int* exit_code) {
  const auto o = std::make_shared<VerifyGrouped>();
  CLI::App* command = app.get_subcommand("verify")->add_subcommand(
      "grouped-gemm",
      "A device's grouped product: exit code 0 equal or inside the bound, 1 outside, 2 error");
  command
      ->add_option("A", o->files.a,
                   "(rows, K), the rows of all groups: a quantized matrix or numbers, FILE or "
                   "FILE#NAME")
      ->type_name("FILE");
  command
      ->add_option("B", o->files.b,
                   "(G, N, K), or a place with {} for the number of a group: FILE#experts.{}.w")
      ->type_name("FILE");
  command->add_option("D", o->d, "(rows, N): the product that a device returned")
      ->type_name("FILE");
  command
      ->add_option("--ends", o->files.ends,
                   "The row behind each group's rows (offsets of torch._grouped_mm): 16,16,48, or "
                   "an array's place")
      ->type_name("LIST");
  command
      ->add_option("--sizes", o->files.sizes,
                   "The rows of each group that hold tokens; the others are padding, 0 in D")
      ->type_name("LIST");
  command
      ->add_option("--pad", o->files.padded_to,
                   "With --sizes alone: each group's rows are padded to a multiple of this")
      ->capture_default_str();
  command->add_option("--alphas", o->files.alphas, "A factor for each group, or one for all [1]")
      ->type_name("LIST");
  command->add_option("--operand", o->files.operand, "Round plain numbers to this format first")
      ->type_name("FORMAT");
  command
      ->add_option("--under", o->under,
                   "How the sum is formed; `fp4lab gemm --models` lists the names")
      ->type_name("NAME");
  command->add_option("--output", o->output, "Type of the product: f32, bf16, f16")
      ->capture_default_str();
  command
      ->add_option("--cases", o->cases, "Judge the answers in this folder of `cases grouped-gemm`")
      ->type_name("FOLDER");
  command->add_flag("--allow-declined", o->allow_declined, "Accept cases without an answer");
  command->add_flag("--json", o->json, "Print JSON");
  PutInGroup(command, "The groups", {"--ends", "--sizes", "--pad", "--alphas"});
  PutInGroup(command, kProductGroup, {"--operand", "--under", "--output"});
  PutInGroup(command, kCasesGroup, {"--cases", "--allow-declined"});
  command->footer(
      "Every group is judged as `verify gemm` judges a product. A wrong product has its groups,\n"
      "the rectangle in each, and the wrong kernels of "
      "lib/fp4lab/judge/products/grouped/grouped_gemm.h\n"
      "that give it.");
  command->callback([o, exit_code] { Comparing(exit_code, [&] { return Run(*o); }); });
}

}  // namespace fp4lab::tools
