// fp4lab recipes: prints the training recipes that studies may name, or one recipe in full.
#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/recipe/published_recipes.h"
#include "fp4lab/recipe/recipe.h"
#include "fp4lab/recipe/recipe_blocks.h"
#include "fp4lab/recipe/recipe_json.h"
#include "fp4lab/study/report/tables/text_table.h"
#include "tools/help/fitted.h"
#include "tools/options/commands.h"
#include "tools/options/print.h"

namespace fp4lab::tools {
namespace {

struct RecipesOptions {
  std::string name;
  bool json = false;
};

struct Row {
  std::string name, title, source, not_modelled;
};

// The base recipes that are not in the table of published recipes.
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kTitles = {{
    {"fp32", "Nothing is quantized, binary32 throughout"},
    {"bf16", "Operands of every linear rounded to BF16"},
    {"mxfp4", "The table of NVFP4BlockScaling in MXFP4; \"scale_rule\", \"weight_block\""},
}};

std::vector<Row> Rows() {
  std::vector<Row> rows;
  for (const auto& [name, title] : kTitles) {
    rows.push_back({std::string(name), std::string(title), "fp4lab", ""});
  }
  for (const PublishedRecipe& r : PublishedRecipes()) {
    rows.push_back({r.name, r.title, r.source, r.not_modelled});
  }
  return rows;
}

void PrintRecipes() {
  const std::vector<Row> rows = Rows();
  TableRows lines;
  for (const Row& row : rows) {
    lines.push_back({row.name, row.title + (row.not_modelled.empty() ? "" : " *")});
  }
  PrintFitted(AlignedText(lines), lines, false, "");
  PrintText("\n* in part: `fp4lab recipes NAME` lists the parts that are not modelled\n");
}

void PrintOperands(const Json& recipe, const std::string& indent);

// The rules of a list as a table, then the operands of each of its recipes, once each.
void PrintRules(const Recipe& list, const std::string& indent) {
  study::TextRows rows = {{"rule", "linears", "blocks", "steps", "recipe"}};
  const auto share = [](double x) { return Json(x).dump(); };
  const auto count = [](int number, double percent) {
    const Json json = BlocksJson(number, percent);
    return json.is_string() ? json.get<std::string>() : json.dump();
  };
  const auto blocks = [&](const RecipeRule& r) {
    std::vector<std::string> parts;
    if (r.first_blocks > 0 || r.first_percent > 0.0) {
      parts.push_back("first " + count(r.first_blocks, r.first_percent));
    }
    if (r.last_blocks > 0 || r.last_percent > 0.0) {
      parts.push_back("last " + count(r.last_blocks, r.last_percent));
    }
    return parts.empty() ? std::string("all") : Joined(parts, " and ");
  };
  std::vector<const Recipe*> recipes;
  for (const RecipeRule& r : list.rules) {
    const bool always = r.from == 0.0 && r.to == 1.0;
    rows.push_back({std::to_string(recipes.size()), Joined(r.linears, " "), blocks(r),
                    always ? "all" : share(r.from) + "-" + share(r.to), r.recipe.base});
    recipes.push_back(&r.recipe);
  }
  const Recipe rest = RestOf(list);
  rows.push_back({"rest", "all others", "all", "all", rest.base});
  recipes.push_back(&rest);
  PrintText(study::LeftAlignedText(rows));
  std::vector<Recipe> shown;
  for (const Recipe* recipe : recipes) {
    if (std::find(shown.begin(), shown.end(), *recipe) != shown.end()) continue;
    shown.push_back(*recipe);
    PrintText("\n" + indent + recipe->base + ":\n");
    PrintOperands(ToJson(*recipe), indent + "  ");
  }
}

void PrintOperands(const Json& recipe, const std::string& indent) {
  if (IsListOfRules(recipe)) return PrintRules(ReadRules(recipe, "recipes"), indent);
  constexpr std::array<std::array<const char*, 3>, 3> kGemms = {
      {{"fprop", "input", "weight"}, {"dgrad", "grad", "weight"}, {"wgrad", "grad", "input"}}};
  for (const auto& [gemm, a, b] : kGemms) {
    for (const char* operand : {a, b}) {
      const std::string name = std::string(gemm) + "." + operand;
      PrintText(indent + name + std::string(13 - name.size(), ' ') +
                OperandText(recipe.at(gemm).at(operand)) + "\n");
    }
  }
  for (const char* key : {"layers", "first_blocks_bf16", "last_blocks_bf16", "include", "exclude",
                          "accumulation", "training_dtype"}) {
    if (!recipe.contains(key)) continue;
    const Json& value = recipe.at(key);
    const bool is_default = value == "all" || value == 0 || value.empty() || value == "bf16";
    if (!is_default) PrintText(indent + key + ": " + value.dump() + "\n");
  }
  if (!recipe.contains("then")) return;
  PrintText(indent + "from " + recipe["then"]["at"].dump() + " of the steps on:\n");
  PrintOperands(recipe["then"]["recipe"], indent + "  ");
}

void PrintRow(const std::string& name, bool as_json) {
  const Json resolved = ToJson(ReadRecipe(name, "recipes"));
  const std::vector<Row> rows = Rows();
  const auto row =
      std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return r.name == name; });
  Expects(row != rows.end(), "every recipe that a name reads has a row");
  if (as_json) {
    return PrintJson(Json{{"name", row->name},
                          {"title", row->title},
                          {"source", row->source},
                          {"not_modelled", row->not_modelled},
                          {"recipe", resolved}},
                     2);
  }
  constexpr std::size_t kColumn = 13;
  PrintLabelled("recipe", kColumn, row->name);
  PrintLabelled("title", kColumn, row->title);
  PrintLabelled("source", kColumn, row->source);
  if (!row->not_modelled.empty()) PrintLabelled("not modelled", kColumn, row->not_modelled);
  PrintText("\n");
  PrintOperands(resolved, "");
}

void Run(const RecipesOptions& options) {
  if (!options.name.empty()) return PrintRow(options.name, options.json);
  if (!options.json) return PrintRecipes();
  Json rows = Json::array();
  for (const Row& row : Rows()) {
    rows.push_back({{"name", row.name},
                    {"title", row.title},
                    {"source", row.source},
                    {"not_modelled", row.not_modelled}});
  }
  PrintJson(Json{{"recipes", std::move(rows)}}, 2);
}

}  // namespace

void AddRecipes(CLI::App& app, int* /*exit_code*/) {
  const auto options = std::make_shared<RecipesOptions>();
  CLI::App* command = app.add_subcommand(
      "recipes", "Print the published training recipes that studies may name, or one in full");
  command
      ->add_option("name", options->name,
                   "One recipe: operands, source, parts that are not modelled")
      ->type_name("RECIPE");
  command->add_flag("--json", options->json, "Print JSON; of one recipe with every operand");
  command->footer(
      "Example: the backward pass of Tseng et al.\n"
      "  $ fp4lab recipes mxfp4_tseng | grep grad\n");
  command->callback([options] { Run(*options); });
}

}  // namespace fp4lab::tools
