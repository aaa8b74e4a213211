// fp4lab cases gemm: directed products for GEMM kernels as files, and the report of the wrong
// kernels that they catch and name.
#include "tools/judging/product_cases.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/io/json.h"
#include "fp4lab/judge/products/product_case.h"
#include "fp4lab/judge/products/product_folder.h"
#include "tools/options/print.h"

namespace fp4lab::tools {
namespace {

struct ProductCasesOptions {
  std::string out_dir, answer;
  std::vector<std::string> deviations;
  bool mutation_report = false, json = false;
};

std::string Shape(const ProductCase& c) {
  return std::to_string(c.a.rows) + "x" + std::to_string(c.b.rows) + "x" + std::to_string(c.a.cols);
}

void PrintList(const std::vector<ProductCase>& cases, bool json) {
  Json list = Json::array();
  for (const ProductCase& c : cases) {
    list.push_back({{"name", c.name},
                    {"what", c.what},
                    {"m", c.a.rows},
                    {"n", c.b.rows},
                    {"k", c.a.cols},
                    {"alpha", c.alpha},
                    {"output", Name(c.output)}});
    if (json) continue;
    Print("%-20s %11s  %-4s  %s\n", std::string(c.name).c_str(), Shape(c).c_str(),
          std::string(Name(c.output)).c_str(), std::string(c.what).c_str());
  }
  json ? PrintJson({{"cases", std::move(list)}}, 1) : Print("%zu cases, M x N x K\n", cases.size());
}

std::size_t Find(const ProductBench& bench, const std::string& name) {
  const std::vector<WrongGemm>& wrong = bench.wrong();
  const auto at =
      std::find_if(wrong.begin(), wrong.end(), [&](const WrongGemm& w) { return w.name == name; });
  if (at == wrong.end()) {
    throw Error("--deviation " + name,
                "is not known; " + DidYouMean(name, NamesOf(wrong),
                                              "`fp4lab cases gemm --mutation-report` lists them"));
  }
  return static_cast<std::size_t>(at - wrong.begin());
}

// Answers the cases in a folder with a kernel of this library, right or wrong.
void AnswerProducts(const ProductCasesOptions& o) {
  const ProductBench bench(MakeProductCases());
  std::vector<std::size_t> wrong;
  for (const std::string& name : o.deviations) wrong.push_back(Find(bench, name));
  const std::vector<Matrix<float>> answers = bench.AnswersOf(wrong);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    WriteProductAnswer(bench.cases()[i], answers[i], o.answer);
  }
  Print("%zu answers in %s\n", answers.size(), Printable(o.answer).c_str());
}

void Run(const ProductCasesOptions& o) {
  if (!o.deviations.empty() && o.answer.empty()) {
    throw Error("--deviation", "needs --answer FOLDER, in which this kernel answers the cases");
  }
  if (o.mutation_report) {
    const ProductBench bench(MakeProductCases());
    const ProductCoverage coverage = MeasureProducts(bench);
    o.json ? PrintJson(ProductCoverageJson(bench, coverage), 1)
           : PrintText(ProductCoverageText(bench, coverage));
  } else if (!o.answer.empty()) {
    AnswerProducts(o);
  } else if (!o.out_dir.empty()) {
    const std::vector<ProductCase> cases = MakeProductCases();
    WriteProductCases(cases, o.out_dir);
    Print("%zu cases in %s\n", cases.size(), Printable(o.out_dir).c_str());
  } else {
    PrintList(MakeProductCases(), o.json);
  }
}

}  // namespace

void AddCasesGemm(CLI::App* cases) {
  const auto o = std::make_shared<ProductCasesOptions>();
  CLI::App* command = cases->add_subcommand(
      "gemm", "List directed products for GEMM kernels, or write them as files");
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
  command->footer(
      "A file holds operands a (M, K) and b (N, K), alpha, and d: what D holds before the kernel\n"
      "runs. The kernel writes d = alpha a b^T as NAME.d.npy, or as tensor d of\n"
      "NAME.d.safetensors; lib/fp4lab/judge/products/product_folder.h is the definition.\n"
      "Example: a kernel that multiplies by alpha twice\n"
      "  $ fp4lab cases gemm --out-dir products\n"
      "  17 cases in products\n"
      "  $ fp4lab cases gemm --answer products --deviation alpha-twice\n"
      "  17 answers in products\n"
      "  $ fp4lab verify gemm --cases products | tail -1\n"
      "  Cause: The kernel multiplies by alpha twice. (alpha-twice)");
  command->callback([o] { Run(*o); });
}

}  // namespace fp4lab::tools
