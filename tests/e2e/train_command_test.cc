// Errors of `fp4lab train`, and the files that it writes.
#include <cstdlib>

#include "fp4lab/base/simd/simd.h"
#include "fp4lab/io/folder_lock.h"
#include "fp4lab/io/json.h"
#include "fp4lab/io/temporary_folder.h"
#include "fp4lab/train/checkpoint.h"
#include "fp4lab/train/engine.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/command_folder.h"
#include "tests/support/program.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

class TrainCommand : public CommandFolder {
 public:
  Answer Run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "train");
    return CommandFolder::Run(arguments);
  }
};

Json LastLine(const std::string& path) {
  const std::string text = ReadFile(path);
  return ParseJson(text.substr(text.rfind('\n', text.size() - 2) + 1), path);
}

constexpr const char* kTiny = R"({"model": {"layers": 1, "d_model": 32, "heads": 2, "ffn": 32,
  "sequence": 32}, "batch": 1, "tokens": 320, "data": {"source": "synthetic",
  "synthetic_bytes": 4000}, "evaluation": {"tokens": 64}})";

TEST_CASE("Bad input to fp4lab train is one line on stderr and exit code 1", "[e2e]") {
  TrainCommand train;
  const std::string out = train.Path("out");
  const auto refuses = [&](std::vector<std::string> arguments, const std::string& part) {
    arguments.insert(arguments.end(), {"--out-dir", out});
    CheckOneLine(train.Run(arguments), part);
    CHECK_FALSE(std::filesystem::exists(out));
  };
  refuses({"--config", train.Path("missing.json")}, "missing.json");
  refuses({"--config", train.File("broken.json", "{\"model\": }")}, "line 1, column 11: not JSON");
  refuses({"--config", train.File("typo.json", R"({"modle": {}})")},
          "typo.json#/modle: unknown key; did you mean \"model\"?");
  refuses({"--recipe", "te_nvfp5"}, "command line#/recipe: unknown recipe \"te_nvfp5\"");
  refuses({"--recipe", "te_nvfp4", "--set", "model.d_model=72"},
          "command line#/model/d_model: d_model 72 is not a multiple");
  refuses({"--set", "model.layers"}, "--set model.layers: must be key=value");
  refuses({"--set", "seed.x=1", "--seed", "1", "--set", "seed.x.y=2"}, "seed.x is not an object");
  refuses({"--text", "a.txt", "--data", "austen"}, "give one of --text, --tokens and --data");
  refuses({"--resume"}, "has no run to resume");
}

TEST_CASE("The device is refused in one line where it is unknown or not there", "[e2e]") {
  TrainCommand train;
  const std::string out = train.Path("out"), config = train.File("run.json", kTiny);
  CheckOneLine(train.Run({"--config", config, "--device", "tpu", "--out-dir", out}),
               "run.json#/device: must be \"cpu\" or \"cuda\", not \"tpu\"");
  if (CudaGpus() > 0) return;
  CheckOneLine(train.Run({"--config", config, "--device", "cuda", "--out-dir", out}),
               "run.json#/device: \"cuda\" ");
  CHECK_FALSE(std::filesystem::exists(out));
}

TEST_CASE("A run may change its device when it is resumed", "[e2e]") {
  TrainCommand train;
  const std::string out = train.Path("out");
  const Answer first = train.Run({"--config", train.File("run.json", kTiny), "--out-dir", out});
  REQUIRE(first.code == 0);
  CHECK(train.Run({"--resume", "--device", "cpu", "--out-dir", out}).code == 0);
  const Answer again = train.Run({"--resume", "--device", "cuda", "--out-dir", out});
  if (CudaGpus() > 0) {
    CHECK(again.code == 0);
  } else {
    CheckOneLine(again, "#/device: \"cuda\" ");
  }
}

TEST_CASE("Data that is missing or too short is refused", "[e2e]") {
  TrainCommand train;
  CheckOneLine(train.Run({"--text", train.Path("missing.txt"), "--out-dir", train.Path("a")}),
               "missing.txt");
  CheckOneLine(train.Run({"--text", train.File("short.txt", std::string(1400, 'a')), "--out-dir",
                          train.Path("b")}),
               "command line#/data: the validation part");
  CHECK_FALSE(std::filesystem::exists(train.Path("a")));
  CHECK_FALSE(std::filesystem::exists(train.Path("b")));
}

TEST_CASE("A folder that cannot be written is refused", "[e2e]") {
  TrainCommand train;
  const std::string config = train.File("run.json", kTiny);
  CheckOneLine(train.Run({"--config", config, "--out-dir", config + "/sub"}), "run.json/sub");
}

TEST_CASE("A folder with a run is neither overwritten nor resumed as another run", "[e2e]") {
  TrainCommand train;
  const std::string config = train.File("run.json", kTiny), out = train.Path("out");
  REQUIRE(train.Run({"--config", config, "--out-dir", out}).code == 0);
  const std::string state = ReadFile(out + "/checkpoint.fp4lab");
  CheckOneLine(train.Run({"--config", config, "--out-dir", out}),
               "already holds a run; continue it with --resume");
  CheckOneLine(train.Run({"--config", config, "--out-dir", out, "--resume", "--seed", "2"}),
               "config.json: is the configuration of another run: seed: 2 here, 1 there");
  CHECK((ReadFile(out + "/checkpoint.fp4lab") == state));

  WriteFileAtomically(out + "/checkpoint.fp4lab", state.substr(0, state.size() / 2));
  CheckOneLine(train.Run({"--out-dir", out, "--resume"}),
               "checkpoint.fp4lab: checkpoint is truncated or damaged");
  WriteFileAtomically(out + "/checkpoint.fp4lab", std::string("hello"));
  CheckOneLine(train.Run({"--out-dir", out, "--resume"}), "is not an fp4lab checkpoint");
  // The checkpoint of a run with another seed, under this run's configuration.
  const std::string other = train.Path("other");
  REQUIRE(train.Run({"--config", config, "--out-dir", other, "--seed", "2"}).code == 0);
  WriteFileAtomically(out + "/checkpoint.fp4lab", ReadFile(other + "/checkpoint.fp4lab"));
  CheckOneLine(train.Run({"--out-dir", out, "--resume"}),
               "checkpoint of another configuration: seed: 1 here, 2 there");
}

TEST_CASE("--resume takes the configuration of the folder, with which options must agree",
          "[e2e]") {
  TrainCommand train;
  const std::string out = train.Path("out"), config = train.File("run.json", kTiny);
  REQUIRE(train
              .Run({"--config", config, "--recipe", "te_nvfp4", "--set", "recipe.disable_rht=true",
                    "--set", "schedule.learning_rate=0.02", "--diagnostics-every", "5", "--set",
                    "diagnostics.tokens=32", "--out-dir", out})
              .code == 0);
  CHECK(ReadJsonFile(out + "/config.json").at("diagnostics").at("tokens") == 32);
  const auto again = [&](std::vector<std::string> options) {
    options.insert(options.end(), {"--resume", "--out-dir", out});
    return train.Run(options);
  };
  for (const std::vector<std::string>& agrees : std::vector<std::vector<std::string>>{
           {"--set", "model.layers=1"},
           {"--set", "schedule.learning_rate=0.02", "--seed", "1"},
           {"--recipe", "te_nvfp4"},
           {"--recipe", "te_nvfp4", "--set", "recipe.disable_rht=true"},
           {"--data", "synthetic"},
           {"--set", "log_every=7"},
           {"--steps", "10"}}) {
    CAPTURE(agrees);
    const Answer answer = again(agrees);
    INFO(answer.text);
    CHECK(answer.code == 0);
  }
  const std::string differs = "config.json: is the configuration of another run: ";
  CheckOneLine(again({"--set", "model.layers=2"}), differs + "model/layers: 2 here, 1 there");
  CheckOneLine(again({"--recipe", "mxfp4"}), differs + "recipe/");
  CheckOneLine(again({"--set", "recipe.disable_rht=false"}), differs + "recipe/");
  CheckOneLine(again({"--steps", "11"}), differs + "tokens: 352 here, 320 there");
}

TEST_CASE("--recipe takes a name, a JSON file or JSON, and a folder of that name is none",
          "[e2e]") {
  TrainCommand train;
  const std::string config = train.File("run.json", kTiny);
  const std::string text = R"({"base": "te_nvfp4", "disable_rht": true})";
  const std::string file = train.File("mine.json", text);
  const auto recipe = [&](const std::string& given, const std::string& out) {
    const Answer answer =
        train.Run({"--config", config, "--recipe", given, "--out-dir", train.Path(out)});
    INFO(answer.text);
    REQUIRE(answer.code == 0);
    return ReadJsonFile(train.Path(out) + "/config.json").at("recipe");
  };
  const Json from_file = recipe(file, "a");
  CHECK(from_file == recipe(text, "b"));
  CHECK(from_file != recipe("te_nvfp4", "te_nvfp4"));
  CHECK(from_file.at("wgrad") == recipe("te_nvfp4_no_rht", "te_nvfp4_no_rht").at("wgrad"));
  CHECK(train.Run({"--recipe", file, "--resume", "--out-dir", train.Path("a")}).code == 0);
  CheckOneLine(train.Run({"--config", config, "--recipe", train.Path("mind.json"), "--out-dir",
                          train.Path("c")}),
               "mind.json: is not there; did you mean \"mine.json\"?");
}

TEST_CASE("Evaluation tokens that the text lacks are said", "[e2e]") {
  TrainCommand train;
  const Answer answer = train.Run({"--config", train.File("run.json", kTiny), "--set",
                                   "evaluation.tokens=100000", "--out-dir", train.Path("out")});
  CHECK(answer.code == 0);
  CHECK_THAT(answer.text, ContainsSubstring("note: evaluation.tokens is 100000, and the validation "
                                            "part of synthetic has 200: 192 are evaluated"));
}

// The checkpoint `bytes` with the header's version and its member "run" changed.
std::string Changed(const std::string& bytes, std::uint32_t version, const Json& run) {
  const auto content = std::as_bytes(std::span(bytes));
  Checkpoint checkpoint = ReadCheckpoint({content.begin(), content.end()}, "test");
  checkpoint.header.run = run;
  const std::span<const float> payload = checkpoint.payload;
  std::vector<std::byte> changed = WriteCheckpoint(checkpoint.header, std::span(&payload, 1));
  changed[8] = static_cast<std::byte>(version);
  return {reinterpret_cast<const char*>(changed.data()), changed.size()};
}

TEST_CASE("A checkpoint of another version or of a study is refused with its remedy", "[e2e]") {
  TrainCommand train;
  const std::string config = train.File("run.json", kTiny), out = train.Path("out");
  REQUIRE(train.Run({"--config", config, "--out-dir", out}).code == 0);
  const std::string path = out + "/checkpoint.fp4lab", state = ReadFile(path);
  CHECK((Changed(state, 1, {}) == state));
  WriteFileAtomically(path, Changed(state, 2, {}));
  CheckOneLine(train.Run({"--out-dir", out, "--resume"}),
               path +
                   ": checkpoint version 2, this program reads 1; continue with the fp4lab that "
                   "wrote it, or start anew elsewhere");
  WriteFileAtomically(path, Changed(state, 1, {{"record", 1}}));
  CheckOneLine(train.Run({"--out-dir", out, "--resume"}),
               path + ": is the checkpoint of a study, which fp4lab study run continues");
}

TEST_CASE("The last line of progress has speed, time left, step and loss", "[e2e]") {
  TrainCommand train;
  const Answer run =
      train.Run({"--config", train.File("run.json", kTiny), "--out-dir", train.Path("out")});
  REQUIRE(run.code == 0);
  CHECK_THAT(run.text, ContainsSubstring(" tokens/s | 0:00 left | step 10/10, loss 5."));
}

TEST_CASE("A folder that another process trains in is refused", "[e2e]") {
  TrainCommand train;
  const std::string config = train.File("run.json", kTiny), out = train.Path("out");
  const FolderLock lock(out);
  const std::string being_written = out + "/checkpoint.partial-0123456789abcdef";
  WriteFileAtomically(being_written, std::string_view("half"));
  CheckOneLine(train.Run({"--config", config, "--out-dir", out}),
               "is already running in this folder");
  CHECK_FALSE(std::filesystem::exists(out + "/config.json"));
  CHECK(std::filesystem::exists(being_written));  // the process with the lock writes it
}

TEST_CASE("A loss that leaves the finite numbers names the step and the tensor", "[e2e]") {
  TrainCommand train;
  const std::string config = train.File("run.json", kTiny), out = train.Path("out");
  const Answer run =
      train.Run({"--config", config, "--out-dir", out, "--set", "schedule.learning_rate=1e38",
                 "--set", "schedule.warmup_steps=0", "--set", "optimizer.clip=0"});
  CHECK(run.code == 1);
  CHECK_THAT(run.text, ContainsSubstring("is the first tensor that is not finite"));
  CHECK_THAT(run.text, ContainsSubstring("error: step "));
  CHECK(std::filesystem::exists(out + "/checkpoint.fp4lab"));
  const Json last = LastLine(out + "/metrics.jsonl");
  CHECK(last["diverged"].is_string());
  CHECK((last["learning/loss"].is_string() || last["learning/grad_norm"].is_string()));
}

TEST_CASE("A validation loss that is not finite ends the run as diverged", "[e2e]") {
  TrainCommand train;
  const std::string config = train.File("run.json", kTiny), out = train.Path("out");
  const std::vector<std::string> arguments = {"--config",  config,
                                              "--out-dir", out,
                                              "--steps",   "1",
                                              "--set",     "schedule.learning_rate=1e38",
                                              "--set",     "schedule.warmup_steps=0",
                                              "--set",     "schedule.kind=constant",
                                              "--set",     "optimizer.weight_decay=10"};
  const Answer run = train.Run(arguments);  // the progress, then the error
  CHECK(run.code == 1);
  CHECK_THAT(run.text, ContainsSubstring("error: step 1: the run has diverged: the validation loss "
                                         "is not finite; the state after this step is in " +
                                         out));
  const Json last = LastLine(out + "/metrics.jsonl");
  CHECK(last["step"] == 1);
  CHECK(last["diverged"] == "validation.loss");
  CHECK(last["eval/avg_loss"] == "nan");
  CHECK(std::filesystem::exists(out + "/checkpoint.fp4lab"));
  const std::string metrics = ReadFile(out + "/metrics.jsonl");
  CheckOneLine(train.Run({"--resume", "--out-dir", out}), "the validation loss is not finite");
  CHECK(ReadFile(out + "/metrics.jsonl") == metrics);
}

TEST_CASE("A model that memory cannot hold is refused with its size before it is made", "[e2e]") {
  TrainCommand train;
  const std::string out = train.Path("out"), config = train.File("run.json", kTiny);
  const auto refuses = [&](std::vector<std::string> members, const std::string& part) {
    std::vector<std::string> arguments = {"--config", config, "--out-dir", out};
    for (std::string& member : members) arguments.insert(arguments.end(), {"--set", member});
    const Answer refusal = train.Run(arguments);
    CheckOneLine(refusal, part);
    CHECK_THAT(refusal.text, ContainsSubstring(" GiB of memory (weights and moments "));
    CHECK_FALSE(std::filesystem::exists(out));
  };
  refuses({"model.layers=16384", "model.d_model=1048576", "model.ffn=4194304"},
          "run.json#/model: a run needs about ");
  refuses({"model.layers=400", "model.d_model=8192", "model.ffn=32768"}, "run.json#/model: ");
  refuses({"batch=4000000", "tokens=1e9"}, "run.json#/batch: a run needs about ");
}

TEST_CASE("A SIMD target without fused multiply-add is named before it takes long", "[e2e]") {
  TrainCommand train;
  const std::string config = train.File("run.json", kTiny);
  const std::string study = train.File("study.json", R"({"name": "tiny", "batch": 2,
    "model": {"layers": 1, "d_model": 32, "heads": 2, "ffn": 32, "sequence": 32},
    "data": {"source": "synthetic", "synthetic_bytes": 20000}, "evaluation": {"tokens": 512, "chunk_tokens": 128},
    "schedule": {"warmup_steps": 1}, "arms": {"bf16": {"recipe": "bf16"}}, "seeds": [1],
    "budgets": [640]})");
  const std::vector<std::vector<std::string>> commands = {
      {"train", "--config", config, "--steps", "1", "--out-dir"},
      {"study", "run", study, "--out-dir"},
      {"study", "plan", study},
      {"bench", "--quick", "--filter", "quantize.nvfp4.l2.memcpy", "--threads", "1"}};
  const std::string slowest = SimdTargets().back();
#if defined(__aarch64__)
  const bool has_slow = false;  // all of 64-bit Arm has it
#else
  // The only target of a sanitized build may have it.
  const bool has_slow = SimdTargets().size() > 1 || !HasFusedMultiplyAdd();
#endif
  for (std::vector<std::string> command : commands) {
    CAPTURE(command);
    const bool has_folder = command.back() == "--out-dir";
    const auto first_line = [&](const std::string& target) {
      std::vector<std::string> arguments = command;
      if (has_folder) arguments.push_back(train.Path(command[0] + target));
      const ProcessResult run = RunProgram(arguments, {.environment = {{"FP4LAB_TARGET", target}}});
      INFO(run.error);
      CHECK(run.exit_code == 0);
      return run.error.substr(0, run.error.find('\n'));
    };
    if (has_slow) {
      CHECK_THAT(first_line(slowest), ContainsSubstring("note: the SIMD target " + slowest +
                                                        " has no fused multiply-add"));
    }
    CHECK((first_line("best").find("note:") == 0) == !HasFusedMultiplyAdd());
  }
}

TEST_CASE("Metrics carry MaxText's names, and the resolved configuration is kept", "[e2e]") {
  TrainCommand train;
  const std::string config = train.File("run.json", kTiny), out = train.Path("out");
  REQUIRE(train
              .Run({"--config", config, "--out-dir", out, "--recipe", "mxfp4", "--set",
                    "recipe.scale_rule=floor"})
              .code == 0);
  const std::string metrics = ReadFile(out + "/metrics.jsonl");
  const Json first = ParseJson(metrics.substr(0, metrics.find('\n')), "first line");
  for (const char* key :
       {"step", "learning/loss", "learning/grad_norm", "learning/current_learning_rate",
        "perf/step_time_seconds", "perf/per_device_tokens", "perf/per_device_tokens_per_sec",
        "perf/per_device_tflops", "perf/per_device_tflops_per_sec", "perf/peak_memory_bytes"}) {
    CAPTURE(key);
    CHECK(first.contains(key));
  }
  const double seconds = first["perf/step_time_seconds"];
  CHECK(first["perf/per_device_tokens"] == 32.0);
  CHECK(double{first["perf/per_device_tokens_per_sec"]} == Catch::Approx(32 / seconds));
  // Matrices 32 x (96 + 32 + 2 * 32) and a head of 256, six FLOP each per token; 2 * 32 columns of
  // attention, six FLOP per query and key.
  const double flops = 6.0 * 32 * (32.0 * (96 + 32 + 64 + 256)) + 6.0 * 64 * 32 * 32 / 2;
  CHECK(double{first["perf/per_device_tflops"]} == Catch::Approx(1e-12 * flops));
  CHECK(double{first["perf/per_device_tflops_per_sec"]} == Catch::Approx(1e-12 * flops / seconds));
  CHECK(first["perf/peak_memory_bytes"] > 1'000'000);
  double shares = 0.0;
  for (const char* part :
       {"gemm", "attention", "quantization", "optimizer", "communication", "other"}) {
    CAPTURE(part);
    const double share = first.at("perf/share/" + std::string(part));
    CHECK(share >= 0.0);
    CHECK((share > 0.0) == (std::string(part) != "communication"));
    shares += share;
  }
  CHECK(shares == Catch::Approx(1.0));
  const std::size_t last = metrics.rfind('\n', metrics.size() - 2) + 1;
  const Json evaluation = ParseJson(metrics.substr(last), "last line");
  for (const char* key : {"eval/avg_loss", "eval/avg_perplexity", "eval/high_precision_avg_loss"}) {
    CAPTURE(key);
    CHECK(evaluation.contains(key));
  }
  const Json resolved = ReadJsonFile(out + "/config.json");
  CHECK(resolved["recipe"]["wgrad"]["grad"] ==
        Json({{"format", "mxfp4.floor"}, {"rounding", "stochastic"}, {"hadamard", 32}}));
  const std::string diagnostics = ReadFile(out + "/diagnostics.jsonl");
  const Json operand = ParseJson(diagnostics.substr(0, diagnostics.find('\n')), "diagnostics");
  CHECK(operand["name"] == "blocks.0.attention.qkv.fprop.weight");
  CHECK(operand["format"] == "mxfp4.floor.2d");
  CHECK(operand["sqnr"].get<double>() > 10.0);
}

}  // namespace
}  // namespace fp4lab
