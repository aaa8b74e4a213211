#include "tools/training/source_options.h"

#include <filesystem>

#include "fp4lab/base/error.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/json.h"
#include "fp4lab/io/near_files.h"

namespace fp4lab::tools {
namespace {

// A folder may have the name of a recipe: the results of a run under it.
bool IsRecipeFile(const std::string& text) {
  return !text.starts_with('{') && Exists(text) && !std::filesystem::is_directory(text);
}

}  // namespace

std::optional<DataConfig> DataOf(const SourceOptions& o) {
  const int ways = (o.text.empty() ? 0 : 1) + (o.tokens.empty() ? 0 : 1) + (o.data.empty() ? 0 : 1);
  if (ways > 1) throw Error("command line", "give one of --text, --tokens and --data");
  if (!o.text.empty()) return ReadDataConfig({{"text", o.text}}, "--text");
  if (!o.tokens.empty()) return ReadDataConfig({{"tokens", o.tokens}}, "--tokens");
  if (!o.data.empty()) return ReadDataConfig({{"source", o.data}}, "--data");
  return std::nullopt;
}

Json RecipeJsonFrom(const std::string& text) {
  if (text.starts_with('{')) return ParseJson(text, "--recipe " + text);
  if (IsRecipeFile(text)) return ReadJsonFile(text);
  if (text.ends_with(".json")) throw Error(text, "is not there" + NearFilesText(text));
  return text;
}

Recipe RecipeFrom(const std::string& text) {
  return ReadRecipe(RecipeJsonFrom(text), IsRecipeFile(text) ? text : "--recipe " + text);
}

void AddRecipes(CLI::App* command, const std::string& otherwise,
                std::vector<std::string>* recipes) {
  command
      ->add_option(
          "--recipe", *recipes,
          "A name (see fp4lab recipes), a JSON file or JSON (repeatable) [" + otherwise + "]")
      ->type_name("RECIPE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

}  // namespace fp4lab::tools
