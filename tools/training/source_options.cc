#include "tools/training/source_options.h"

#include "fp4lab/base/error.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/json.h"
#include "fp4lab/io/near_files.h"

namespace fp4lab::tools {

std::optional<DataConfig> DataOf(const SourceOptions& o) {
  const int ways = (o.text.empty() ? 0 : 1) + (o.tokens.empty() ? 0 : 1) + (o.data.empty() ? 0 : 1);
  if (ways > 1) throw Error("command line", "give one of --text, --tokens and --data");
  if (!o.text.empty()) return ReadDataConfig({{"text", o.text}}, "--text");
  if (!o.tokens.empty()) return ReadDataConfig({{"tokens", o.tokens}}, "--tokens");
  if (!o.data.empty()) return ReadDataConfig({{"source", o.data}}, "--data");
  return std::nullopt;
}

Recipe RecipeFrom(const std::string& text) {
  const std::string where = "--recipe " + text;
  if (text.starts_with('{')) return ReadRecipe(ParseJson(text, where), where);
  if (Exists(text)) return ReadRecipe(ReadJsonFile(text), text);
  if (text.ends_with(".json")) throw Error(text, "is not there" + NearFilesText(text));
  return ReadRecipe(text, where);
}

}  // namespace fp4lab::tools
