// fp4lab keys: the keys of study files and recipes, and the members of results.json.
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/io/json.h"
#include "tools/help/fitted.h"
#include "tools/keys_text.h"
#include "tools/options/commands.h"
#include "tools/options/print.h"

namespace fp4lab::tools {
namespace {

struct KeysOptions {
  std::string table = "study";
  bool json = false;
};

// Markdown as a terminal shows it: links as their titles, code without its marks.
std::string Plain(const std::string& markdown) {
  std::string text;
  for (std::size_t i = 0; i < markdown.size(); ++i) {
    const std::size_t middle = markdown[i] == '[' ? markdown.find("](", i) : std::string::npos;
    if (middle != std::string::npos && markdown.find(']', i) == middle) {
      text += Plain(markdown.substr(i + 1, middle - i - 1));
      i = markdown.find(')', middle);
    } else if (markdown[i] != '`') {
      text += markdown[i];
    }
  }
  return text;
}

void PrintObject(const Json& object) {
  PrintText("\n" + object.at("title").get<std::string>() + "\n");
  if (object.contains("text")) PrintText("  " + Plain(object.at("text")) + "\n");
  TableRows rows;
  for (const Json& key : object.at("keys")) {
    rows.push_back({"  " + key.at(0).get<std::string>(), Plain(key.at(1)), Plain(key.at(2))});
  }
  PrintFitted(AlignedText(rows), rows, false, "");
}

void Run(const KeysOptions& options) {
  std::vector<std::string> names;
  for (const KeyTable& table : KeyTables()) names.emplace_back(table.name);
  const auto table = std::find(names.begin(), names.end(), options.table);
  if (table == names.end()) {
    throw Error("keys " + options.table, "is not known; " + DidYouMean(options.table, names));
  }
  const std::string_view text = KeyTables()[static_cast<std::size_t>(table - names.begin())].text;
  const Json document = ParseJson(text, "data/" + options.table + "-keys.json");
  if (options.json) return PrintJson(document, 2);
  PrintText(Plain(document.at("text")) + "\n");
  for (const char* part : {"objects", "lists"}) {
    if (!document.contains(part)) continue;
    for (const Json& object : document.at(part)) PrintObject(object);
  }
}

}  // namespace

void AddKeys(CLI::App& app, int* /*exit_code*/) {
  const auto options = std::make_shared<KeysOptions>();
  CLI::App* command = app.add_subcommand(
      "keys", "Print the keys of study files or recipes, or the members of results.json");
  command->add_option("table", options->table, "study, recipe or results [study]")
      ->type_name("TABLE");
  command->add_flag("--json", options->json, "Print JSON");
  command->footer(
      "Example: where the learning rate stands\n"
      "  $ fp4lab keys study | grep -w learning_rate | head -1\n"
      "    learning_rate   above 0       The constant rate.\n");
  command->callback([options] { Run(*options); });
}

}  // namespace fp4lab::tools
