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

std::vector<std::string> NamesIn(const ModelConfig& config, int block) {
  std::vector<std::string> names =
      config.pattern.empty()
          ? config.parts
          : config.pattern[static_cast<std::size_t>(block) % config.pattern.size()];
  if (block < config.moe.first_k_dense_replace) {
    std::ranges::replace(names, std::string(kMoe.name), std::string(kMlp.name));
  }
  return names;
}

// Throws Error for first blocks that cannot have "mlp" in place of "moe".
void CheckFirstBlocks(const ModelConfig& config, const std::string& where) {
  const int first = config.moe.first_k_dense_replace;
  const std::string place = where + "/moe/first_k_dense_replace";
  if (first == 0) return;
  if (BlocksWith(config, kMoe) == 0) {
    throw Error(place, std::to_string(first) + " of " + std::to_string(config.layers) +
                           " blocks leaves no block with \"moe\"");
  }
  for (int i = 0; i < first; ++i) PartsIn(NamesIn(config, i), place);
}

// Throws Error for lists of parts that blocks cannot take in turn.
void CheckPattern(const ModelConfig& config, const std::string& where) {
  if (config.pattern.empty()) return;
  const std::size_t period = config.pattern.size();
  if (static_cast<std::size_t>(config.layers) % period != 0) {
    throw Error(where + "/layers", std::to_string(config.layers) + " is not a multiple of the " +
                                       std::to_string(period) + " lists of \"parts\"");
  }
  for (std::size_t i = 0; i < period; ++i) {
    PartsIn(config.pattern[i], where + "/parts/" + std::to_string(i));
  }
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
  CheckPattern(config, where);
  std::vector<const Part*> parts = PartsIn(config.parts, where + "/parts");
  CheckFirstBlocks(config, where);
  const bool dense_first = config.moe.first_k_dense_replace > 0;
  if (dense_first && std::ranges::find(parts, &kMlp) == parts.end()) parts.push_back(&kMlp);
  return parts;
}

std::vector<const Part*> PartsOfBlock(const ModelConfig& config, int block) {
  return PartsIn(NamesIn(config, block), "model/parts");
}

bool HasPart(const ModelConfig& config, int block, const Part& part) {
  const std::vector<std::string> names = NamesIn(config, block);
  return std::ranges::find(names, part.name) != names.end();
}

int BlocksWith(const ModelConfig& config, const Part& part) {
  int count = 0;
  for (int i = 0; i < config.layers; ++i) count += HasPart(config, i, part) ? 1 : 0;
  return count;
}

}  // namespace fp4lab
