// fp4lab data get | list | verify
#include <memory>
#include <string>
#include <vector>

#include "fp4lab/data/fetch.h"
#include "fp4lab/data/manifest.h"
#include "fp4lab/data/synthetic.h"
#include "tools/help/fitted.h"
#include "tools/options/commands.h"
#include "tools/options/print.h"
#include "tools/options/stop_signals.h"

namespace fp4lab::tools {
namespace {

struct DataOptions {
  std::string name, package;
  bool wide = false;
};

std::string Folder(const Manifest& manifest) { return (DataFolder() / manifest.name).string(); }

void Get(const DataOptions& options, int* exit_code) {
  if (options.name == "synthetic") {
    Print("synthetic: built in, no download needed\n");
    return;
  }
  const Manifest manifest = FindManifest(options.name);
  const StopSignals signals(0);
  const auto note = [](const std::string& line) { Note("%s\n", Printable(line).c_str()); };
  switch (
      Fetch(manifest, {.package = options.package, .stop = &StopSignals::Asked(), .note = note})) {
    case FetchOutcome::kAlreadyThere:
      Print("%s: already in %s, hashes verified\n", Printable(manifest.name).c_str(),
            Printable(Folder(manifest)).c_str());
      return;
    case FetchOutcome::kFetched:
      Print("%s: %zu documents, %.2f MB, hashes verified, now in %s\n",
            Printable(manifest.name).c_str(), manifest.documents.size(),
            static_cast<double>(manifest.Bytes()) / 1e6, Printable(Folder(manifest)).c_str());
      return;
    case FetchOutcome::kStopped:
      Note("interrupted; nothing was written\n");
      *exit_code = StopSignals::ExitCode();
  }
}

const char* Name(DocumentState state) {
  switch (state) {
    case DocumentState::kVerified:
      return "verified";
    case DocumentState::kMissing:
      return "not here";
    case DocumentState::kDifferent:
      return "DIFFERENT";
  }
  return "";
}

void List(bool wide) {
  TableRows rows = {{"name", "MB", "state", "licence", "title"}};
  for (const Manifest& manifest : BuiltInManifests()) {
    rows.push_back(
        {Printable(manifest.name), Formatted("%.2f", static_cast<double>(manifest.Bytes()) / 1e6),
         Name(StateOf(manifest)), Printable(manifest.licence), Printable(manifest.title)});
  }
  rows.push_back({"synthetic", "any", "built in", "none needed",
                  Formatted("Markov text of order 3, %.4f nats a byte (seed 1)",
                            SyntheticSource(1).EntropyRate())});
  std::string full;
  TableRows narrow;
  for (const std::vector<std::string>& row : rows) {
    full += Formatted("%-12s %9s  %-9s  %-28s  %s\n", row[0].c_str(), row[1].c_str(),
                      row[2].c_str(), row[3].c_str(), row[4].c_str());
    narrow.push_back({row[0], row[1], row[2], row[4]});
  }
  PrintFitted(full, narrow, wide, "licences");
  Print("folder: %s\n", Printable(DataFolder().string()).c_str());
}

// Prints the state of every document. Returns whether all are present with the right hash.
bool Verify(const Manifest& manifest) {
  for (const Document& document : manifest.documents) {
    Print("%-9s  %s\n", Name(StateOf(manifest, document)),
          Printable(DocumentPath(manifest, document).string()).c_str());
  }
  return StateOf(manifest) == DocumentState::kVerified;
}

// Without a name: verifies every built-in corpus that has at least one document here.
void VerifyCommand(const DataOptions& options, int* exit_code) {
  if (!options.name.empty()) {
    *exit_code = Verify(FindManifest(options.name)) ? 0 : 1;
    return;
  }
  bool anything = false;
  for (const Manifest& manifest : BuiltInManifests()) {
    if (StateOf(manifest) == DocumentState::kMissing) continue;
    anything = true;
    if (!Verify(manifest)) *exit_code = 1;
  }
  if (!anything) Print("nothing in %s\n", Printable(DataFolder().string()).c_str());
}

}  // namespace

void AddData(CLI::App& app, int* exit_code) {
  CLI::App* data = app.add_subcommand("data", "Get, list and verify the texts to train on");
  data->require_subcommand(1);
  auto options = std::make_shared<DataOptions>();
  const char* name_help = "A corpus of `fp4lab data list`, or a manifest file (*.json)";

  CLI::App* get = data->add_subcommand(
      "get", "Download a corpus through the system's package client and verify it");
  get->add_option("name", options->name, name_help)->required()->type_name("CORPUS");
  get->add_option("--package", options->package,
                  "Take this package file (.deb) instead of a download");
  get->footer(
      "Example: the built-in corpus\n"
      "  $ fp4lab data get synthetic\n"
      "  synthetic: built in, no download needed\n"
      "(on real text: fp4lab data get austen)\n");
  get->callback([=] { Get(*options, exit_code); });

  CLI::App* list = data->add_subcommand("list", "List the corpora and their state");
  list->footer(
      "Example:\n"
      "  $ fp4lab data list | grep -o 'synthetic  *any  built in'\n"
      "  synthetic          any  built in\n");
  list->add_flag("--wide", options->wide, "Print all columns, however narrow the terminal is");
  list->callback([=] { List(options->wide); });

  CLI::App* verify = data->add_subcommand(
      "verify", "Compute the hashes again; exit code 1 where one differs or a text is missing");
  verify->add_option("name", options->name, name_help)->type_name("CORPUS");
  verify->footer(
      "Example: a folder that holds nothing yet\n"
      "  $ FP4LAB_DATA_DIR=texts fp4lab data verify\n"
      "  nothing in texts\n");
  verify->callback([=] { VerifyCommand(*options, exit_code); });
}

}  // namespace fp4lab::tools
