// fp4lab dialects: prints the table of dialects, or one dialect in full.
#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/dialect/describe.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/exchange/tables_json.h"
#include "fp4lab/io/json.h"
#include "fp4lab/quantize/behaviours.h"
#include "tools/options/commands.h"
#include "tools/options/file_options.h"
#include "tools/options/print.h"

namespace fp4lab::tools {
namespace {

struct DialectsOptions {
  std::string name;
  bool json = false;
};

using Cells = std::array<std::string, 10>;

// The cells of one line of the table.
Cells CellsOf(const Dialect& d) {
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

void PrintDialects() {
  std::vector<Cells> table{{"dialect", "element", "block", "tensor scale", "block scale",
                            "scale byte", "scaled element", "code", "version", "source"}};
  for (const Dialect& d : Dialects()) table.push_back(CellsOf(d));
  std::array<std::size_t, std::tuple_size_v<Cells>> widths{};
  for (const Cells& cells : table) {
    for (std::size_t i = 0; i < widths.size(); ++i) {
      widths[i] = std::max(widths[i], cells[i].size());
    }
  }
  for (const Cells& cells : table) {
    std::string line;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      line += cells[i];
      if (i + 1 < widths.size()) line += std::string(widths[i] - cells[i].size() + 2, ' ');
    }
    PrintText(line + "\n");
  }
}

void PrintRow(const Dialect& d) {
  Print("%-12s %s\n", "dialect", std::string(d.name).c_str());
  for (const DialectLine& line : Describe(d)) {
    Print("%-12s %s\n", std::string(line.stage).c_str(), line.text.c_str());
  }
  Print("%-12s %s\n", "version", std::string(d.version).c_str());
  Print("%-12s %s\n", "source", std::string(d.source).c_str());
  if (!d.note.empty()) Print("%-12s %s\n", "note", std::string(d.note).c_str());
  std::string same;
  for (const Dialect& other : Dialects()) {
    if (other.name != d.name && SameFormulas(d, other)) same += " " + std::string(other.name);
  }
  if (!same.empty()) Print("%-12s%s\n", "the same as", same.c_str());
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
  if (!options.json) return PrintDialects();
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
  command->footer(
      "The table is wide: fp4lab dialects | less -S\n"
      "Example: ModelOpt quantizes a tensor of zeros to a NaN scale and +6 in every element\n"
      "  $ fp4lab dialects nvfp4.modelopt | grep 'tensor of zeros'\n"
      "  a tensor of zeros                         0x7F   0x7        0x7         0x7F");
  command->callback([options] { Run(*options); });
}

}  // namespace fp4lab::tools
