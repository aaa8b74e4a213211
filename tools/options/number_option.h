// Strict checks of numbers and of words from a list on the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace fp4lab::tools {

// option->transform(WholeNumber(least, most)) accepts a whole number in [least, most]: digits only,
// and a sign if `least` is negative. CLI11 alone wraps numbers that do not fit the type, and reads
// 010 as 8.
CLI::Validator WholeNumber(std::int64_t least, std::uint64_t most);
// Any seed: a whole number of 64 bits.
inline CLI::Validator AnySeed() {
  return WholeNumber(0, std::numeric_limits<std::uint64_t>::max());
}
// A number of threads, from 1 to kMostThreads (base/parallel.h).
CLI::Validator ThreadCount();
// option->check(Decimal(least, most)) accepts a number in [least, most] in any notation of strtod,
// but no NaN.
CLI::Validator Decimal(double least, double most);

// option->check(OneOf({"gpu", "cpu"})) accepts one of the words, and suggests the near ones
// otherwise.
CLI::Validator OneOf(std::vector<std::string> words);

}  // namespace fp4lab::tools
