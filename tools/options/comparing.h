// The exit codes of commands that compare, as those of cmp: 0 equal, 1 different, 2 an error.
#pragma once

#include <exception>
#include <new>

#include "tools/options/print.h"

namespace fp4lab::tools {

// Runs `compare`, which returns whether all is equal, and sets *exit_code. An exception is printed
// as main.cc prints it; std::bad_alloc is thrown again.
template <class Compare>
void Comparing(int* exit_code, Compare&& compare) {
  try {
    *exit_code = compare() ? 0 : 1;
    FlushStandardOutput();
  } catch (const std::bad_alloc&) {
    *exit_code = 2;
    throw;  // main.cc reports it with the command's name
  } catch (const std::exception& e) {
    PrintError(TextOf(e));
    *exit_code = 2;
  }
}

}  // namespace fp4lab::tools
