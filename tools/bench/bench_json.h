// The heading of `fp4lab bench` and its JSON form.
#pragma once

#include <string>
#include <vector>

#include "fp4lab/io/json.h"
#include "fp4lab/measure/table.h"
#include "tools/bench/bench_rows.h"

namespace fp4lab::tools {

struct BenchHeading {
  std::vector<std::string> lines;
  Json json;
};

// Describes the run: machine, compiler, Highway, SIMD targets, peers, date.
BenchHeading DescribeRun(const BenchContext& context, const std::vector<std::string>& columns);

// {"machine": {...}, "rows": [{"id", "topic", "what", "unit", "against", "target", "met",
//  "columns": {"avx2": {"value": {"median", "low", "high", "count"}, "reference", "ratio",
//  "limit", "limit_of", "against"} or {"missing"}}}]}; a cell has those of its keys that it has.
Json TableJson(const BenchHeading& heading, const measure::Table& table);

}  // namespace fp4lab::tools
