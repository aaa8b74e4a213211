// explain on bytes that a real GPU wrote: a kernel built with -use_fast_math, run on an H200
// (tests/golden/README.md).
#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>

#include "fp4lab/judge/explain.h"
#include "tests/support/catch.h"
#include "tests/support/golden.h"

namespace fp4lab {
namespace {

struct DeviceAnswer {
  Matrix<float> x;
  StoredMatrix bytes;
};

DeviceAnswer ReadAnswer(const NpzFile& file, const std::string& name) {
  const NpyArray x = file.Read(name + ".x"), codes = file.Read(name + ".codes"),
                 scales = file.Read(name + ".scales"), amax = file.Read(name + ".amax");
  DeviceAnswer answer{Matrix<float>(x.shape.at(0), x.shape.at(1)), {}};
  std::transform(x.As<std::uint32_t>().begin(), x.As<std::uint32_t>().end(),
                 answer.x.values.begin(), [](std::uint32_t u) { return std::bit_cast<float>(u); });
  StoredMatrix& bytes = answer.bytes;
  bytes.rows = answer.x.rows;
  bytes.cols = answer.x.cols;
  bytes.codes.assign(codes.As<std::uint8_t>().begin(), codes.As<std::uint8_t>().end());
  bytes.scales.assign(scales.As<std::uint8_t>().begin(), scales.As<std::uint8_t>().end());
  bytes.level_two = {std::bit_cast<float>(amax.As<std::uint32_t>()[0])};
  return answer;
}

TEST_CASE("explain names approximate division where an H200 divided so", "[judge][golden]") {
  const NpzFile file = OpenGolden("h200_use_fast_math.npz");
  Kernel kernel;
  kernel.dialect = *FindDialect("nvfp4.te");
  std::size_t only_the_set = 0;
  for (const char* name : {"c03", "c07", "c11", "c14", "c17", "c75"}) {
    CAPTURE(name);
    const DeviceAnswer answer = ReadAnswer(file, name);
    const Explanation e = Explain(kernel, answer.x.View(), answer.bytes);
    REQUIRE_FALSE(e.equal);
    CHECK(std::any_of(e.causes.sets.begin(), e.causes.sets.end(),
                      [](const Dialect* d) { return d->name == "nvfp4.te.use-fast-math"; }));
    CHECK(Text(kernel, e).find("nvfp4.te.use-fast-math") != std::string::npos);
    only_the_set += e.causes.exact.empty();  // on the others another formula gives the same bytes
  }
  CHECK(only_the_set >= 2);
}

TEST_CASE("A plain random tensor does not notice -use_fast_math", "[judge][golden]") {
  const DeviceAnswer answer = ReadAnswer(OpenGolden("h200_use_fast_math.npz"), "c90");
  Kernel kernel;
  kernel.dialect = *FindDialect("nvfp4.te");
  CHECK(Explain(kernel, answer.x.View(), answer.bytes).equal);
}

}  // namespace
}  // namespace fp4lab
