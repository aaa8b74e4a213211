// The quantization that the configuration of a checkpoint states.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/io/json.h"

namespace fp4lab {

struct QuantizationConfig {
  std::string file;       // "config.json"; empty: there is none
  std::string method;     // "modelopt", "compressed-tensors", "fp8", "mxfp4", "quark", "mlx" ...
  std::string algorithm;  // "NVFP4", "nvfp4-pack-quantized", "e4m3" ...; may be empty
  int group_size = 0;     // 0: not stated
  int block_rows = 0, block_cols = 0;      // weight_block_size
  std::optional<bool> input_scales = {};   // whether activations have a stored scale
  std::vector<std::string> excluded = {};  // patterns of modules that are not quantized
};

// Reads "quantization_config" or "quantization" of config.json, and hf_quant_config.json, in a
// folder. Throws Error for a file that is no JSON; keys that are not known are ignored.
QuantizationConfig ReadQuantizationConfig(const std::filesystem::path& folder);
// The same from the parsed object; `file` is its name.
QuantizationConfig ParseQuantizationConfig(const Json& json, const std::string& file);

// Whether a module is excluded: a pattern is its name, the beginning of it, a part of it in dots,
// or has stars. Patterns with "re:" are regular expressions and match nothing here.
bool IsExcluded(const QuantizationConfig& config, std::string_view module);

}  // namespace fp4lab
