// A table of measurements: rows with a reference, a ratio and a target, in one column for each SIMD
// target; as text and as Markdown.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fp4lab/measure/summary.h"

namespace fp4lab::measure {

enum class Comparison { kNone, kAtLeast, kAtMost };

// The target of a row's ratio, or of its value if the row has no ratio.
struct Target {
  Comparison comparison = Comparison::kNone;
  double bound = 0;
};

// One row under one SIMD target.
struct Cell {
  std::string missing = {};  // why nothing was measured, and the remedy; empty: measured
  Summary value = {};        // in the row's unit
  std::optional<Summary> reference = {};  // value of the reference
  std::optional<Summary> ratio = {};      // value to reference
  // The ratio, or the value of a row without one, that work has which only does what this row's
  // must do at least: it was timed in turns with the row's own.
  std::optional<Summary> limit = {};
  std::string limit_of = {};  // the name of the limit's work
  std::string against = {};   // the name of this cell's reference, if the row has several
};

struct Row {
  std::string id, topic, what, unit;
  std::string against;  // the name of the reference
  Target target;
  std::vector<Cell> cells;  // one a column
};

struct Table {
  std::vector<std::string> heading;  // lines: machine, compiler, ...
  std::vector<std::string> columns;  // SIMD targets; Row::target applies to the first column
  std::vector<Row> rows;
};

// Whether the row's first cell meets the row's target; nullopt without a target or a measurement.
std::optional<bool> IsMet(const Row& row);
// Whether the limit of the row's first cell misses the row's target, too: no kernel that does the
// limit's work meets it here.
bool IsOutOfReach(const Row& row);

std::string TargetText(const Target& target);  // ">= 0.75", "<= 5.5", "-"

// Three significant digits, no exponent: "0.774", "5.50", "183", "71300".
std::string NumberText(double x);

std::string AsText(const Table& table);
std::string AsMarkdown(const Table& table);

}  // namespace fp4lab::measure
