// Fuzzes recipes: an accepted recipe is resolved, printed, and read again as the same recipe.
#include "fp4lab/io/json.h"
#include "fp4lab/recipe/recipe.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fp4lab;
  OneLineOrNothing([&] {
    const Json json = ParseJson({reinterpret_cast<const char*>(data), size}, "x.json");
    const Recipe recipe = ReadRecipe(json, "x.json#/recipe");
    if (!(ReadRecipe(ToJson(recipe), "again") == recipe)) std::abort();
    for (const char* name : {"blocks.0.attention.qkv", "blocks.3.mlp.down"}) {
      RecipeOf(recipe, name, name[7] - '0', 4);
    }
  });
  return 0;
}
