#include "fp4lab/checkpoint/config.h"

#include <algorithm>
#include <cstdint>

#include "fp4lab/io/file.h"

namespace fp4lab {
namespace {

const Json* Member(const Json& json, const char* key) {
  if (!json.is_object()) return nullptr;
  const auto found = json.find(key);
  return found == json.end() ? nullptr : &*found;
}
std::string TextIn(const Json& json, const char* key) {
  const Json* member = Member(json, key);
  return member != nullptr && member->is_string() ? member->get<std::string>() : "";
}
// A size; 0 for anything else.
int SizeIn(const Json& json) {
  constexpr std::uint64_t kMost = 1 << 20;
  if (!json.is_number_unsigned() || json.get<std::uint64_t>() > kMost) return 0;
  return static_cast<int>(json.get<std::uint64_t>());
}
int SizeIn(const Json& json, const char* key) {
  const Json* member = Member(json, key);
  return member == nullptr ? 0 : SizeIn(*member);
}

void ReadExcluded(const Json& json, std::vector<std::string>* excluded) {
  for (const char* key : {"exclude_modules", "ignore", "exclude", "modules_to_not_convert"}) {
    const Json* list = Member(json, key);
    if (list == nullptr || !list->is_array()) continue;
    for (const Json& name : *list) {
      if (name.is_string()) excluded->push_back(name.get<std::string>());
    }
  }
}

// compressed-tensors: the first group that quantizes weights.
void ReadGroups(const Json& groups, QuantizationConfig* config) {
  if (!groups.is_object()) return;
  for (const auto& [name, group] : groups.items()) {
    const Json* weights = Member(group, "weights");
    if (weights == nullptr || !weights->is_object()) continue;
    if (config->group_size == 0) config->group_size = SizeIn(*weights, "group_size");
    const Json* block = Member(*weights, "block_structure");
    if (block != nullptr && block->is_array() && block->size() == 2) {
      config->block_rows = SizeIn((*block)[0]);
      config->block_cols = SizeIn((*block)[1]);
    }
    const Json* input = Member(group, "input_activations");
    const Json* dynamic = input == nullptr ? nullptr : Member(*input, "dynamic");
    const bool is_static = dynamic != nullptr && (dynamic->is_string() || *dynamic == false);
    config->input_scales = config->input_scales.value_or(false) || is_static;
  }
}

bool Matches(std::string_view pattern, std::string_view text) {  // '*' is any text
  std::size_t p = 0, t = 0, star = std::string_view::npos, back = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      back = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++back;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace

QuantizationConfig ParseQuantizationConfig(const Json& json, const std::string& file) {
  QuantizationConfig config;
  config.file = file;
  config.method = TextIn(json, "quant_method");
  for (const char* key : {"quant_algo", "format", "fmt", "mode", "checkpoint_format"}) {
    if (config.algorithm.empty()) config.algorithm = TextIn(json, key);
  }
  config.group_size = SizeIn(json, "group_size");
  const Json* block = Member(json, "weight_block_size");
  if (block != nullptr && block->is_array() && block->size() == 2) {
    config.block_rows = SizeIn((*block)[0]);
    config.block_cols = SizeIn((*block)[1]);
  }
  const std::string scheme = TextIn(json, "activation_scheme");
  if (!scheme.empty()) config.input_scales = scheme == "static";
  if (const Json* groups = Member(json, "config_groups")) ReadGroups(*groups, &config);
  const std::string& algorithm = config.algorithm;
  if (!config.input_scales && (algorithm == "NVFP4" || algorithm == "FP8")) {
    config.input_scales = true;  // ModelOpt
  }
  if (algorithm.starts_with("W4A16")) config.input_scales = false;
  ReadExcluded(json, &config.excluded);
  return config;
}

QuantizationConfig ReadQuantizationConfig(const std::filesystem::path& folder) {
  QuantizationConfig config;
  const std::filesystem::path main = folder / "config.json";
  if (Exists(main)) {
    const Json json = ReadJsonFile(main);
    for (const char* key : {"quantization_config", "quantization"}) {
      const Json* member = Member(json, key);
      if (member == nullptr || !member->is_object()) continue;
      config = ParseQuantizationConfig(*member, "config.json");
      if (config.method.empty() && std::string_view(key) == "quantization") config.method = "mlx";
      break;
    }
  }
  const std::filesystem::path modelopt = folder / "hf_quant_config.json";
  if (Exists(modelopt)) {
    const Json json = ReadJsonFile(modelopt);
    if (const Json* member = Member(json, "quantization")) {
      config = ParseQuantizationConfig(*member, "hf_quant_config.json");
      config.method = "modelopt";
    }
  }
  return config;
}

bool IsExcluded(const QuantizationConfig& config, std::string_view module) {
  return std::any_of(config.excluded.begin(), config.excluded.end(), [&](const std::string& p) {
    if (p.empty() || p.starts_with("re:")) return false;
    if (p.find('*') != std::string::npos) return Matches(p, module);
    const std::string inside = "." + std::string(module) + ".";
    return inside.find("." + p + ".") != std::string::npos;
  });
}

}  // namespace fp4lab
