// How library code reports failures: Error for bad input, Expects for a bug in the caller.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "fp4lab/base/text/printable.h"

namespace fp4lab {

// Bad input: a file, a JSON value, a command line. what() is one printable line, "where: problem
// and remedy"; names that come from a file are escaped. `where` is a path, a JSON pointer
// ("study.json#/arms/0/recipe") or an option.
class Error : public std::runtime_error {
 public:
  Error(std::string_view where, std::string_view problem)
      : std::runtime_error(Printable(where) + ": " + Printable(problem)) {}
};

// Checks a precondition of a public function. A violation is a bug in the caller, so Expects throws
// std::logic_error with the caller's source line (the builtins are those behind
// std::source_location, which Clang 14 lacks). Call Expects before any parallel region.
inline void Expects(bool condition, std::string_view what, const char* file = __builtin_FILE(),
                    int line = __builtin_LINE()) {
  if (condition) return;
  throw std::logic_error(std::string(file) + ":" + std::to_string(line) +
                         ": precondition failed: " + std::string(what));
}

}  // namespace fp4lab
