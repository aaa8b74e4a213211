#include "fp4lab/base/text/suggest.h"

#include <array>

#include "tests/support/catch.h"

namespace fp4lab {
namespace {

using Names = std::vector<std::string>;

TEST_CASE("Names a few edits away are suggested, the nearest first", "[base]") {
  const Names known = {"layers", "heads", "lairs", "sayers"};
  CHECK(NearNames("layrs", known) == Names{"lairs", "layers", "sayers"});  // 1, 1, 2 edits
  CHECK(NearNames("layesr", known) == Names{"layers", "sayers"});  // one edit swaps neighbours
  CHECK(NearNames("heasd", known) == Names{"heads"});
  CHECK(NearNames("heads", known) == Names{"heads"});
}

TEST_CASE("Suggestions ignore capitals and separators", "[base]") {
  const Names known = {"nvfp4.te", "te_nvfp4", "mxfp4.rceil"};
  CHECK(NearNames("NVFP4_TE", known) == Names{"nvfp4.te"});
  CHECK(NearNames("te-nvfp4", known) == Names{"te_nvfp4"});
}

TEST_CASE("If no name is a few edits away, names that contain the given one are suggested",
          "[base]") {
  const Names known = {"element-ties", "scale-ties", "tails", "randn"};
  CHECK(NearNames("ties", known) == Names{"scale-ties", "element-ties"});
  CHECK(NearNames("nd", known).empty());  // two letters are too few to match
}

TEST_CASE("Suggestions find names whose first part was left out", "[base]") {
  const Names known = {"nvfp4.torchao", "mxfp4.rceil", "mxfp8_e4m3.rceil", "nvfp4.te"};
  CHECK(NearNames("torchoa", known) == Names{"nvfp4.torchao"});
  CHECK(NearNames("rceil", known) == Names{"mxfp4.rceil", "mxfp8_e4m3.rceil"});
}

TEST_CASE("At most three names are suggested, each once; an unrelated word gets none", "[base]") {
  const Names known = {"abcd1", "abcd2", "abcd3", "abcd4", "abcd1"};
  CHECK(NearNames("abcd", known) == Names{"abcd1", "abcd2", "abcd3"});
  CHECK(NearNames("zebra", known).empty());
  CHECK(NearNames("", known).empty());
  CHECK(NearNames("abcd", {}).empty());
}

TEST_CASE("DidYouMean asks a question or lists the known names", "[base]") {
  const Names known = {"fp32", "bf16", "te_nvfp4"};
  CHECK(DidYouMean("fp23", known) == "did you mean \"fp32\"?");
  CHECK(DidYouMean("abcd", known) == "one of: fp32 bf16 te_nvfp4");
  CHECK(DidYouMean("abcd", known, "see --help") == "see --help");
  CHECK(DidYouMean("a1", Names{"a1", "A1"}) == "did you mean \"A1\" or \"a1\"?");
  CHECK(DidYouMean("aaaa", Names{"aaab", "aaac", "aaad"}) ==
        "did you mean \"aaab\", \"aaac\" or \"aaad\"?");
}

TEST_CASE("NamesOf lists the name of each row of a table", "[base]") {
  struct Row {
    std::string_view name;
  };
  CHECK(NamesOf(std::array{Row{"one"}, Row{"two"}}) == Names{"one", "two"});
}

}  // namespace
}  // namespace fp4lab
