// `fp4lab what-if` and the observations of `fp4lab train`, through the program.
#include <algorithm>
#include <cmath>

#include "fp4lab/io/json.h"
#include "tests/support/catch.h"
#include "tests/support/command_folder.h"
#include "tests/support/program.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

constexpr const char* kTiny = R"({"model": {"layers": 1, "d_model": 32, "heads": 2, "ffn": 32,
  "sequence": 32}, "batch": 2, "tokens": 640, "recipe": "te_nvfp4", "data": {"source": "synthetic",
  "synthetic_bytes": 8000}, "evaluation": {"tokens": 64}})";

class Folder : public CommandFolder {
 public:
  // A trained run.
  std::string Trained(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"train", "--config", File("run.json", kTiny), "--out-dir",
                                          Path("out")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    REQUIRE(Run(arguments).code == 0);
    return Path("out");
  }
};

TEST_CASE("what-if prints losses, gradients, the first difference and shares", "[e2e]") {
  Folder folder;
  const std::string out = folder.Trained();
  const Answer text = folder.Run({"what-if", out, "--recipe", "te_nvfp4", "--recipe", "mxfp4"});
  INFO(text.text);
  REQUIRE(text.code == 0);
  CHECK_THAT(text.text, ContainsSubstring("step 11, 64 tokens, learning rate "));
  CHECK_THAT(text.text,
             ContainsSubstring("mxfp4 parts from te_nvfp4 in blocks.0.attention.qkv.output"));
  CHECK_THAT(text.text, ContainsSubstring("which operands of mxfp4 cause it"));
  const ProcessResult answer =  // on a slow machine there is progress on stderr
      RunProgram({"what-if", out + "/checkpoint.fp4lab", "--recipe",
                  R"({"base": "te_nvfp4", "disable_rht": true})", "--json"});
  REQUIRE(answer.exit_code == 0);
  const Json json = ParseJson(answer.output, "what-if");
  const Json& recipe = json["recipes"][0];
  for (const char* quantity : {"loss", "gradient_error", "loss_after"}) {
    const Json& shares = recipe["shares"][quantity];
    double sum = 0.0;
    for (const auto& [operand, share] : shares["operands"].items()) sum += share.get<double>();
    CHECK(sum == Catch::Approx(shares["with"].get<double>() - shares["without"].get<double>())
                     .margin(1e-12));
  }
  CHECK(recipe["first_difference"].is_null());
  CHECK(recipe["linears"].size() == 5);
}

TEST_CASE("what-if draws the error map of a tensor of the step", "[e2e]") {
  Folder folder;
  const std::string out = folder.Trained(), map = folder.Path("map.svg");
  REQUIRE(folder
              .Run({"what-if", out, "--no-shares", "--tensor", "blocks.0.mlp.down.wgrad.grad",
                    "--error-map", map})
              .code == 0);
  const std::string svg = ReadFile(map);
  CHECK_THAT(svg, ContainsSubstring("blocks.0.mlp.down.wgrad.grad under te_nvfp4, step 11"));
  CHECK_THAT(svg, ContainsSubstring("32x4 blocks"));  // (out, tokens) in 1x16
  CheckOneLine(folder.Run({"what-if", out, "--tensor", "blocks.0.mlp.down.wgrad.grd", "--error-map",
                           folder.Path("none.svg")}),
               "--tensor: no quantized operand is named");
  CHECK_FALSE(std::filesystem::exists(folder.Path("none.svg")));
  CheckOneLine(folder.Run({"what-if", out, "--error-map", map}),
               "--error-map and --tensor go together");
}

TEST_CASE("Bad input to what-if is one line that names the remedy", "[e2e]") {
  Folder folder;
  const std::string out = folder.Trained();
  CheckOneLine(folder.Run({"what-if", folder.Path("none")}), "none");
  CheckOneLine(folder.Run({"what-if", folder.File("text", "hello")}),
               "is not an fp4lab checkpoint");
  CheckOneLine(folder.Run({"what-if", out, "--recipe", "te_nvfp5"}), "unknown recipe \"te_nvfp5\"");
  CheckOneLine(folder.Run({"what-if", out, "--recipe", "missing.json"}),
               "missing.json: is not there");
  CheckOneLine(folder.Run({"what-if", out, "--recipe", "te_fp8_delayedscaling"}),
               "has delayed scaling");
  CheckOneLine(folder.Run({"what-if", out, "--recipe", "te_nvfp4", "--recipe", "fp32"}),
               "has another training_dtype than te_nvfp4");
  CheckOneLine(folder.Run({"what-if", out, "--sequences", "3"}),
               "--sequences: a micro-batch of the run has 2");
  CheckOneLine(
      folder.Run({"what-if", out, "--text", folder.File("other.txt", std::string(9000, 'x'))}),
      "was trained on another text than");
  CheckOneLine(folder.Run({"what-if", out, "--text", "a", "--data", "b"}),
               "give one of --text, --tokens and --data");
  std::filesystem::remove(out + "/config.json");
  CheckOneLine(folder.Run({"what-if", out}), "give --learning-rate");
  CheckOneLine(folder.Run({"what-if", out, "--learning-rate", "0.001"}),
               "give --text, --tokens or --data");
}

TEST_CASE("fp4lab train writes observations and resumes them bit for bit", "[e2e]") {
  Folder folder;
  const std::string out = folder.Trained({"--diagnostics-every", "3"});
  const std::string whole = ReadFile(out + "/observations.jsonl");
  CHECK(std::count(whole.begin(), whole.end(), '\n') == 4);  // steps 0, 3, 6, 9
  const Json first = ParseJson(whole.substr(0, whole.find('\n')), "observations");
  CHECK(first["step"] == 0);
  CHECK(first["rows"].size() > 20);

  const std::string config = folder.Path("run.json"), cut = folder.Path("cut");
  REQUIRE(folder
              .Run({"train", "--config", config, "--out-dir", cut, "--diagnostics-every", "3",
                    "--set", "checkpoint_every=1"})
              .code == 0);
  CHECK(ReadFile(cut + "/observations.jsonl") == whole);
  const std::string plain = folder.Path("plain");
  REQUIRE(folder.Run({"train", "--config", config, "--out-dir", plain}).code == 0);
  CHECK_FALSE(std::filesystem::exists(plain + "/observations.jsonl"));
  // Weights and losses do not know of the observations: only the header of the checkpoint does.
  const auto payload = [](const std::string& run) {
    const std::string bytes = ReadFile(run + "/checkpoint.fp4lab");
    return bytes.substr(bytes.size() - 64 - 3 * 4 * 20'000, 3 * 4 * 20'000);
  };
  CHECK((payload(plain) == payload(out)));
  CheckOneLine(folder.Run({"train", "--config", config, "--out-dir", plain, "--resume",
                           "--diagnostics-every", "3"}),
               "is the configuration of another run: diagnostics");
}

TEST_CASE("Bad steps to observe are refused", "[e2e]") {
  Folder folder;
  const std::string config = folder.File("run.json", kTiny), out = folder.Path("out");
  const auto refuses = [&](std::vector<std::string> more, const std::string& part) {
    std::vector<std::string> arguments = {"train", "--config", config, "--out-dir", out};
    arguments.insert(arguments.end(), more.begin(), more.end());
    CheckOneLine(folder.Run(arguments), part);
    CHECK_FALSE(std::filesystem::exists(out));
  };
  refuses({"--diagnostics-steps", "5,3"}, "run.json#/diagnostics/steps/1: must be at least 0");
  refuses({"--steps", "4", "--diagnostics-steps", "0,5"},
          "run.json#/diagnostics/steps/1: is step 5, and training ends at step 4");
  refuses({"--set", "diagnostics.evry=3"}, "run.json#/diagnostics/evry: unknown key");
  refuses({"--set", "diagnostics=3"}, "run.json#/diagnostics");
}

}  // namespace
}  // namespace fp4lab
