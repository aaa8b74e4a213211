#include "fp4lab/train/parts/parts.h"

#include <algorithm>

#include "fp4lab/base/error.h"
#include "fp4lab/base/text/suggest.h"

namespace fp4lab {

// Each row stands in the file of its name.
extern const Part kAttention, kGla, kMla, kMlp, kMoe;

namespace {

constexpr const Part* kParts[] = {&kAttention, &kGla, &kMla, &kMlp, &kMoe};

// The parts of a list that stands at `where`.
std::vector<const Part*> PartsIn(const std::vector<std::string>& names, const std::string& where) {
  if (names.empty()) throw Error(where, "a block has at least one part");
  std::vector<const Part*> parts;
  for (const std::string& name : names) {
    const std::string here = where + "/" + std::to_string(parts.size());
    const Part* const part = &PartNamed(name, here);
    if (std::ranges::find(parts, part) != parts.end()) {
      throw Error(here, "\"" + name + "\" stands twice; a part stands once in a block");
    }
    parts.push_back(part);
  }
  return parts;
}

const std::vector<std::string>& NamesIn(const ModelConfig& config, int block) {
  if (config.pattern.empty()) return config.parts;
  return config.pattern[static_cast<std::size_t>(block) % config.pattern.size()];
}

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
  if (config.pattern.empty()) return PartsIn(config.parts, where + "/parts");
  const int period = static_cast<int>(config.pattern.size());
  if (config.layers % period != 0) {
    throw Error(where + "/layers", std::to_string(config.layers) + " is not a multiple of the " +
                                       std::to_string(period) + " lists of \"parts\"");
  }
  for (int i = 0; i < period; ++i) {
    PartsIn(NamesIn(config, i), where + "/parts/" + std::to_string(i));
  }
  return PartsIn(config.parts, where + "/parts");
}

std::vector<const Part*> PartsOfBlock(const ModelConfig& config, int block) {
  return PartsIn(NamesIn(config, block), "model/parts");
}

bool HasPart(const ModelConfig& config, int block, const Part& part) {
  const std::vector<std::string>& names = NamesIn(config, block);
  return std::ranges::find(names, part.name) != names.end();
}

int BlocksWith(const ModelConfig& config, const Part& part) {
  int count = 0;
  for (int i = 0; i < config.layers; ++i) count += HasPart(config, i, part) ? 1 : 0;
  return count;
}

}  // namespace fp4lab
