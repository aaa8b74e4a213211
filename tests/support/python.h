// The Python interpreter for tests.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include "fp4lab/base/error.h"
#include "fp4lab/io/process.h"

namespace fp4lab {

// An interpreter that has NumPy: FP4LAB_PYTHON, or python3. If the interpreter lacks NumPy, prints
// the line by which ctest counts the test as skipped, and returns "".
inline std::string PythonWithNumpy() {
  const char* named = std::getenv("FP4LAB_PYTHON");
  const std::string python = named == nullptr || *named == '\0' ? "python3" : named;
  try {
    if (RunProcess({python, "-c", "import numpy"}).exit_code == 0) return python;
  } catch (const Error&) {  // no such program
  }
  std::printf("SKIPPED: needs python3 with NumPy (FP4LAB_PYTHON names another interpreter)\n");
  return "";
}

}  // namespace fp4lab
