// The text and the recipes that a command reads: files, names or JSON.
#pragma once

#include <optional>
#include <string>

#include "fp4lab/data/config.h"
#include "fp4lab/recipe/recipe.h"

namespace fp4lab::tools {

// --text, --tokens and --data; at most one is given.
struct SourceOptions {
  std::string text, tokens, data;
};

// nullopt: none is given. Throws Error for several.
std::optional<DataConfig> DataOf(const SourceOptions& options);

// A recipe: a file with JSON, JSON, or a name.
Recipe RecipeFrom(const std::string& text);

}  // namespace fp4lab::tools
