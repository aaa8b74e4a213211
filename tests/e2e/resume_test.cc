// Training runs that are stopped or killed, and resumed.
#include <chrono>
#include <random>
#include <thread>

#include "fp4lab/io/json.h"
#include "fp4lab/io/temporary_folder.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"

namespace fp4lab {
namespace {

constexpr int kSteps = 240;

std::vector<std::string> Arguments(const std::string& out_dir) {
  // A text beside the validation part.
  const std::filesystem::path text = std::filesystem::path(out_dir).parent_path() / "more.txt";
  WriteFileAtomically(text, std::string(700, 'a') + std::string(300, 'b'));
  return {"train",
          "--set",
          "evaluation.texts.more.text=" + text.string(),
          "--data",
          "synthetic",
          "--recipe",
          "te_nvfp4",
          "--steps",
          std::to_string(kSteps),
          "--seed",
          "11",
          "--eval-every",
          "60",
          "--threads",
          "1",
          "--out-dir",
          out_dir,
          "--set",
          "data.synthetic_bytes=20000",
          "--set",
          "model.layers=1",
          "--set",
          "model.d_model=32",
          "--set",
          "model.heads=2",
          "--set",
          "model.ffn=64",
          "--set",
          "model.sequence=32",
          "--set",
          "batch=2",
          "--set",
          "evaluation.tokens=512",
          "--set",
          "checkpoint_every=25",
          "--diagnostics-every",
          "40",
          "--set",
          "diagnostics.tokens=64"};
}

std::vector<std::string> With(std::vector<std::string> arguments, const char* more) {
  arguments.emplace_back(more);
  return arguments;
}

std::size_t CountLines(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return 0;
  const std::string text = ReadFile(path);
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

// The lines of a metrics file without the values that depend on the clock.
std::vector<Json> Lines(const std::filesystem::path& path) {
  std::vector<Json> lines;
  const std::string text = ReadFile(path);
  std::size_t begin = 0;
  for (std::size_t end = text.find('\n'); end != text.npos; end = text.find('\n', begin)) {
    Json line = ParseJson(text.substr(begin, end - begin), path.string());
    for (auto member = line.begin(); member != line.end();) {
      member = member.key().starts_with("perf/") ? line.erase(member) : std::next(member);
    }
    lines.push_back(std::move(line));
    begin = end + 1;
  }
  CHECK(begin == text.size());
  return lines;
}

// Lets the run write `more` further lines of metrics, then signals it.
void InterruptAfter(Child* child, const std::filesystem::path& metrics, std::size_t more,
                    int signal) {
  const std::size_t goal = CountLines(metrics) + more;
  while (child->IsRunning() && CountLines(metrics) < goal) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  child->Signal(signal);
}

void CheckSameRun(const std::filesystem::path& a, const std::filesystem::path& b) {
  CHECK((ReadFile(a / "checkpoint.fp4lab") == ReadFile(b / "checkpoint.fp4lab")));
  CHECK(ReadFile(a / "config.json") == ReadFile(b / "config.json"));
  CHECK((Lines(a / "metrics.jsonl") == Lines(b / "metrics.jsonl")));
  CHECK((Lines(a / "diagnostics.jsonl") == Lines(b / "diagnostics.jsonl")));
  CHECK(ReadFile(a / "observations.jsonl") == ReadFile(b / "observations.jsonl"));
}

TEST_CASE("A run stopped by SIGINT, SIGTERM or SIGKILL anywhere goes on to the same bytes",
          "[e2e]") {
  const TemporaryFolder folder;
  const std::filesystem::path whole = folder / "whole";
  Child uninterrupted(Arguments(whole.string()), folder / "whole.txt");
  REQUIRE(uninterrupted.Wait() == 0);
  CHECK(Lines(whole / "metrics.jsonl").size() == kSteps + kSteps / 60);
  const Json last_line = Lines(whole / "metrics.jsonl").back();
  for (const char* name : {"avg_loss", "avg_perplexity", "high_precision_avg_loss"}) {
    CAPTURE(name);
    CHECK(last_line.at("eval/" + std::string(name)) !=
          last_line.at("eval/more/" + std::string(name)));
  }
  CHECK(uninterrupted.Output().find("\n  more ") != std::string::npos);
  CHECK(Lines(whole / "diagnostics.jsonl").size() == 4 * 4 * 5);
  CHECK(Lines(whole / "observations.jsonl").size() == 1 + kSteps / 40);

  std::mt19937 random(std::random_device{}());
  for (const int signal : {SIGINT, SIGTERM, SIGKILL}) {
    const std::filesystem::path cut = folder / ("cut" + std::to_string(signal));
    int stops = 0;
    for (int i = 0; i < 4; ++i) {
      Child child(With(Arguments(cut.string()), "--resume"), folder / "cut.txt");
      const std::size_t more = random() % (kSteps / 5);
      CAPTURE(signal, i, more);
      InterruptAfter(&child, cut / "metrics.jsonl", more, signal);
      const int code = child.Wait();
      const std::string output = child.Output();
      CAPTURE(output);
      if (signal == SIGKILL) {
        CHECK(code == -SIGKILL);
      } else if (code == 128 + signal) {
        CHECK(output.find("continue with: fp4lab train --resume --out-dir " + cut.string()) !=
              output.npos);
      } else {
        CHECK(code == -signal);  // the signal came before the loop: nothing to save yet
      }
      ++stops;
    }
    CHECK(stops == 4);
    WriteFileAtomically(cut / "checkpoint.fp4lab.partial-0123456789abcdef", std::string("half"));
    // --resume needs nothing but the folder, once the run has its configuration.
    Child last({"train", "--resume", "--out-dir", cut.string()}, folder / "last.txt");
    CAPTURE(last.Output());
    REQUIRE(last.Wait() == 0);
    CheckSameRun(whole, cut);
    for (const auto& entry : std::filesystem::directory_iterator(cut)) {  // removed on resume
      CHECK(entry.path().string().find(".partial-") == std::string::npos);
    }
  }
}

TEST_CASE("A hangup stops a run at a checkpoint, and one that nohup had ignored does nothing",
          "[e2e]") {
  const TemporaryFolder folder;
  const std::filesystem::path cut = folder / "cut", kept = folder / "kept";
  std::vector<std::string> on_device = With(Arguments(cut.string()), "--device");
  Child stopped(With(on_device, "cpu"), folder / "cut.txt");
  InterruptAfter(&stopped, cut / "metrics.jsonl", 5, SIGHUP);
  CHECK(stopped.Wait() == 128 + SIGHUP);
  CHECK(stopped.Output().find("continue with: fp4lab train --resume --out-dir " + cut.string() +
                              " --device cpu\n") != std::string::npos);
  CHECK(std::filesystem::exists(cut / "checkpoint.fp4lab"));

  const auto before = ::signal(SIGHUP, SIG_IGN);  // the child inherits it, as under nohup
  Child ignoring(Arguments(kept.string()), folder / "kept.txt");
  ::signal(SIGHUP, before);
  InterruptAfter(&ignoring, kept / "metrics.jsonl", 5, SIGHUP);
  CHECK(ignoring.Wait() == 0);
  CHECK(CountLines(kept / "metrics.jsonl") == kSteps + kSteps / 60);
}

TEST_CASE("Resuming a complete run repeats its result and changes no file", "[e2e]") {
  const TemporaryFolder folder;
  const std::filesystem::path run = folder / "run";
  Child first(Arguments(run.string()), folder / "first.txt");
  REQUIRE(first.Wait() == 0);
  const std::string metrics = ReadFile(run / "metrics.jsonl");
  Child again({"train", "--resume", "--out-dir", run.string()}, folder / "again.txt");
  REQUIRE(again.Wait() == 0);
  CHECK(ReadFile(run / "metrics.jsonl") == metrics);
  const std::string said = first.Output();
  CHECK(again.Output() == said.substr(said.rfind("step 240  validation loss")));
}

}  // namespace
}  // namespace fp4lab
