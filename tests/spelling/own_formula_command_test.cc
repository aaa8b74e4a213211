// A formula of the user's in every command that takes --dialect.
#include <string>

#include "fp4lab/exchange/tables_json.h"
#include "fp4lab/io/json.h"
#include "fp4lab/spelling/spelled_dialect.h"
#include "tests/support/catch.h"
#include "tests/support/command_folder.h"
#include "tests/support/program.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

constexpr const char* kUp = R"({"base": "nvfp4.te", "scale_encoding": "up"})";
constexpr const char* kUpName = R"({"base":"nvfp4.te","scale_encoding":"up"})";

class OwnFormula {
 public:
  OwnFormula() {
    std::string numbers;
    for (int i = 0; i < 32 * 128; ++i) {  // BF16: small, ordinary and large, of both signs
      const auto bits = static_cast<std::uint16_t>(0x3E80 + i * 97 % 0x200 + (i % 2) * 0x8000);
      numbers += static_cast<char>(bits & 0xFF);
      numbers += static_cast<char>(bits >> 8);
    }
    x = folder.File("x.bf16", numbers);
    up = folder.File("up.json", kUp);
  }
  Answer Run(const std::vector<std::string>& arguments) const { return folder.Run(arguments); }
  Answer Quantize(const std::string& dialect, const std::string& out) const {
    return Run({"quantize", x, "--shape", "32x128", "--dtype", "bf16", "--dialect", dialect,
                "--out", folder.Path(out)});
  }
  std::vector<std::string> Judged(const std::string& command, const std::string& answer,
                                  const std::vector<std::string>& more) const {
    std::vector<std::string> all{command,   "--input", x,          "--shape",          "32x128",
                                 "--dtype", "bf16",    "--stored", folder.Path(answer)};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  CommandFolder folder;
  std::string x, up;
};

TEST_CASE("A row that a file spells out gives the row's file", "[spelling]") {
  const OwnFormula own;
  const std::string scratch = own.folder.File("scratch.json", R"({
      "element": "e2m1", "scale": "e4m3", "block": [1, 16], "tensor_scale": "encode_scale",
      "block_scale": "folded", "scale_encoding": "nearest", "factor": "reciprocal",
      "element_rounding": "nearest_even", "nan": "element", "inf_scale": "rule",
      "signed_zeros": "keep"})");
  CHECK(own.Quantize(scratch, "a.safetensors").code == 0);
  CHECK(own.Quantize("nvfp4.te", "b.safetensors").code == 0);
  CHECK(ReadFile(own.folder.Path("a.safetensors")) == ReadFile(own.folder.Path("b.safetensors")));
  // what `dialects --json` prints is read
  const Answer printed = own.Run({"dialects", "nvfp4.te", "--json"});
  const std::string row = own.folder.File("row.json", printed.text);
  CHECK(own.Quantize(row, "c.safetensors").code == 0);
  CHECK(ReadFile(own.folder.Path("c.safetensors")) == ReadFile(own.folder.Path("b.safetensors")));
}

TEST_CASE("Bytes of a formula with scales rounded up are judged by it", "[spelling]") {
  const OwnFormula own;
  const Answer made = own.Quantize(own.up, "up.safetensors");
  CHECK(made.code == 0);
  CHECK_THAT(made.text, ContainsSubstring(kUpName));
  REQUIRE(own.Quantize("nvfp4.te", "te.safetensors").code == 0);
  CHECK(ReadFile(own.folder.Path("up.safetensors")) != ReadFile(own.folder.Path("te.safetensors")));

  // the file states its formula: no option is needed, and the right one contradicts nothing
  const Answer equal = own.Run(own.Judged("verify", "up.safetensors", {}));
  CHECK(equal.code == 0);
  CHECK_THAT(equal.text,
             ContainsSubstring(std::string("fp4lab cases --dialect '") + kUpName + "'"));
  CHECK(own.Run(own.Judged("verify", "up.safetensors", {"--dialect", own.up})).code == 0);
  CHECK(own.Run(own.Judged("verify", "te.safetensors", {"--dialect", own.up})).code == 1);
  CHECK(own.Run(own.Judged("verify", "up.safetensors", {"--dialect", "nvfp4.te"})).code == 1);

  // nvfp4.te's bytes are explained by its name
  const Answer why = own.Run(own.Judged("explain", "te.safetensors", {"--dialect", own.up}));
  CHECK(why.code == 1);
  CHECK_THAT(why.text, ContainsSubstring("computes nvfp4.te"));
  // deviations of rounding to nearest are none of a formula that rounds up
  CHECK_THAT(why.text, !ContainsSubstring(" scale-unclamped"));
  const Answer caught = own.Run({"cases", "--dialect", own.up, "--mutation-report"});
  CHECK(caught.code == 0);
  CHECK_THAT(caught.text, ContainsSubstring("\nscale-truncated "));
  CHECK_THAT(caught.text, !ContainsSubstring("\nscale-unclamped "));
  CHECK_THAT(caught.text, !ContainsSubstring("\nscale-rounded-up "));

  // identify: no row has the bytes, the formula beside the table does
  const std::string codes = own.folder.Path("up.safetensors#codes"),
                    scales = own.folder.Path("up.safetensors#scales");
  const std::vector<std::string> parts{"identify", "--input",  own.x,  "--shape",
                                       "32x128",   "--dtype",  "bf16", "--codes",
                                       codes,      "--scales", scales};
  CHECK(own.Run(parts).code == 1);
  for (const char* option : {"--also", "--dialects"}) {
    std::vector<std::string> with = parts;
    with.insert(with.end(), {option, own.up});
    const Answer found = own.Run(with);
    CHECK(found.code == 0);
    CHECK_THAT(found.text, ContainsSubstring(kUpName));
  }

  const Answer back =
      own.Run({"dequantize", own.folder.Path("up.safetensors"), "--out", own.folder.Path("y.npy")});
  CHECK(back.code == 0);
  const Answer looked =
      own.Run({"inspect", own.folder.Path("up.safetensors"), "--dialect", own.up});
  CHECK(looked.code == 0);
  CHECK_THAT(looked.text, ContainsSubstring(kUpName));
  const Answer full = own.Run({"dialects", own.up});
  CHECK(full.code == 0);
  CHECK_THAT(full.text, ContainsSubstring("scale byte   t rounded up"));
}

TEST_CASE("The directed cases judge a kernel of a formula of the user's", "[spelling]") {
  const OwnFormula own;
  const std::string up = "--dialect '" + own.up + "'";
  const ProcessResult right = PipeCases(up, "'" + Program() + "' cases answer " + up, up);
  CHECK(right.exit_code == 0);
  CHECK_THAT(right.output, ContainsSubstring(kUpName));
  const ProcessResult nearest = PipeCases(up, "'" + Program() + "' cases answer", up);
  CHECK(nearest.exit_code == 1);
  const ProcessResult wrong =
      PipeCases(up, "'" + Program() + "' cases answer " + up + " --deviation ties-away", up);
  CHECK(wrong.exit_code == 1);
  CHECK_THAT(wrong.output, ContainsSubstring("element-ties"));
}

TEST_CASE("A formula that is none is one line, and writes nothing", "[spelling]") {
  const OwnFormula own;
  const std::string typo =
      own.folder.File("typo.json", R"({"base": "nvfp4.te", "scale_encoding": "upp"})");
  const Answer refused = own.Quantize(typo, "none.safetensors");
  CheckOneLine(refused, "typo.json#/scale_encoding: unknown formula \"upp\"; did you mean \"up\"?");
  CHECK_FALSE(std::filesystem::exists(own.folder.Path("none.safetensors")));
  CheckOneLine(own.Quantize(own.folder.File("cut.json", "{\"base\":"), "none.safetensors"),
               "cut.json: line 1");
  CheckOneLine(own.Quantize(own.folder.Path("absent.json"), "none.safetensors"), "absent.json: ");
  CheckOneLine(own.Quantize("nvfp4.tee", "none.safetensors"), "did you mean \"nvfp4.te\"");
  const Answer verified = own.Run({"verify", "--dialect", typo});
  CHECK(verified.code == 2);
  CHECK_THAT(verified.text, ContainsSubstring("typo.json#/scale_encoding"));
}

}  // namespace
}  // namespace fp4lab
