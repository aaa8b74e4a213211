// Rows of `fp4lab bench`: whole commands on a file of 1 GiB, against reading the file and writing
// the result.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/json.h"
#include "fp4lab/io/process.h"
#include "fp4lab/io/temporary_folder.h"
#include "fp4lab/measure/machine.h"
#include "tools/bench/bench_rows.h"
#include "tools/options/commands.h"
#include "tools/options/print.h"

namespace fp4lab::tools {
namespace {

using measure::Cell;

constexpr const char* kFilesTopic = "Commands on a file of 1 GiB of FP32 (--quick: 256 MiB)";

// A folder with a raw matrix and the result of `fp4lab quantize` on it.
class Files {
 public:
  explicit Files(const BenchContext& c) : context_(c), side_(c.quick ? 8192 : 16384) {
    WriteInput();
    Run(Command("quantize"));
    result_ = ReadFile(folder_ / "q.safetensors");
  }

  std::vector<std::string> Command(const std::string& name) const {
    const std::string shape = std::to_string(side_) + "x" + std::to_string(side_);
    const bool quantizes = name == "quantize";
    return {name, quantizes ? "x.f32" : "--input=x.f32", "--shape=" + shape, "--dtype=float32",
            quantizes ? "--out=q.safetensors" : "--stored=q.safetensors"};
  }
  // Runs `fp4lab ARGUMENTS` in the folder.
  ProcessResult Run(const std::vector<std::string>& arguments) const {
    const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
    std::vector<std::string> all = {program};
    all.insert(all.end(), arguments.begin(), arguments.end());
    ProcessResult run =
        RunProcess(all, {.environment = {{"FP4LAB_TARGET", context_.simd},
                                         {"OMP_NUM_THREADS", std::to_string(context_.threads)}},
                         .folder = folder_.path(),
                         .timeout_seconds = 120,
                         .stop = context_.stop});
    if (run.stopped) throw measure::Stopped{};
    if (run.exit_code != 0) throw Error("fp4lab " + arguments[0], "failed: " + run.error);
    return run;
  }
  // The least work of such a command: reads the input and writes the bytes of the result. Unlike
  // the command it does not flush them to the disk.
  void ReadAndWrite() const {
    OpenFile(folder_ / "x.f32").ReadAll([](std::span<const std::byte>) {});
    std::ofstream copy(folder_ / "copy", std::ios::binary);
    copy.write(result_.data(), static_cast<std::streamsize>(result_.size()));
  }
  double Bytes() const {
    return static_cast<double>(side_ * side_ * sizeof(float) + result_.size());
  }

 private:
  // Writes values uniform in [-1, 1), in no order that a cache or a branch predictor could exploit.
  void WriteInput() const {
    std::vector<float> row(side_);
    std::uint64_t state = 1;
    WriteFileAtomically(folder_ / "x.f32", [&](const ByteSink& sink) {
      for (std::size_t r = 0; r < side_; ++r) {
        for (float& x : row) {
          state = state * 6364136223846793005u + 1442695040888963407u;
          x = static_cast<float>(static_cast<std::int32_t>(state >> 32)) * 0x1p-31f;
        }
        sink(std::as_bytes(std::span(row)));
      }
    });
  }

  const BenchContext& context_;
  TemporaryFolder folder_;
  std::size_t side_;
  std::string result_;
};

BenchEntry TimeEntry(const std::string& command) {
  BenchEntry e{.id = "file." + command,
               .topic = kFilesTopic,
               .what = "fp4lab " + command + ", nvfp4.te, all threads",
               .unit = "s",
               .against = "reading the input and writing the result",
               .target = AtMost(3)};
  e.measure = [command](const BenchContext& c) {
    const Files files(c);
    return CompareTimes(c.AllThreads(), 1, [&] { files.Run(files.Command(command)); },
                        {{"", [&] { files.ReadAndWrite(); }}});
  };
  return e;
}

BenchEntry MemoryEntry(const std::string& command) {
  BenchEntry e{.id = "file." + command + ".memory",
               .topic = kFilesTopic,
               .what = "peak memory of fp4lab " + command + ", pages of mapped files counted",
               .unit = "MiB",
               .against = "bytes of the input and the result",
               .target = AtMost(1.5),
               .measure = {},
               .depends_on_simd = false};
  e.measure = [command](const BenchContext& c) {
    const Files files(c);
    std::string words;
    for (const std::string& word : files.Command(command)) words += word + " ";
    const std::string output = files.Run({"bench", "--probe-command", words}).output;
    const std::string last = output.substr(output.rfind('{'));
    const double bytes = ParseJson(last, "probe").at("bytes").get<double>();
    const auto one = [](double x) { return measure::Summary{x, x, x, 1}; };
    return Cell{.value = one(bytes / 0x1p20),
                .reference = one(files.Bytes() / 0x1p20),
                .ratio = one(bytes / files.Bytes())};
  };
  return e;
}

}  // namespace

void ProbeCommand(const std::string& words) {
  CLI::App app;
  int exit_code = 0;
  AddQuantize(app, &exit_code);
  AddVerify(app, &exit_code);
  app.parse(words);
  PrintJson(Json{{"bytes", measure::PeakMemory()}});
}

std::vector<BenchEntry> FileEntries() {
  std::vector<BenchEntry> entries;
  for (const char* command : {"quantize", "verify"}) {
    entries.push_back(TimeEntry(command));
    entries.push_back(MemoryEntry(command));
  }
  return entries;
}

}  // namespace fp4lab::tools
