// Fuzzes the reader of the answers that a kernel sends back through the pipe.
#include <sstream>
#include <string>

#include "fp4lab/judge/cases/case_stream.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fp4lab;
  std::istringstream in(std::string(reinterpret_cast<const char*>(data), size));
  OneLineOrNothing([&] {
    AnswerStream answers(in, "x");
    while (const std::optional<CaseAnswer> answer = answers.Next()) {
      if (answer->codes.size() + answer->scales.size() + 4 * answer->tensor_scale.size() > size) {
        std::abort();
      }
    }
  });
  return 0;
}
