// fp4lab verify attention: compares a device's attention with the answers that a scheme allows.
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/exchange/matrix_file.h"
#include "fp4lab/io/json.h"
#include "fp4lab/judge/attention/attention_file.h"
#include "fp4lab/judge/attention/attention_kernel.h"
#include "fp4lab/judge/products/product_folder.h"
#include "tools/help/help_group.h"
#include "tools/judging/directed_cases.h"
#include "tools/judging/verdict_text.h"
#include "tools/options/commands.h"
#include "tools/options/comparing.h"
#include "tools/options/gemm_options.h"
#include "tools/options/kernel_options.h"
#include "tools/options/number_option.h"
#include "tools/options/print.h"

namespace fp4lab::tools {
namespace {

struct VerifyAttention {
  AttentionFiles files;
  std::string o, scheme, output = "bf16", cases, first_tile, v_scales_bytes;
  std::optional<std::size_t> tile;
  bool json = false, allow_declined = false, schemes = false;
};

void PrintSchemes(bool json) {
  Json list = Json::array();
  for (const AttentionScheme& s : AttentionSchemes()) {
    list.push_back({{"name", s.name},
                    {"what", s.what},
                    {"source", s.source},
                    {"q", s.q},
                    {"k", s.k},
                    {"v", s.v},
                    {"v_along_keys", s.v_along_keys},
                    {"q_mean_rows", s.q_mean_rows},
                    {"k_mean", s.k_mean},
                    {"p", Named(s.p.element).short_name},
                    {"p_group", s.p.group},
                    {"p_top", s.p.top},
                    {"tile", s.any_tile ? Json() : Json(s.tile)},
                    {"last_first", s.last_first}});
    if (json) continue;
    Print("%-19s %s\n%-19s %s\n", std::string(s.name).c_str(), std::string(s.what).c_str(), "",
          std::string(s.source).c_str());
  }
  if (json) PrintJson({{"schemes", std::move(list)}}, 1);
}

// A scheme with the tiles of the command line.
AttentionScheme SchemeOf(const VerifyAttention& o) {
  AttentionScheme scheme = RequireAttentionScheme(o.scheme, "--scheme");
  if (o.tile) {
    scheme.tile = *o.tile;
    scheme.any_tile = false;
  }
  if (!o.first_tile.empty()) scheme.last_first = o.first_tile == "last";
  return scheme;
}

Json FirstJson(const AttentionElement& e) {
  return {{"head", e.head},
          {"query", e.query},
          {"channel", e.channel},
          {"got", NumberJson(e.got)},
          {"want", NumberJson(e.want)},
          {"low", NumberJson(e.low)},
          {"high", NumberJson(e.high)},
          {"exact", NumberJson(e.exact)}};
}

bool Run(VerifyAttention o) {
  if (o.schemes) {
    PrintSchemes(o.json);
    return true;
  }
  if (!o.cases.empty()) {
    if (!o.files.q.empty()) {
      throw Error("--cases " + o.cases, "holds operands and answers: give no other file");
    }
    return JudgeDirected(AttentionBench(MakeAttentionCases()), o.cases, "attention",
                         o.allow_declined, o.json);
  }
  if (o.files.q.empty() || o.files.k.empty() || o.files.v.empty() || o.o.empty()) {
    throw Error("verify attention", "needs four files: Q, K, V, and O that a device returned");
  }
  if (o.scheme.empty()) {
    throw Error("--scheme", "must name the order of operations; --schemes lists them");
  }
  o.files.output = GemmOutputNamed(o.output);
  if (!o.v_scales_bytes.empty()) {
    o.files.v_scales = ByteOrderOf(o.v_scales_bytes, ScaleByteOrders(), "--v-scales-bytes");
  }
  const AttentionPlan plan = ReadAttention(o.files, SchemeOf(o));
  const Matrix<float> got = ReadMatrix(o.o).values;
  const std::size_t rows = plan.in.q.rows, cols = plan.in.q.cols;
  if (got.rows != rows || got.cols != cols) {
    throw Error(o.o, "is " + std::to_string(got.rows) + "x" + std::to_string(got.cols) +
                         " (rows of all heads x channels); the answer is " + std::to_string(rows) +
                         "x" + std::to_string(cols));
  }
  const AttentionRange range = EvaluateAttention(plan);
  const AttentionJudgement j = JudgeAttention(range, plan.in.heads, got.View());
  const char* verdict = j.outside > 0 ? "outside" : j.different > 0 ? "inside" : "equal";
  std::vector<GemmCause> causes;
  if (j.outside > 0) causes = FindAttentionCauses(plan, got.View());
  if (o.json) {
    Json json = DescriptionOf(plan);
    json["verdict"] = verdict;
    json["different"] = j.different;
    json["outside"] = j.outside;
    if (j.different > 0) json["first"] = FirstJson(j.first);
    if (j.outside > 0) {
      json["outside_in"] = RectangleJson(j.outside_in);
      json["heads_outside"] = j.heads;
      json["causes"] = CausesJson(causes);
    }
    PrintJson(json, 2);
    return j.outside == 0;
  }
  Print("%s: %s, %zu of %zu elements are not the exact answer rounded, %zu are not allowed\n",
        std::string(plan.scheme.name).c_str(), verdict, j.different, rows * cols, j.outside);
  if (j.outside > 0) {
    const Rectangle& r = j.outside_in;
    Print("  outside in %zu of %zu heads, the first %zu; queries %zu..%zu, channels %zu..%zu\n",
          j.heads.size(), plan.in.heads, j.heads[0], r.row, r.row + r.rows - 1, r.col,
          r.col + r.cols - 1);
  }
  if (j.different > 0) {
    const AttentionElement& e = j.first;
    Print(
        "  first %s, head %zu, query %zu, channel %zu: got %s, allowed %.9g .. %.9g, exact "
        "%.9g\n",
        j.outside > 0 ? "outside" : "different", e.head, e.query, e.channel, Hex(e.got).c_str(),
        e.low, e.high, e.exact);
  }
  PrintCauses(causes, "answer");
  return j.outside == 0;
}

}  // namespace

void AddVerifyAttention(CLI::App& app, int* exit_code) {
  const auto o = std::make_shared<VerifyAttention>();
  CLI::App* command = app.get_subcommand("verify")->add_subcommand(
      "attention", "A device's attention: exit code 0 equal or allowed, 1 not allowed, 2 error");
  command
      ->add_option("Q", o->files.q,
                   "(heads, queries, D): numbers or a quantized matrix, FILE or FILE#NAME")
      ->type_name("FILE");
  command->add_option("K", o->files.k, "(kv_heads, keys, D)")->type_name("FILE");
  command
      ->add_option("V", o->files.v,
                   "(kv_heads, keys, D); quantized along the keys: (kv_heads * D, keys)")
      ->type_name("FILE");
  command->add_option("O", o->o, "(heads, queries, D): what a device returned")->type_name("FILE");
  command->add_option("--scheme", o->scheme, "The order of operations (--schemes lists them)")
      ->type_name("NAME");
  command->add_flag("--schemes", o->schemes, "List the orders of operations");
  command->add_option("--heads", o->files.heads, "Heads of Q, if its shape does not say");
  command->add_option("--kv-heads", o->files.kv_heads, "Heads of K and V");
  command->add_option("--scale", o->files.scale, "Factor of the logits; 0: 1 / sqrt(D)")
      ->capture_default_str();
  command->add_flag("--causal", o->files.causal, "Query i of M sees the keys up to i + N - M of N");
  command->add_option("--tile", o->tile,
                      "Keys of a tile, if not the scheme's; 0: all keys have one maximum");
  command->add_option("--first-tile", o->first_tile, "first or last: where a kernel begins")
      ->check(OneOf({"first", "last"}));
  AddByteOrderOption(command, "--v-scales-bytes", &o->v_scales_bytes, ScaleByteOrders(),
                     "a quantized V's scales");
  command->add_option("--output", o->output, "Type of the answer: f32, bf16, f16")
      ->capture_default_str();
  command->add_option("--cases", o->cases, "Judge the answers in this folder of `cases attention`")
      ->type_name("FOLDER");
  command->add_flag("--allow-declined", o->allow_declined, "Accept cases without an answer");
  command->add_flag("--json", o->json, "Print JSON");
  PutInGroup(command, "The attention",
             {"--heads", "--kv-heads", "--scale", "--causal", "--output"});
  PutInGroup(command, "The order of operations",
             {"--scheme", "--schemes", "--tile", "--first-tile"});
  PutInGroup(command, kCasesGroup, {"--cases", "--allow-declined"});
  command->footer(
      "The scheme quantizes plain numbers; quantized operands are taken as they are. The answer "
      "is\n"
      "exact in binary64 from there on. lib/fp4lab/judge/attention/attention.h states what a "
      "kernel\n"
      "may do otherwise: the order of additions, exp, and codes of P beside a tie.");
  command->callback([o, exit_code] { Comparing(exit_code, [&] { return Run(*o); }); });
}

}  // namespace fp4lab::tools
