// Exit codes of the commands that compare, as cmp's: 0 equal, 1 different, 2 an error.
#pragma once

#include <exception>
#include <new>

#include "tools/print.h"

namespace fp4lab::tools {

// Runs `compare`, which returns whether all is equal. An error is printed as main.cc prints it.
template <class Compare>
void Comparing(int* exit_code, Compare&& compare) {
  try {
    *exit_code = compare() ? 0 : 1;
    FlushStandardOutput();
  } catch (const std::bad_alloc&) {
    *exit_code = 2;
    throw;  // main.cc knows which command it was
  } catch (const std::exception& e) {
    PrintError(TextOf(e));
    *exit_code = 2;
  }
}

}  // namespace fp4lab::tools
