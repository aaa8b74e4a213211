// What numbers on the command line may be: whole numbers and decimals, read strictly.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>

namespace fp4lab::tools {

// option->transform(WholeNumber(0, 9)): digits only (and a sign where `least` is negative), between
// the two. CLI11 by itself wraps what is too large for the type, or negative, and takes 010 for 8.
CLI::Validator WholeNumber(std::int64_t least, std::uint64_t most);
// Any value of the type of a seed.
inline CLI::Validator AnySeed() {
  return WholeNumber(0, std::numeric_limits<std::uint64_t>::max());
}
// As many threads as fp4lab uses: from 1 to kMostThreads (base/parallel.h).
CLI::Validator ThreadCount();
// option->check(Decimal(0, 1)): a number between the two, in any notation that C knows but NaN.
CLI::Validator Decimal(double least, double most);

}  // namespace fp4lab::tools
