#include "tools/options/given_amax.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "fp4lab/base/text/text.h"
#include "tools/options/print.h"
#include "tools/options/usage.h"

namespace fp4lab::tools {
namespace {

// The largest magnitude of rows [from, to); NaN is passed over.
float AmaxOfRows(MatrixView<const float> x, std::size_t from, std::size_t to) {
  float amax = 0.0f;
  for (std::size_t r = from; r < to; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) amax = std::fmax(amax, std::abs(x(r, c)));
  }
  return amax;
}

}  // namespace

void CheckGivenAmax(const std::vector<float>& amax) {
  for (const float given : amax) {
    if (given >= 0.0f && std::isfinite(given)) continue;
    RefuseUsage("--amax " + ShortestText(given),
                "is not the largest magnitude of a tensor; give a finite number of 0 or more");
  }
}

void CheckGivenAmax(const std::vector<float>& amax, const Dialect& dialect,
                    MatrixView<const float> x) {
  if (amax.empty()) return;
  const std::size_t numbers = dialect.row_scaled ? x.rows : 1;
  if (!HasTensorScale(dialect) || amax.size() != numbers) {
    RefuseUsage("--amax", std::to_string(amax.size()) + " numbers; " + std::string(dialect.name) +
                              " takes " +
                              (HasTensorScale(dialect) ? std::to_string(numbers) : "none"));
  }
  CheckGivenAmax(amax);
  std::size_t small = 0;
  std::string first;
  for (std::size_t i = 0; i < numbers; ++i) {
    const float own = dialect.row_scaled ? AmaxOfRows(x, i, i + 1) : AmaxOfRows(x, 0, x.rows);
    if (amax[i] >= own) continue;
    const std::string of = dialect.row_scaled ? "row " + std::to_string(i) : "the matrix";
    if (amax[i] == 0.0f) {
      RefuseUsage("--amax 0", "is for a matrix of zeros; the largest magnitude of " + of + " is " +
                                  ShortestText(own));
    }
    if (small++ == 0) {
      first = ShortestText(amax[i]) + " is smaller than the largest magnitude of " + of + ", " +
              ShortestText(own);
    }
  }
  if (small == 0) return;
  if (small > 1) first += " (and " + std::to_string(small - 1) + " rows more)";
  Note("warning: --amax %s: scales or elements beyond it saturate\n", first.c_str());
}

}  // namespace fp4lab::tools
