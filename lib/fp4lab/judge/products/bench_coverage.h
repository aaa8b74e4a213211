// Coverage of a bench: which directed cases catch which wrong kernels, and whether the answers name
// them. A bench has cases() with names, wrong() with names and sentences, Answer(w, c), IsRight(c,
// answer) and Name(answers).
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/matrix.h"
#include "fp4lab/io/json.h"

namespace fp4lab {

struct BenchCoverage {
  struct Row {
    std::size_t wrong = 0;
    std::vector<std::size_t> caught_by = {};  // indices of cases
    std::vector<std::size_t> named = {};      // wrong kernels that give the same answers
    bool IsNamed() const { return named.size() == 1 && named[0] == wrong; }
  };
  std::vector<Row> rows = {};
  std::size_t caught = 0, named = 0;
};

template <class Bench>
BenchCoverage MeasureBench(const Bench& bench) {
  const IeeeArithmetic ieee;
  BenchCoverage coverage;
  for (std::size_t w = 0; w < bench.wrong().size(); ++w) {
    BenchCoverage::Row row{.wrong = w};
    std::vector<std::optional<Matrix<float>>> answers;
    for (std::size_t c = 0; c < bench.cases().size(); ++c) {
      answers.emplace_back(bench.Answer(w, c));
      if (!bench.IsRight(c, *answers.back())) row.caught_by.push_back(c);
    }
    row.named = bench.Name(answers);
    coverage.caught += row.caught_by.empty() ? 0 : 1;
    coverage.named += row.IsNamed() ? 1 : 0;
    coverage.rows.push_back(std::move(row));
  }
  return coverage;
}

template <class Bench>
std::string CoverageText(const Bench& bench, const BenchCoverage& coverage) {
  std::size_t width = 0;
  for (const auto& w : bench.wrong()) width = std::max(width, w.name.size());
  std::string text;
  for (const BenchCoverage::Row& row : coverage.rows) {
    std::string name(bench.wrong()[row.wrong].name);
    name.resize(width, ' ');
    text += name + "  " + std::to_string(row.caught_by.size()) + " of " +
            std::to_string(bench.cases().size()) + " cases";
    if (row.caught_by.empty()) {
      text += ": NOT CAUGHT\n";
      continue;
    }
    text += ", first " + std::string(bench.cases()[row.caught_by[0]].name);
    if (row.IsNamed()) {
      text += "; named\n";
      continue;
    }
    text += "; NOT NAMED:";
    for (const std::size_t w : row.named) text += " " + std::string(bench.wrong()[w].name);
    text += "\n";
  }
  return text + "The cases catch " + std::to_string(coverage.caught) + " and name " +
         std::to_string(coverage.named) + " of " + std::to_string(coverage.rows.size()) +
         " wrong kernels\n";
}

template <class Bench>
Json CoverageJson(const Bench& bench, const BenchCoverage& coverage) {
  Json mutants = Json::array();
  for (const BenchCoverage::Row& row : coverage.rows) {
    const auto& wrong = bench.wrong()[row.wrong];
    Json caught = Json::array();
    for (const std::size_t c : row.caught_by) caught.push_back(bench.cases()[c].name);
    mutants.push_back({{"name", wrong.name},
                       {"what", wrong.what},
                       {"caught_by", std::move(caught)},
                       {"named", row.IsNamed()}});
  }
  return {{"mutants", std::move(mutants)}, {"caught", coverage.caught}, {"named", coverage.named}};
}

}  // namespace fp4lab
