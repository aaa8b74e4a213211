// Published training recipes, as rows of data/recipes.json, which the library embeds.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/io/json.h"

namespace fp4lab {

struct PublishedRecipe {
  std::string name;          // "torchao_nvfp4": a name that a study's recipe may have
  std::string title;         // human-readable
  std::string source;        // repository, commit and file, or paper and section
  std::string not_modelled;  // features that `recipe` leaves out; may be empty
  Json recipe;               // for ReadRecipe (recipe.h)
};

// In the order of the file.
const std::vector<PublishedRecipe>& PublishedRecipes();

// nullptr for an unknown name.
const PublishedRecipe* FindPublishedRecipe(std::string_view name);

}  // namespace fp4lab
