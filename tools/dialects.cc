// fp4lab dialects: prints the table of dialects, or one dialect in full.
#include <memory>
#include <string>
#include <vector>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/dialect/describe.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/exchange/tables_json.h"
#include "fp4lab/io/json.h"
#include "fp4lab/quantize/behaviours.h"
#include "tools/help/fitted.h"
#include "tools/options/commands.h"
#include "tools/options/file_options.h"
#include "tools/options/print.h"

namespace fp4lab::tools {
namespace {

struct DialectsOptions {
  std::string name;
  bool json = false, wide = false;
};

// The cells of one line of the table.
std::vector<std::string> CellsOf(const Dialect& d) {
  const bool adaptive = d.adaptive != Adaptive::kNo;
  return {std::string(d.name),
          std::string(Named(d.element).short_name),
          BlockText(d) + (d.row_scaled ? " (amax a row)" : ""),
          std::string(FormulaOf(d.tensor_scale)),
          std::string(FormulaOf(d.block_scale)),
          std::string(adaptive ? FormulaOf(d.adaptive) : FormulaOf(d.scale_encoding)),
          std::string(FormulaOf(d.factor)),
          std::string(FormulaOf(d.rounding)),
          std::string(d.version),
          std::string(d.source)};
}

void PrintDialects(bool wide) {
  TableRows rows = {{"dialect", "element", "block", "tensor scale", "block scale", "scale byte",
                     "scaled element", "code", "version", "source"}};
  for (const Dialect& d : Dialects()) rows.push_back(CellsOf(d));
  TableRows narrow;
  for (const std::vector<std::string>& row : rows) narrow.push_back({row[0], row[8]});
  PrintFitted(AlignedText(rows), narrow, wide, "formulas and sources");
}

void PrintRow(const Dialect& d) {
  constexpr std::size_t kColumn = 13;
  PrintLabelled("dialect", kColumn, d.name);
  for (const DialectLine& line : Describe(d)) PrintLabelled(line.stage, kColumn, line.text);
  PrintLabelled("version", kColumn, d.version);
  PrintLabelled("source", kColumn, d.source);
  if (!d.note.empty()) PrintLabelled("note", kColumn, d.note);
  std::string same;
  for (const Dialect& other : Dialects()) {
    if (other.name != d.name && SameFormulas(d, other)) same += " " + std::string(other.name);
  }
  if (!same.empty()) PrintLabelled("the same as", kColumn, same.substr(1));
  const int digits = DivideUp(FormatOf(d.element).bits, 4);
  Print("\n%-40s %5s %5s %10s %12s\n", "input", "scale", "code", "neighbours", "other block");
  for (const Behaviour& b : Behaviours(d)) {
    Print("%-40s %5s %5s %10s %12s\n", std::string(b.input).c_str(), HexText(b.scale, 2).c_str(),
          HexText(b.code, digits).c_str(), HexText(b.neighbour, digits).c_str(),
          HexText(b.other_scale, 2).c_str());
  }
}

Json WithBehaviours(const Dialect& d) {
  Json json = DialectJson(d);
  Json behaviours = Json::array();
  for (const Behaviour& b : Behaviours(d)) {
    behaviours.push_back({{"input", b.input},
                          {"scale", b.scale},
                          {"code", b.code},
                          {"neighbour_code", b.neighbour},
                          {"other_scale", b.other_scale}});
  }
  json["behaviours"] = std::move(behaviours);
  return json;
}

void Run(const DialectsOptions& options) {
  if (!options.name.empty()) {
    const Dialect& dialect = RequireDialect(options.name, "dialects");
    options.json ? PrintJson(WithBehaviours(dialect), 2) : PrintRow(dialect);
    return;
  }
  if (!options.json) return PrintDialects(options.wide);
  Json rows = Json::array();
  for (const Dialect& d : Dialects()) rows.push_back(DialectJson(d));
  PrintJson(Json{{"dialects", std::move(rows)}}, 2);
}

}  // namespace

void AddDialects(CLI::App& app, int* /*exit_code*/) {
  const auto options = std::make_shared<DialectsOptions>();
  CLI::App* command = app.add_subcommand(
      "dialects", "Print the formulas that are called NVFP4, MXFP4 and so on, or one in full");
  command->add_option("name", options->name, "Print this dialect in full: a name, or FILE.json")
      ->type_name("DIALECT");
  command->add_flag("--json", options->json, "Print JSON");
  command->add_flag("--wide", options->wide, "Print all columns, however narrow the terminal is");
  command->footer(
      "All columns, to scroll sideways: fp4lab dialects | less -S\n"
      "Example: ModelOpt quantizes a tensor of zeros to a NaN scale and +6 in every element\n"
      "  $ fp4lab dialects nvfp4.modelopt | grep 'tensor of zeros'\n"
      "  a tensor of zeros                         0x7F   0x7        0x7         0x7F");
  command->callback([options] { Run(*options); });
}

}  // namespace fp4lab::tools
