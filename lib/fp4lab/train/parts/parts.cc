#include "fp4lab/train/parts/parts.h"

#include <algorithm>

#include "fp4lab/base/error.h"
#include "fp4lab/base/text/suggest.h"

namespace fp4lab {

// Each row stands in the file of its name.
extern const Part kAttention, kGla, kMla, kMlp, kMoe;

namespace {

constexpr const Part* kParts[] = {&kAttention, &kGla, &kMla, &kMlp, &kMoe};

}  // namespace

std::span<const Part* const> Parts() { return kParts; }

const Part& PartNamed(std::string_view name, const std::string& where) {
  std::vector<std::string> names;
  for (const Part* part : kParts) {
    if (part->name == name) return *part;
    names.emplace_back(part->name);
  }
  throw Error(where, "unknown part \"" + std::string(name) + "\"; " + DidYouMean(name, names));
}

std::vector<const Part*> PartsOf(const ModelConfig& config, const std::string& where) {
  if (config.parts.empty()) throw Error(where + "/parts", "a block has at least one part");
  std::vector<const Part*> parts;
  for (const std::string& name : config.parts) {
    const std::string here = where + "/parts/" + std::to_string(parts.size());
    const Part* const part = &PartNamed(name, here);
    if (std::ranges::find(parts, part) != parts.end()) {
      throw Error(here, "\"" + name + "\" stands twice; a part stands once in a block");
    }
    parts.push_back(part);
  }
  return parts;
}

}  // namespace fp4lab
