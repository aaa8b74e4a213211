// Fuzzes the reader of cases, which `fp4lab cases answer` runs: each case that is whole gets an
// answer.
#include <sstream>
#include <string>

#include "fp4lab/judge/cases/case_stream.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fp4lab;
  for (const char* dialect : {"nvfp4.te", "nvfp4.te.stochastic", "mxfp4.rceil.2d"}) {
    std::istringstream in(std::string(reinterpret_cast<const char*>(data), size));
    std::ostringstream out;
    OneLineOrNothing(
        [&] { AnswerCases({.dialect = *FindDialect(dialect), .layout = {}}, {}, in, "x", out); });
  }
  return 0;
}
