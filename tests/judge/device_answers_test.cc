// explain on bytes that a real GPU wrote: a kernel built with -use_fast_math, run on an H200
// (tests/golden/README.md).
#include <algorithm>
#include <string>

#include "fp4lab/judge/explain/explain.h"
#include "tests/support/catch.h"
#include "tests/support/device_answer.h"

namespace fp4lab {
namespace {

TEST_CASE("explain names approximate division where an H200 divided so", "[judge][golden]") {
  Kernel kernel;
  kernel.dialect = *FindDialect("nvfp4.te");
  std::size_t only_the_set = 0;
  for (const char* name : kFastMathCases) {
    CAPTURE(name);
    const DeviceAnswer answer = ReadFastMathAnswer(name);
    const Explanation e = Explain(kernel, answer.x.View(), answer.bytes);
    REQUIRE_FALSE(e.equal);
    CHECK(std::any_of(e.causes.sets.begin(), e.causes.sets.end(),
                      [](const Dialect* d) { return d->name == "nvfp4.te.use-fast-math"; }));
    CHECK(Text(kernel, e).find("nvfp4.te.use-fast-math") != std::string::npos);
    CHECK(e.causes.certainty != Certainty::kForced);  // approximate division follows no formula
    CHECK(e.causes.evidence < 16);
    only_the_set += e.causes.exact.empty();  // on the others another formula gives the same bytes
  }
  CHECK(only_the_set >= 1);
}

TEST_CASE("A plain random tensor does not notice -use_fast_math", "[judge][golden]") {
  const DeviceAnswer answer = ReadFastMathAnswer(kFastMathRandn);
  Kernel kernel;
  kernel.dialect = *FindDialect("nvfp4.te");
  CHECK(Explain(kernel, answer.x.View(), answer.bytes).equal);
}

}  // namespace
}  // namespace fp4lab
