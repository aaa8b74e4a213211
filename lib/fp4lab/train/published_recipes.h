// Training recipes that were published, as rows of data/recipes.json, which the library embeds.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/io/json.h"

namespace fp4lab {

struct PublishedRecipe {
  std::string name;          // "torchao_nvfp4": what a study may name as its recipe
  std::string title;         // for people
  std::string source;        // repository, commit and file, or paper and section
  std::string not_modelled;  // what of it `recipe` does not say; may be empty
  Json recipe;               // what ReadRecipe (recipe.h) reads
};

// In the order of the file.
const std::vector<PublishedRecipe>& PublishedRecipes();

// nullptr for an unknown name.
const PublishedRecipe* FindPublishedRecipe(std::string_view name);

}  // namespace fp4lab
