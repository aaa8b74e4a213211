#include "fp4lab/base/text/printable.h"

#include <string>

#include "fp4lab/base/error.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

TEST_CASE("Letters of all scripts are printed as they are", "[printable]") {
  for (const std::string text :
       {"", "blocks.0.mlp.up", "\xC3\xA4 \xE2\x82\xAC \xE4\xB8\xAD \xF0\x9F\x98\x80",
        "C:\\x.npy"}) {
    CHECK(Printable(text) == text);
    CHECK(PrintableLines(text) == text);
  }
}

TEST_CASE("Terminal control characters are escaped", "[printable]") {
  CHECK(Printable("a\x1b[2Jb") == "a\\u001b[2Jb");
  CHECK(Printable("a\nb\tc\rd") == "a\\nb\\tc\\u000dd");
  CHECK(Printable("a\x7f\xC2\x9B") == "a\\u007f\\u009b");  // C1 control: a CSI of one character
  CHECK(Printable("\xE2\x80\xAE"
                  "lpn.x") == "\\u202elpn.x");  // reverses the text that follows
  CHECK(Printable(std::string("a\0b", 3)) == "a\\u0000b");
  CHECK(PrintableLines("a\nb\x1b\n") == "a\nb\\u001b\n");
}

TEST_CASE("Bytes that are not UTF-8 are escaped one by one", "[printable]") {
  CHECK(Printable("\xFFx") == "\\xffx");
  CHECK(Printable("\xC3") == "\\xc3");                    // cut short
  CHECK(Printable("\xC0\xAF") == "\\xc0\\xaf");           // overlong
  CHECK(Printable("\xED\xA0\x80") == "\\xed\\xa0\\x80");  // a surrogate
  CHECK(Printable("\xF4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");
}

TEST_CASE("An error is one printable line whatever the names in it", "[printable]") {
  const Error error("file\n.npy#\x1b]0;owned\x07", "has no tensor a\r\nb");
  const std::string line = "file\\n.npy#\\u001b]0;owned\\u0007: has no tensor a\\u000d\\nb";
  CHECK(error.what() == line);
  CHECK(Error("run", error.what()).what() == "run: " + line);  // not escaped twice
}

}  // namespace
}  // namespace fp4lab
