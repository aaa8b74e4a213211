// `fp4lab import`, `export`, `evaluate`, `presets` and `train --start`, through the program.
#include "fp4lab/io/json.h"
#include "fp4lab/io/tensors/npy.h"
#include "tests/models/samples.h"
#include "tests/support/catch.h"
#include "tests/support/command_folder.h"
#include "tests/support/program.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

class Folder : public CommandFolder {
 public:
  std::string Imported() {
    const Answer answer =
        Run({"import", SampleFolder("qwen3").string(), "--out", Path("a.fp4lab")});
    CHECK(answer.text == "Qwen3ForCausalLM  7024 parameters  BF16  " + Path("a.fp4lab") + "\n");
    REQUIRE(answer.code == 0);
    return Path("a.fp4lab");
  }
  // 800 tokens of a vocabulary of 48.
  std::string Tokens() {
    std::vector<std::uint32_t> tokens;
    for (std::uint32_t i = 0; i < 2000; ++i) tokens.push_back(i * i % 48);
    WriteNpy(Path("ids.npy"), MakeNpyArray<std::uint32_t>({tokens.size()}, tokens));
    return Path("ids.npy");
  }
};

TEST_CASE("An import is evaluated, looked into, trained on and exported", "[e2e]") {
  Folder folder;
  const std::string model = folder.Imported(), tokens = folder.Tokens();
  const ProcessResult losses =  // on a slow machine there is progress on stderr
      RunProgram({"evaluate", model, "--tokens", tokens, "--recipe", "te_fp8_currentscaling",
                  "--recipe", "fp32", "--evaluated", "0", "--logits", folder.Path("logits.npy"),
                  "--json"});
  REQUIRE(losses.exit_code == 0);
  const Json rows = ParseJson(losses.output, "evaluate")["recipes"];
  CHECK(rows[0]["loss"] != rows[0]["high_precision_loss"]);
  CHECK(rows[1]["loss"] == rows[1]["high_precision_loss"]);
  CHECK(rows[0]["tokens"] == 1992);  // whole sequences of 24
  CHECK(ReadNpy(folder.Path("logits.npy")).shape == std::vector<std::size_t>{24, 48});

  const Answer what =
      folder.Run({"what-if", model, "--tokens", tokens, "--recipe", "te_fp8_currentscaling",
                  "--learning-rate", "1e-3", "--no-shares"});
  CHECK(what.code == 0);
  CHECK_THAT(what.text, ContainsSubstring("step 1, 96 tokens, learning rate 0.001"));

  const std::vector<std::string> train = {"train",
                                          "--start",
                                          model,
                                          "--tokens",
                                          tokens,
                                          "--recipe",
                                          "te_fp8_currentscaling",
                                          "--set",
                                          "batch=2",
                                          "--set",
                                          "schedule.learning_rate=1e-3",
                                          "--steps",
                                          "4",
                                          "--out-dir",
                                          folder.Path("run")};
  REQUIRE(folder.Run(train).code == 0);
  const Answer out = folder.Run({"export", folder.Path("run"), "--out", folder.Path("out")});
  CHECK(out.text == "Qwen3ForCausalLM  7024 parameters  F32  " + folder.Path("out") + "\n");
  CHECK(ReadSafetensors(folder.Path("out") + "/model.safetensors").tensors !=
        ReadSafetensors(SampleFolder("qwen3") / "model.safetensors").tensors);
}

TEST_CASE("Bad input of these commands is one line, and nothing is written", "[e2e]") {
  Folder folder;
  const std::string model = folder.Imported();
  CheckOneLine(folder.Run({"import", folder.Path("nothing"), "--out", folder.Path("b")}),
               "nothing");
  CheckOneLine(folder.Run({"evaluate", model}), "give the text: --text, --tokens or --data");
  CheckOneLine(folder.Run({"evaluate", model, "--data", "synthetic"}),
               "the corpus synthetic has 256");
  CheckOneLine(folder.Run({"export", folder.File("x.fp4lab", "text"), "--out", folder.Path("out")}),
               "is not an fp4lab checkpoint");
  CheckOneLine(folder.Run({"train", "--start", folder.Path("none"), "--out-dir", folder.Path("r")}),
               "there is no checkpoint");
  CheckOneLine(folder.Run({"presets", "qwen4"}), "unknown preset \"qwen4\"");
  CHECK_FALSE(Exists(folder.Path("b")));
  CHECK_FALSE(Exists(folder.Path("out")));
  CHECK_FALSE(Exists(folder.Path("r")));
}

TEST_CASE("presets lists every shape with its source", "[e2e]") {
  Folder folder;
  const Answer list = folder.Run({"presets"}), json = folder.Run({"presets", "--json"});
  CHECK_THAT(list.text, ContainsSubstring("gpt-oss"));
  const Json presets = ParseJson(json.text, "presets");
  for (const Json& row : presets["presets"]) {
    CHECK_FALSE(row["source"].get<std::string>().empty());
    CHECK_FALSE(row["evidence"].empty());
    CHECK(row["parameters"].get<std::int64_t>() > 10'000);
  }
  const Answer one = folder.Run({"presets", "nemotron-h", "--d-model", "128"});
  CHECK_THAT(one.text, ContainsSubstring("Mamba-2"));
  CHECK_THAT(one.text,
             ContainsSubstring("shown by      NVIDIA-NeMo/Megatron-Bridge src/megatron/"));
  CHECK_THAT(one.text, ContainsSubstring("unproved      rope_theta\n"));
  CHECK_THAT(one.text, ContainsSubstring("\"d_model\":128"));
}

}  // namespace
}  // namespace fp4lab
