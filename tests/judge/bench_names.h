// Look-ups in the benches of directed products, grouped products and attention, for their tests.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "tests/support/catch.h"

namespace fp4lab {

// The index of the bench's case of a name.
template <class Bench>
std::size_t CaseAt(const Bench& bench, std::string_view name) {
  const auto& cases = bench.cases();
  const auto at =
      std::find_if(cases.begin(), cases.end(), [&](const auto& c) { return c.name == name; });
  REQUIRE(at != cases.end());
  return static_cast<std::size_t>(at - cases.begin());
}

// The wrong kernels that give these answers to all cases, by name.
template <class Bench>
std::vector<std::string> NamesOf(const Bench& bench, const std::vector<Matrix<float>>& answers) {
  const std::vector<std::optional<Matrix<float>>> all(answers.begin(), answers.end());
  std::vector<std::string> names;
  for (const std::size_t w : bench.Name(all)) names.emplace_back(bench.wrong()[w].name);
  return names;
}

}  // namespace fp4lab
