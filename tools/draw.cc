// fp4lab draw: draws the concepts of the pages as SVG, from the tables and functions of the
// library.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "fp4lab/io/file.h"
#include "fp4lab/study/draw/drawing.h"
#include "tools/help/fitted.h"
#include "tools/options/commands.h"
#include "tools/options/print.h"
#include "tools/options/usage.h"

namespace fp4lab::tools {
namespace {

struct DrawOptions {
  std::string name, out;
  std::vector<std::string> arguments;
};

void PrintDrawings() {
  std::size_t column = 0;
  const auto call = [](const study::Drawing& d) {
    return std::string(d.name) + " " + std::string(d.arguments);
  };
  for (const study::Drawing& d : study::Drawings()) {
    column = std::max(column, call(d).size() + 2);
  }
  for (const study::Drawing& d : study::Drawings()) PrintLabelled(call(d), column, d.what);
}

void Run(const CLI::App& command, const DrawOptions& o) {
  if (o.name.empty()) {
    RefuseGiven(command, {"--out"}, "has no effect without the name of a drawing");
    return PrintDrawings();
  }
  const std::string drawing = study::Draw(o.name, o.arguments);
  o.out.empty() ? PrintText(drawing) : WriteFileAtomically(o.out, drawing);
}

}  // namespace

void AddDraw(CLI::App& app, int* /*exit_code*/) {
  const auto o = std::make_shared<DrawOptions>();
  CLI::App* command = app.add_subcommand(
      "draw", "Draw formats, blocks, recipes and other concepts as SVG, or list the drawings");
  command->add_option("name", o->name, "Which drawing; without it, all are listed")
      ->type_name("DRAWING");
  command->add_option("arguments", o->arguments, "What it draws, as the list says")
      ->type_name("ARGUMENT");
  command->add_option("--out", o->out, "The file to write, instead of standard output")
      ->type_name("FILE.svg");
  command->footer(
      "Example: the operands of Quartet II, as a figure\n"
      "  $ fp4lab draw dataflow quartet2 --out quartet2.svg\n");
  command->callback([command, o] { Run(*command, *o); });
}

}  // namespace fp4lab::tools
