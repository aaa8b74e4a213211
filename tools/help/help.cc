// fp4lab completion and fp4lab man: help for shells and for man, made from the parser.
#include <memory>
#include <string>

#include "fp4lab/base/text/suggest.h"
#include "tools/help/command_tree.h"
#include "tools/help/completion.h"
#include "tools/help/man_page.h"
#include "tools/options/commands.h"
#include "tools/options/print.h"
#include "tools/options/usage.h"

namespace fp4lab::tools {
namespace {

const Shell& RequireShell(const std::string& name) {
  for (const Shell& shell : kShells) {
    if (shell.name == name) return shell;
  }
  RefuseUsage("completion " + name, "is not known; " + DidYouMean(name, NamesOf(kShells)));
}

}  // namespace

void AddCompletion(CLI::App& app, int* /*exit_code*/) {
  const auto shell = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("completion", "Print the completion of commands and options for a shell");
  command->add_option("shell", *shell, "bash, zsh or fish")->required()->type_name("SHELL");
  command->footer(
      "bash: source <(fp4lab completion bash)    zsh: source <(fp4lab completion zsh)\n"
      "fish: fp4lab completion fish | source     The Debian package installs all three.\n"
      "Example:\n"
      "  $ fp4lab completion bash | tail -n 1\n"
      "  complete -o bashdefault -o default -F _fp4lab fp4lab");
  command->callback([&app, shell] {
    const Shell& asked = RequireShell(*shell);
    PrintText(asked.completion(FactsOf(app)));
  });
}

void AddMan(CLI::App& app, int* /*exit_code*/) {
  CLI::App* command = app.add_subcommand("man", "Print the manual page: fp4lab man | man -l -");
  command->footer(
      "Example:\n"
      "  $ fp4lab man | grep -c '^[.]SH ENVIRONMENT'\n"
      "  1");
  command->callback([&app] { PrintText(ManPage(FactsOf(app))); });
}

}  // namespace fp4lab::tools
