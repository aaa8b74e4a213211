#include "fp4lab/recipe/recipe_blocks.h"

#include <charconv>
#include <cmath>
#include <string>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"

namespace fp4lab {

void ReadBlocks(JsonObject* o, std::string_view key, int* blocks, double* percent,
                std::string_view what) {
  const IeeeArithmetic ieee;
  const Json* json = o->Member(key);
  if (json == nullptr) return;
  *blocks = 0;
  *percent = 0.0;
  if (!json->is_string()) {
    o->Read(key, blocks);
    if (*blocks < 0) throw Error(o->Where(key), "must not be negative");
    return;
  }
  const std::string text = json->get<std::string>();
  const char* const end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data(), end, *percent);
  const bool all = problem == std::errc() && rest + 1 == end && *rest == '%';
  if (!all || !(*percent >= 0.0 && *percent <= 100.0)) {
    throw Error(o->Where(key), "must be a number of " + std::string(what) +
                                   ", or a share of them such as \"15%\"");
  }
}

Json BlocksJson(int blocks, double percent) {
  const IeeeArithmetic ieee;
  if (percent == 0.0) return blocks;
  std::string text = Json(percent).dump();
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text + "%";
}

int KeptBlocks(int blocks, double percent, int all) {
  const IeeeArithmetic ieee;
  if (percent == 0.0) return blocks;
  return static_cast<int>(std::ceil(percent / 100.0 * all - 1e-9));
}

}  // namespace fp4lab
