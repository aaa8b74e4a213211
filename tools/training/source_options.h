// The checkpoint, the text and the recipes that a command reads: files, names or JSON.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "fp4lab/data/config.h"
#include "fp4lab/io/json.h"
#include "fp4lab/recipe/recipe.h"

namespace fp4lab::tools {

// --text, --tokens and --data; at most one is given.
struct SourceOptions {
  std::string text, tokens, data;
};

// nullopt: none is given. Throws Error for several.
std::optional<DataConfig> DataOf(const SourceOptions& options);

// A recipe's JSON from a file with JSON, JSON, or a name. Throws Error for a .json file that is not
// there.
Json RecipeJsonFrom(const std::string& text);
// The recipe of that JSON.
Recipe RecipeFrom(const std::string& text);

// The required position "checkpoint", a string or a path.
template <class Path>
void AddCheckpoint(CLI::App* command, Path* checkpoint) {
  command
      ->add_option("checkpoint", *checkpoint,
                   "checkpoint.fp4lab of fp4lab train or study run, its folder, or an import")
      ->type_name("FILE")
      ->required();
}
// --recipe, any number of times; `otherwise` says what is taken without it: "bf16".
void AddRecipes(CLI::App* command, const std::string& otherwise, std::vector<std::string>* recipes);

}  // namespace fp4lab::tools
