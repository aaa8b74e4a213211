// fp4lab cases gemm, grouped-gemm and attention: directed cases for kernels as files, and the
// report of the wrong kernels that they catch and name.
#include "tools/judging/product_cases.h"

#include <memory>
#include <string>
#include <vector>

#include "fp4lab/io/json.h"
#include "fp4lab/judge/attention/attention_case.h"
#include "fp4lab/judge/attention/attention_file.h"
#include "fp4lab/judge/products/grouped/grouped_gemm.h"
#include "fp4lab/judge/products/product_case.h"
#include "fp4lab/judge/products/product_folder.h"
#include "tools/judging/directed_cases.h"
#include "tools/options/print.h"

namespace fp4lab::tools {
namespace {

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
                    {"beta", c.beta},
                    {"output", Name(c.output)}});
    if (json) continue;
    Print("%-20s %11s  %-4s  %s\n", std::string(c.name).c_str(), Shape(c).c_str(),
          std::string(Name(c.output)).c_str(), std::string(c.what).c_str());
  }
  json ? PrintJson({{"cases", std::move(list)}}, 1) : Print("%zu cases, M x N x K\n", cases.size());
}

void PrintGrouped(const std::vector<GroupedCase>& cases, bool json) {
  Json list = Json::array();
  for (const GroupedCase& c : cases) {
    const std::size_t n = c.in.b[0].rows, k = c.in.a.cols;
    list.push_back({{"name", c.name},
                    {"what", c.what},
                    {"rows", c.in.a.rows},
                    {"n", n},
                    {"k", k},
                    {"ends", c.in.ends},
                    {"sizes", c.in.sizes.empty() ? Json() : Json(c.in.sizes)},
                    {"alphas", c.in.alphas},
                    {"output", Name(c.in.output)}});
    if (json) continue;
    const std::string shape =
        std::to_string(c.in.a.rows) + "x" + std::to_string(n) + "x" + std::to_string(k);
    Print("%-22s %9s  %zu groups  %s\n", std::string(c.name).c_str(), shape.c_str(), c.in.b.size(),
          std::string(c.what).c_str());
  }
  json ? PrintJson({{"cases", std::move(list)}}, 1)
       : Print("%zu cases, rows x N x K\n", cases.size());
}

void PrintAttention(const std::vector<AttentionCase>& cases, bool json) {
  Json list = Json::array();
  for (const AttentionCase& c : cases) {
    list.push_back({{"name", c.name}, {"what", c.what}});
    list.back().update(DescriptionOf(c.plan));
    if (json) continue;
    const AttentionInputs& in = c.plan.in;
    const std::string shape = std::to_string(in.heads) + "/" + std::to_string(in.kv_heads) + " " +
                              std::to_string(in.Queries()) + "x" + std::to_string(in.Keys()) + "x" +
                              std::to_string(in.q.cols);
    Print("%-23s %-18s %14s  %s\n", std::string(c.name).c_str(),
          std::string(c.plan.scheme.name).c_str(), shape.c_str(), std::string(c.what).c_str());
  }
  json ? PrintJson({{"cases", std::move(list)}}, 1)
       : Print("%zu cases, heads of Q / of K and V, queries x keys x channels\n", cases.size());
}

}  // namespace

void AddCasesGemm(CLI::App* cases) {
  const auto o = std::make_shared<DirectedOptions>();
  CLI::App* command = cases->add_subcommand(
      "gemm", "List directed products for GEMM kernels, or write them as files");
  AddDirectedOptions(command, o.get());
  command->footer(
      "A file holds operands a (M, K) and b (N, K), alpha, and d: what D holds before the kernel\n"
      "runs. The kernel writes d = alpha a b^T as NAME.d.npy, or as tensor d of\n"
      "NAME.d.safetensors; lib/fp4lab/judge/products/product_folder.h is the definition.\n"
      "Example: a kernel that multiplies by alpha twice\n"
      "  $ fp4lab cases gemm --out-dir products\n"
      "  18 cases in products\n"
      "  $ fp4lab cases gemm --answer products --deviation alpha-twice\n"
      "  18 answers in products\n"
      "  $ fp4lab verify gemm --cases products | tail -1\n"
      "  Cause: The kernel multiplies by alpha twice. (alpha-twice)");
  command->callback(
      [o] { RunDirectedCases<ProductBench>(*o, "gemm", MakeProductCases, PrintList); });
}

void AddCasesGrouped(CLI::App* cases) {
  const auto o = std::make_shared<DirectedOptions>();
  CLI::App* command = cases->add_subcommand(
      "grouped-gemm", "List directed grouped products (experts), or write them as files");
  AddDirectedOptions(command, o.get());
  command->footer(
      "A file holds a (rows, K), b.0, b.1, ... (N, K), and ends, sizes and alphas, a number a\n"
      "group. Rows sizes[g] .. of group g are padding, and 0 in d. The kernel writes d as\n"
      "NAME.d.npy; lib/fp4lab/judge/products/product_folder.h is the definition.\n"
      "Example: a kernel that does not count empty groups\n"
      "  $ fp4lab cases grouped-gemm --out-dir grouped\n"
      "  4 cases in grouped\n"
      "  $ fp4lab cases grouped-gemm --answer grouped --deviation empty-groups-shift-weights\n"
      "  4 answers in grouped\n"
      "  $ fp4lab verify grouped-gemm --cases grouped | tail -1\n"
      "  Cause: The kernel does not count empty groups when it takes weights. "
      "(empty-groups-shift-weights)");
  command->callback(
      [o] { RunDirectedCases<GroupedBench>(*o, "grouped-gemm", MakeGroupedCases, PrintGrouped); });
}

void AddCasesAttention(CLI::App* cases) {
  const auto o = std::make_shared<DirectedOptions>();
  CLI::App* command = cases->add_subcommand(
      "attention", "List directed cases for attention kernels, or write them as files");
  AddDirectedOptions(command, o.get());
  command->footer(
      "A file holds q, k and v (numbers to quantize, or codes and scales), and in its metadata "
      "the\n"
      "scheme and the shape. The kernel writes O, (heads * queries, channels), as NAME.d.npy;\n"
      "lib/fp4lab/judge/attention/attention_file.h is the definition.\n"
      "Example: a kernel whose causal mask is one key off\n"
      "  $ fp4lab cases attention --out-dir attention\n"
      "  15 cases in attention\n"
      "  $ fp4lab cases attention --answer attention --deviation mask-one-key-more\n"
      "  15 answers in attention\n"
      "  $ fp4lab verify attention --cases attention | tail -1\n"
      "  Cause: The kernel lets every query see one key more. (mask-one-key-more)");
  command->callback([o] {
    RunDirectedCases<AttentionBench>(*o, "attention", MakeAttentionCases, PrintAttention);
  });
}

}  // namespace fp4lab::tools
