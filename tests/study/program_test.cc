// The program's studies as a user runs them: killed, interrupted, given bad input.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "fp4lab/base/random.h"
#include "fp4lab/train/engine.h"
#include "tests/study/support/tiny_study.h"
#include "tests/support/catch.h"

namespace fp4lab::study {
namespace {

// Longer than the tiny study, so that kills land inside its runs.
Json SlowerStudyJson() {
  Json json = TinyStudyJson();
  json["budgets"] = {100 * 128, 200 * 128};
  return json;
}

struct Ended {
  int code = -1;  // exit code; 128 + signal where a signal ended it
  std::string errors, output;
};

class Process {
 public:
  // Runs the program with its stderr in folder/stderr and its stdout in folder/stdout; `prelude` is
  // shell text before it.
  Process(const std::filesystem::path& folder, const std::string& arguments,
          const std::string& prelude = "")
      : errors_(folder / "stderr"), output_(folder / "stdout") {
    const char* program = std::getenv("FP4LAB_PROGRAM");
    REQUIRE(program != nullptr);
    const std::string command = prelude + "exec '" + program + "' " + arguments + " 2> '" +
                                errors_.string() + "' > '" + output_.string() + "'";
    process_ = ::fork();
    REQUIRE(process_ >= 0);
    if (process_ == 0) {
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      ::_exit(127);
    }
  }
  void Kill(int signal) const { ::kill(process_, signal); }
  Ended Wait() const {
    int status = 0;
    ::waitpid(process_, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), ReadFile(errors_),
            ReadFile(output_)};
  }

 private:
  std::filesystem::path errors_, output_;
  pid_t process_ = -1;
};

std::string Timeless(const std::filesystem::path& path) {
  Json results = ReadJsonFile(path);
  for (Json& run : results.at("runs")) {
    run.erase("seconds");
    run.erase("tokens_per_second");
  }
  results.erase("sha256");  // the hash covers the erased times
  return results.dump();
}

std::string StudyFile(const TestFolder& folder, const Json& json) {
  const std::filesystem::path path = folder.Path() / "tiny.json";
  WriteFileAtomically(path, json.dump());
  return "'" + path.string() + "'";
}

int Lines(const std::string& text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

TEST_CASE("A study's rehearsal runs on the CPU, without the file's text and device", "[study]") {
  const TestFolder folder("rehearsal");
  Json json = TinyStudyJson();
  json["device"] = "cuda";
  json["data"] = {{"text", "no-such-file.txt"}};
  json["budgets"] = {128'000, 256'000};
  const std::string file = StudyFile(folder, json), out = (folder.Path() / "out").string();
  const Ended ended =
      Process(folder.Path(), "study run " + file + " --quick --out-dir '" + out + "'").Wait();
  INFO(ended.errors);
  REQUIRE(ended.code == 0);
  const Json results = ReadJsonFile(out + "/results.json");
  CHECK(results.at("name") == "tiny-quick");
  CHECK(results.at("study").at("device") == "cpu");
  CHECK(results.at("runs").size() == 4);
  CHECK(ReadFile(out + "/report.html").find("Rehearsal: tiny") != std::string::npos);
}

TEST_CASE("A study can be run by its first seeds, and then by the others", "[study]") {
  const TestFolder folder("seeds");
  const std::string file = StudyFile(folder, TinyStudyJson());
  const auto run = [&](const std::string& options, const std::string& out) {
    const std::string path = (folder.Path() / out).string();
    return Process(folder.Path(), "study run " + file + options + " --out-dir '" + path + "'")
        .Wait();
  };
  REQUIRE(run(" --seeds 1", "parts").code == 0);
  const Json first = ReadJsonFile(folder.Path() / "parts/results.json");
  CHECK(first.at("study").at("seeds") == Json{1});
  CHECK(first.at("runs").size() == 2);
  const Ended rest = run("", "parts");
  REQUIRE(rest.code == 0);
  CHECK(rest.errors.find("4 runs: 2 cached") != std::string::npos);
  REQUIRE(run("", "whole").code == 0);
  CHECK(Timeless(folder.Path() / "parts/results.json") ==
        Timeless(folder.Path() / "whole/results.json"));
  const Ended many = run(" --seeds 3", "parts");
  CHECK(many.code != 0);
  CHECK(many.errors.find("--seeds 3") != std::string::npos);
  CHECK(many.errors.find("has 2") != std::string::npos);
}

TEST_CASE("A study that is killed at random moments ends with the results of one that was not",
          "[study]") {
  const TestFolder folder("killed");
  const std::string file = StudyFile(folder, SlowerStudyJson());
  const std::string out = " --out-dir '" + folder.Path().string() + "/";
  const std::string options = " --jobs 2 --threads-per-job 1 --checkpoint-seconds 0.02";
  const auto start = std::chrono::steady_clock::now();
  REQUIRE(Process(folder.Path(), "study run " + file + out + "whole'" + options).Wait().code == 0);
  const auto whole = std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::steady_clock::now() - start);  // of a whole study on this machine

  const std::string command = "study run " + file + out + "pieces'" + options + " --resume";
  const RandomStream random{.seed = 2024};
  int killed = 0, interrupted = 0, resumed = 0;
  // The moment of a kill depends on the load of the machine: twelve signals, and more until all
  // three outcomes have occurred.
  const auto all_seen = [&] { return killed > 0 && interrupted > 0 && resumed > 0; };
  for (std::uint64_t i = 0; i < 12 || (i < 100 && !all_seen()); ++i) {
    const int signal = i % 2 == 0 ? SIGKILL : SIGINT;
    const Process process(folder.Path(), command);
    std::this_thread::sleep_for(whole * (random.Bits32(i) % 500) / 1000);
    process.Kill(signal);
    const Ended ended = process.Wait();
    INFO(ended.errors);
    REQUIRE((ended.code == 0 || ended.code == 128 + signal));
    killed += ended.code == 128 + SIGKILL;
    interrupted += ended.code == 128 + SIGINT;
    resumed += ended.errors.find("continues at step") != std::string::npos;
    if (ended.errors.find("interrupted;") != std::string::npos) {
      CHECK(ended.code == 130);
      CHECK(ended.errors.find("To continue: fp4lab study run") != std::string::npos);
    }
  }
  CHECK(killed > 0);
  CHECK(interrupted > 0);
  CHECK(resumed > 0);
  REQUIRE(Process(folder.Path(), command).Wait().code == 0);
  const Json commit = ReadJsonFile(folder.Path() / "whole/results.json")["fp4lab_commit"];
  CHECK(commit.get<std::string>().size() >= 7);
  CHECK(Timeless(folder.Path() / "pieces/results.json") ==
        Timeless(folder.Path() / "whole/results.json"));
}

TEST_CASE("Two processes in one folder, both killed at random moments, end with the same results",
          "[study]") {
  const TestFolder folder("pair");
  const std::string file = StudyFile(folder, SlowerStudyJson());
  const std::string out = " --out-dir '" + folder.Path().string() + "/";
  const std::string options = " --jobs 1 --threads-per-job 1 --checkpoint-seconds 0.02";
  const auto start = std::chrono::steady_clock::now();
  REQUIRE(Process(folder.Path(), "study run " + file + out + "whole'" + options).Wait().code == 0);
  const auto whole = std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::steady_clock::now() - start);
  const std::string command = "study run " + file + out + "both'" + options;
  const TestFolder a("pair-a"), b("pair-b");
  const RandomStream random{.seed = 37};
  int killed = 0;
  for (std::uint64_t i = 0; i < 8; ++i) {
    const Process first(a.Path(), command), second(b.Path(), command);
    std::this_thread::sleep_for(whole * (random.Bits32(2 * i) % 400) / 1000);
    first.Kill(SIGKILL);
    std::this_thread::sleep_for(whole * (random.Bits32(2 * i + 1) % 100) / 1000);
    second.Kill(SIGKILL);
    for (const Process* process : {&first, &second}) {
      const Ended ended = process->Wait();
      INFO(ended.errors);
      REQUIRE((ended.code == 0 || ended.code == 128 + SIGKILL));
      killed += ended.code != 0;
    }
  }
  CHECK(killed > 0);
  // A result that a disk lost half of is made again.
  std::filesystem::create_directories(folder.Path() / "both/runs");
  for (const auto& run : std::filesystem::directory_iterator(folder.Path() / "both/runs")) {
    if (Exists(run.path() / "result.json")) {
      std::filesystem::resize_file(run.path() / "result.json", 100);
      break;
    }
  }
  const Process first(a.Path(), command), second(b.Path(), command);
  const Ended one = first.Wait(), two = second.Wait();
  INFO(one.errors << two.errors);
  REQUIRE(one.code == 0);
  REQUIRE(two.code == 0);
  CHECK(Timeless(folder.Path() / "both/results.json") ==
        Timeless(folder.Path() / "whole/results.json"));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.Path() / "both")) {
    INFO(entry.path());
    CHECK(entry.path().filename().string().find(".lock") == std::string::npos);
  }
}

TEST_CASE("Signals of schedulers stop a study at its checkpoints", "[study]") {
  const TestFolder folder("scheduler");
  Json json = SlowerStudyJson();
  json["budgets"] = {4000 * 128};
  const std::string file = StudyFile(folder, json);
  for (const int signal : {SIGUSR1, SIGUSR2}) {
    const std::filesystem::path out = folder.Path() / std::to_string(signal);
    const Process process(folder.Path(), "study run " + file + " --threads-per-job 1 --jobs 1 " +
                                             "--shard 2/2 --out-dir '" + out.string() + "'");
    while (!std::filesystem::exists(out / "runs")) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    process.Kill(signal);
    const Ended ended = process.Wait();
    INFO(ended.errors);
    CHECK(ended.code == 128 + signal);
    CHECK(ended.errors.find("--shard 2/2 --out-dir") != std::string::npos);
    int checkpoints = 0;
    for (const auto& run : std::filesystem::directory_iterator(out / "runs")) {
      checkpoints += Exists(run.path() / "checkpoint.fp4lab") ? 1 : 0;
      CHECK_FALSE(Exists(run.path() / ".lock"));
    }
    CHECK(checkpoints == 1);
  }
}

TEST_CASE("The report of a partial study is of whole seeds and says what is missing", "[study]") {
  const TestFolder folder("partial");
  const std::string file = StudyFile(folder, TinyStudyJson());
  const std::string out = (folder.Path() / "out").string();
  const auto run = [&](const std::string& arguments) {
    return Process(folder.Path(), arguments).Wait();
  };
  const Ended part = run("study run " + file +
                         " --only bf16:1 --only nvfp4:1 --only nvfp4:2 --out-dir '" + out + "'");
  INFO(part.errors);
  REQUIRE(part.code == 0);
  CHECK(part.errors.find("this share is complete; 1 of 4 runs is missing: bf16, seed 2; when") !=
        std::string::npos);
  CHECK_FALSE(Exists(out + "/results.json"));
  const Ended report = run("study report '" + out + "'");
  INFO(report.errors);
  CHECK(report.code == 0);
  CHECK(report.errors.find("1 of 4 runs is missing: bf16, seed 2; the report is of the 1 seeds") !=
        std::string::npos);
  CHECK(ReadJsonFile(out + "/results.json").at("runs").size() == 2);
  CHECK(run("study collect '" + out + "'").code == 1);
  CHECK(run("study run " + file + " --only bf16:2 --out-dir '" + out + "'").code == 0);
  CHECK(run("study collect '" + out + "'").code == 0);
  CHECK(ReadJsonFile(out + "/results.json").at("runs").size() == 4);
  for (const char* shard : {"0/2", "3/2", "1", "1/", "/2", "01/2", "1/2x", "-1/2"}) {
    const Ended bad = run("study run " + file + " --shard " + shard);
    CHECK(bad.code == 1);
    CHECK(Lines(bad.errors) == 1);
    CHECK(bad.errors.find("is not I/N with whole numbers") != std::string::npos);
  }
}

TEST_CASE("Bad input ends with one line and exit code 1", "[study]") {
  const TestFolder folder("bad");
  const std::string file = StudyFile(folder, TinyStudyJson());
  const auto refuses = [&](const std::string& arguments, const std::string& reason) {
    const Ended ended = Process(folder.Path(), arguments).Wait();
    INFO(arguments << "\n" << ended.errors);
    CHECK(ended.code == 1);
    CHECK(Lines(ended.errors) == 1);
    CHECK(ended.errors.find("error: ") == 0);
    CHECK(ended.errors.find(reason) != std::string::npos);
  };
  refuses("study run /nowhere/x.json", "/nowhere/x.json: cannot be read");
  refuses("study check /nowhere/x.json", "/nowhere/x.json: cannot be read");
  refuses("study run " + file + " --out-dir " + file + "/out", "cannot be written to");
  refuses("study run " + file + " --out-dir /proc/out", "cannot be written to");
  Json json = TinyStudyJson();
  json["seed"] = 1;
  refuses("study show " + StudyFile(folder, json), "tiny.json#/seed: unknown key");
  json = TinyStudyJson();
  json["data"] = {{"text", "/nowhere/text.txt"}};
  refuses("study run " + StudyFile(folder, json), "/nowhere/text.txt");
  WriteFileAtomically(folder.Path() / "tiny.json", std::string_view("{\"name\": \n"));
  refuses("study run " + file, "line 2");
}

TEST_CASE("study check refuses what study run refuses, with the same line", "[study]") {
  const TestFolder folder("check");
  const auto refuses = [&](const Json& json, const std::string& reason) {
    const std::string file = StudyFile(folder, json);
    const Ended check = Process(folder.Path(), "study check " + file).Wait();
    const Ended run = Process(folder.Path(),
                              "study run " + file + " --out-dir '" + folder.Path().string() + "/o'")
                          .Wait();
    INFO(check.errors << run.errors);
    CHECK(check.code == 1);
    CHECK(Lines(check.errors) == 1);
    // The memory that is left changes from one moment to the next.
    CHECK(check.errors.substr(0, check.errors.find("this machine")) ==
          run.errors.substr(0, run.errors.find("this machine")));
    CHECK(check.errors.find(reason) != std::string::npos);
  };
  const auto with = [](const char* key, const Json& value) {
    Json json = TinyStudyJson();
    json[key] = value;
    return json;
  };
  refuses(with("data", {{"source", "austne"}}), "austne: ");
  refuses(with("data", {{"text", "/nowhere/text.txt"}}), "/nowhere/text.txt");
  refuses(with("data", {{"source", "synthetic"}, {"synthetic_bytes", 300}}), "validation part");
  Json small = TinyStudyJson();
  small["model"]["vocabulary"] = 16;
  refuses(small, "#/model/vocabulary: the corpus synthetic has");
  refuses(with("model", {{"layers", 400}, {"d_model", 8192}, {"ffn", 32768}, {"sequence", 32}}),
          "#/model: ");
  if (CudaGpus() == 0) refuses(with("device", "cuda"), "\"cuda\"");
}

TEST_CASE("study check says what operands keep of their base, and what the text lacks", "[study]") {
  const TestFolder folder("notes");
  Json json = TinyStudyJson();
  json["evaluation"] = {{"tokens", 100'000}};
  json["arms"]["mixed"] = {
      {"recipe", {{"base", "te_nvfp4"}, {"wgrad", {{"grad", {{"format", "mxfp8_e4m3.rceil"}}}}}}}};
  json["arms"]["chosen"] = {
      {"recipe",
       {{"base", "te_nvfp4"},
        {"dgrad", {{"grad", {{"format", "mxfp8_e4m3.rceil"}, {"rounding", "nearest_even"}}}}}}}};
  const Ended check = Process(folder.Path(), "study check " + StudyFile(folder, json)).Wait();
  INFO(check.errors);
  CHECK(check.code == 0);
  CHECK(Lines(check.errors) == 2);
  CHECK(check.errors.find("#/arms/mixed/recipe/wgrad/grad: keeps stochastic rounding with 16 bits, "
                          "the Hadamard transform of 16 elements of te_nvfp4; to choose, state "
                          "\"rounding\", \"hadamard\"") != std::string::npos);
  CHECK(check.errors.find("tiny: evaluation.tokens is 100000, and the validation part of synthetic "
                          "has 1000: 992 are evaluated") != std::string::npos);
}

TEST_CASE("study check prints which linears of each arm have which recipe", "[study]") {
  const TestFolder folder("plan");
  Json json = TinyStudyJson();
  Json list = {{"rest", "bf16"}};
  list["rules"] = Json::array({{{"linears", "*.mlp.*"}, {"recipe", "te_nvfp4"}}});
  json["arms"]["mixed"] = {{"recipe", list}};
  const std::string file = StudyFile(folder, json);
  const Ended check = Process(folder.Path(), "study check " + file).Wait();
  INFO(check.errors);
  CHECK(check.code == 0);
  for (const char* line :
       {"  arm     steps   blocks   linears                        recipe     rule\n",
        "  mixed   all     all      attention.qkv, attention.out   bf16       rest\n",
        "  mixed   all     all      mlp.up, mlp.down               te_nvfp4   0\n"}) {
    CAPTURE(check.output, line);
    CHECK(check.output.find(line) != std::string::npos);
  }
  json["arms"]["mixed"]["recipe"]["rules"][0]["linears"] = "*.mpl.*";
  const Ended wrong = Process(folder.Path(), "study check " + StudyFile(folder, json)).Wait();
  CHECK(wrong.code == 1);
  CHECK(wrong.errors.find("#/arms/mixed/recipe/rules/0/linears: \"*.mpl.*\" matches no linear") !=
        std::string::npos);
}

TEST_CASE("A study whose runs all diverged writes its report and fails", "[study]") {
  const TestFolder folder("diverged");
  Json json = TinyStudyJson();
  json["schedule"]["learning_rate"] = 1e30;
  json["optimizer"] = {{"clip", 0}};
  const std::string out = (folder.Path() / "out").string();
  const Ended ended =
      Process(folder.Path(), "study run " + StudyFile(folder, json) + " --out-dir '" + out + "'")
          .Wait();
  INFO(ended.errors);
  CHECK(ended.code == 1);
  CHECK(ended.errors.find("error: tiny: every run diverged, so nothing is compared") !=
        std::string::npos);
  CHECK(std::filesystem::exists(out + "/report.html"));
}

TEST_CASE("What would fail after the training is refused before it", "[study]") {
  const TestFolder folder("before");
  const std::string out = (folder.Path() / "out").string();
  const auto refuses = [&](const Json& json, const std::string& reason,
                           const std::string& options = "") {
    const Ended ended = Process(folder.Path(), "study run " + StudyFile(folder, json) +
                                                   " --out-dir '" + out + "'" + options)
                            .Wait();
    INFO(ended.errors);
    CHECK(ended.code == 1);
    CHECK(Lines(ended.errors) == 1);
    CHECK(ended.errors.find(reason) != std::string::npos);
    CHECK_FALSE(std::filesystem::exists(out + "/runs"));
  };
  Json json = TinyStudyJson();
  json["schedule"]["decay_fraction"] = 1;
  refuses(json, "tiny.json#/schedule/decay_fraction: ");
  json = TinyStudyJson();
  json["micro_batches"] = 0;
  refuses(json, "tiny.json#/micro_batches: must be at least 1");
  json = TinyStudyJson();
  json["model"] = {{"layers", 400}, {"d_model", 8192}, {"ffn", 32768}, {"sequence", 32}};
  refuses(json, "#/model: ");
  refuses(TinyStudyJson(), "--jobs 1024", " --jobs 1024 --threads-per-job 1024");
  for (const char* name : {"results.json", "report.html"}) {
    std::filesystem::create_directories(std::filesystem::path(out) / name);
    refuses(TinyStudyJson(), "/" + std::string(name) + ": ");
    std::filesystem::remove(std::filesystem::path(out) / name);
  }
}

TEST_CASE("A study under nohup goes on after a hangup, any other stops at its checkpoints",
          "[study]") {
  const TestFolder folder("hangup");
  const std::string file = StudyFile(folder, SlowerStudyJson());
  const auto hang_up = [&](const std::string& out, const std::string& prelude) {
    const std::filesystem::path path = folder.Path() / out;
    const Process process(folder.Path(),
                          "study run " + file + " --device cpu --out-dir '" + path.string() +
                              "' --checkpoint-seconds 0.02",
                          prelude);
    while (!std::filesystem::exists(path / "runs")) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    process.Kill(SIGHUP);
    return process.Wait();
  };
  const Ended stopped = hang_up("stopped", "");
  INFO(stopped.errors);
  CHECK(stopped.code == 128 + SIGHUP);
  CHECK(stopped.errors.find("To continue: fp4lab study run") != std::string::npos);
  CHECK(stopped.errors.find(" --device cpu --out-dir") != std::string::npos);
  CHECK(hang_up("kept", "trap '' HUP; ").code == 0);
  CHECK(std::filesystem::exists(folder.Path() / "kept/results.json"));
}

TEST_CASE("A disk that fills up ends the study with one line, and a later run goes on", "[study]") {
  const TestFolder folder("full");
  const std::string file = StudyFile(folder, TinyStudyJson());
  const std::string command =
      "study run " + file + " --out-dir '" + folder.Path().string() + "/out' --threads-per-job 1";
  // Files of at most 64 KiB: a checkpoint is larger, study.json is not.
  const Ended full = Process(folder.Path(), command, "trap '' XFSZ; ulimit -f 128; ").Wait();
  INFO(full.errors);
  CHECK(full.code == 1);
  CHECK(full.errors.find("checkpoint.fp4lab: cannot be written: File too large") !=
        std::string::npos);
  CHECK_FALSE(std::filesystem::exists(folder.Path() / "out/results.json"));
  CHECK(Process(folder.Path(), command).Wait().code == 0);
  CHECK(std::filesystem::exists(folder.Path() / "out/results.json"));
}

TEST_CASE("study show prints a file that reads back as itself", "[study]") {
  const TestFolder folder("show");
  const std::string file = StudyFile(folder, TinyStudyJson());
  const std::string shown = (folder.Path() / "shown.json").string();
  const std::string command = "\"$FP4LAB_PROGRAM\" study show ";
  REQUIRE(std::system((command + file + " > '" + shown + "'").c_str()) == 0);
  REQUIRE(std::system((command + "'" + shown + "' > '" + shown + ".2'").c_str()) == 0);
  CHECK(ReadFile(shown) == ReadFile(shown + ".2"));
}

}  // namespace
}  // namespace fp4lab::study
