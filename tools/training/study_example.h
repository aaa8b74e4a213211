// The example study of the help texts of `fp4lab study`.
#pragma once

#include <string>

namespace fp4lab::tools {

// The footer of a help text: commands that write a small study, then `rest`.
inline std::string StudyExample(const std::string& rest) {
  return R"help(Example:
  $ echo '{"name": "tiny", "data": {"source": "synthetic"},' > tiny.json
  $ echo '"arms": {"bf16": {"recipe": "bf16"}, "nvfp4": {"recipe": "te_nvfp4"}},' >> tiny.json
  $ echo '"batch": 2, "evaluation": {"tokens": 4096}, "seeds": [1, 2], "budgets": [8192]}' >> tiny.json
)help" + rest;
}

}  // namespace fp4lab::tools
