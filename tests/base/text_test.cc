#include "fp4lab/base/text/text.h"

#include <array>
#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace fp4lab {
namespace {

TEST_CASE("Joined puts the separator between parts only", "[base]") {
  CHECK(Joined(std::vector<std::string>{}, ", ").empty());
  CHECK(Joined(std::vector<std::string>{"a"}, ", ") == "a");
  CHECK(Joined(std::vector<std::string>{"a", "", "c"}, ", ") == "a, , c");
  constexpr std::array<std::string_view, 2> kViews = {"x", "y"};
  CHECK(Joined(kViews, "|") == "x|y");
}

TEST_CASE("LowerCase changes the letters of ASCII only", "[base]") {
  CHECK(LowerCase("NVFP4_E2M1 [@`{Z") == "nvfp4_e2m1 [@`{z");
  CHECK(LowerCase("\xC3\x84") == "\xC3\x84");  // a capital letter of UTF-8
}

}  // namespace
}  // namespace fp4lab
