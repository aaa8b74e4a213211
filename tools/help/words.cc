#include "tools/help/words.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "fp4lab/base/text/suggest.h"
#include "fp4lab/block/packing.h"
#include "fp4lab/block/scale_swizzle.h"
#include "fp4lab/data/manifest.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/exchange/stored.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/judge/cases/case_family.h"
#include "fp4lab/judge/kernels/deviation.h"
#include "fp4lab/recipe/published_recipes.h"
#include "fp4lab/recipe/recipe.h"
#include "fp4lab/study/draw/drawing.h"
#include "fp4lab/train/start/presets.h"
#include "tools/help/completion.h"
#include "tools/keys_text.h"

namespace fp4lab::tools {
namespace {

std::vector<std::string> ShortNames() {
  std::vector<std::string> names;
  for (const NamedFormat& format : kFormats) names.emplace_back(format.short_name);
  return names;
}

std::vector<std::string> Corpora() {
  std::vector<std::string> names = NamesOf(BuiltInManifests());
  names.emplace_back("synthetic");
  return names;
}

std::vector<std::string> AllRecipes() {
  std::vector<std::string> names = RecipeNames();
  for (const PublishedRecipe& recipe : PublishedRecipes()) {
    if (std::find(names.begin(), names.end(), recipe.name) == names.end()) {
      names.push_back(recipe.name);
    }
  }
  return names;
}

struct Words {
  std::string_view of;  // an argument, as help shows it, or an option
  std::vector<std::string> (*list)();
};

constexpr std::array<Words, 13> kWords = {{
    {"CORPUS", Corpora},
    {"DIALECT", [] { return NamesOf(Dialects()); }},
    {"FORMAT", ShortNames},
    {"PRESET", [] { return NamesOf(Presets()); }},
    {"RECIPE", AllRecipes},
    {"SHELL", [] { return NamesOf(kShells); }},
    {"TABLE", [] { return NamesOf(KeyTables()); }},
    {"DRAWING", [] { return NamesOf(study::Drawings()); }},
    {"--family", [] { return NamesOf(CaseFamilies()); }},
    {"--deviation", [] { return NamesOf(Deviations()); }},
    {"--codes-order", [] { return NamesOf(kCodeOrders); }},
    {"--scales-order", [] { return NamesOf(kScaleOrders); }},
    {"--level-two-is", [] { return NamesOf(kTensorScaleConventions); }},
}};

}  // namespace

std::vector<std::string> WordsFor(const OptionFacts& option) {
  if (!option.choices.empty()) return option.choices;
  for (const Words& words : kWords) {
    const bool named =
        std::find(option.names.begin(), option.names.end(), words.of) != option.names.end();
    if (named || option.argument == words.of) return words.list();
  }
  return {};
}

}  // namespace fp4lab::tools
