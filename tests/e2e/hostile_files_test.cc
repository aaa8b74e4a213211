// The program against files with false lengths, endless devices, folders and links in place of
// files, and names with terminal control sequences.
#include <signal.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "fp4lab/exchange/matrix_file.h"
#include "fp4lab/exchange/stored_file.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/json.h"
#include "fp4lab/io/temporary_folder.h"
#include "fp4lab/io/tensors/npy.h"
#include "tests/support/catch.h"
#include "tests/support/golden.h"
#include "tests/support/program.h"
#include "tests/support/sanitizer.h"

namespace fp4lab {
namespace {

namespace fs = std::filesystem;

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

// `fp4lab ARGUMENTS` through a shell, with 1 GiB of address space where it can be limited.
ProcessResult RunInLittleMemory(const fs::path& folder, const std::string& arguments) {
  const std::string limit = kSanitized ? "" : "ulimit -v 1048576; ";
  return RunProcess({"sh", "-c", limit + "exec '" + Program() + "' " + arguments},
                    {.folder = folder, .timeout_seconds = kProgramSeconds});
}

// A study that trains in a moment.
constexpr const char* kTinyStudy = R"({"name": "tiny", "data": {"source": "synthetic"}, "batch": 2,
  "model": {"layers": 1, "d_model": 32, "heads": 2, "ffn": 32, "sequence": 32},
  "schedule": {"warmup_steps": 1}, "evaluation": {"tokens": 512, "chunk_tokens": 128},
  "arms": {"bf16": {"recipe": "bf16"}}, "seeds": [1], "budgets": [640]})";

// A folder with x.npy, q.safetensors, a study and a run configuration.
struct Workplace {
  TemporaryFolder folder;

  Workplace() {
    Matrix<float> x(32, 64);
    for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] = static_cast<float>(i % 13) - 6;
    WriteMatrix((folder / "x.npy").string(), x.View());
    REQUIRE(Run({"quantize", "x.npy", "--out", "q.safetensors"}).exit_code == 0);
  }
  ProcessResult Run(const std::vector<std::string>& arguments) const {
    return RunProgram(arguments, {.folder = folder.path()});
  }
  // `fp4lab ARGUMENTS` through a shell.
  ProcessResult Shell(const std::string& arguments) const {
    return RunProcess({"sh", "-c", "exec '" + Program() + "' " + arguments},
                      {.folder = folder.path(), .timeout_seconds = kProgramSeconds});
  }
  void Write(const std::string& name, std::string_view text) const {
    WriteFileAtomically(folder / name, text);
  }
  void WriteSparse(const std::string& name) const {
    Write(name, "");
    fs::resize_file(folder / name, std::uintmax_t{1} << 40);
  }
};

// The last line of a text: errors come after the progress of long commands.
std::string LastLine(const std::string& text) {
  if (text.size() < 2) return text;
  return text.substr(text.rfind('\n', text.size() - 2) + 1);
}

void CheckOneLine(const ProcessResult& run, const std::string& place) {
  INFO(run.error);
  CHECK(run.exit_code != 0);
  CHECK(run.exit_code < 128);
  CHECK(IsOneLine(run.error));
  CHECK_THAT(run.error, ContainsSubstring(place));
  CHECK_THAT(run.error, !ContainsSubstring("bad_alloc"));
  CHECK_THAT(run.error, !ContainsSubstring("json.exception"));
}

TEST_CASE("A sparse file of 1 TB is refused with one line that names it", "[e2e][files]") {
  const Workplace w;
  for (const char* name : {"s.npy", "s.npz", "s.safetensors", "s.gguf", "s.raw", "s.json"}) {
    w.WriteSparse(name);
  }
  for (const std::string arguments :
       {"quantize s.npy --out o.npz", "quantize s.npz --out o.npz", "inspect s.safetensors",
        "inspect s.gguf", "quantize s.raw --shape 4x32 --dtype bfloat16 --out o.npz",
        "quantize s.raw --shape 16384x33554432 --dtype bfloat16 --out o.npz", "study check s.json",
        "train --config s.json --out-dir t", "study report s.json",
        "train --text s.raw --out-dir t", "train --tokens s.raw --out-dir t",
        "verify --input x.npy --codes s.raw", "verify --pack s.safetensors"}) {
    CAPTURE(arguments);
    CheckOneLine(RunInLittleMemory(w.folder.path(), arguments), "s.");
    CheckOneLine(RunProcess({"sh", "-c", "exec '" + Program() + "' " + arguments},
                            {.folder = w.folder.path(), .timeout_seconds = kProgramSeconds}),
                 "s.");
    CHECK_FALSE(Exists(w.folder / "o.npz"));
  }
}

TEST_CASE("A device without an end is refused with one line that names it", "[e2e][files]") {
  const Workplace w;
  for (const std::string arguments :
       {"quantize /dev/zero --shape 4x32 --dtype bfloat16 --out o.npz",
        "verify --input x.npy --codes /dev/zero", "train --text /dev/zero --out-dir t"}) {
    CAPTURE(arguments);
    CheckOneLine(RunInLittleMemory(w.folder.path(), arguments), "/dev/zero");
  }
}

// An .npz with one array "x" of 2^20 x `megabytes` zero bytes, packed a thousand to one.
void WriteBomb(const fs::path& path, std::uint32_t megabytes) {
  std::string packed;
  std::uint32_t check = 0, size = 0;
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 1, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  const auto add = [&](const std::string& content, int flush) {
    check = static_cast<std::uint32_t>(crc32(check, reinterpret_cast<const Bytef*>(content.data()),
                                             static_cast<uInt>(content.size())));
    size += static_cast<std::uint32_t>(content.size());
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
    stream.avail_in = static_cast<uInt>(content.size());
    std::string out(std::size_t{1} << 16, '\0');
    do {
      stream.next_out = reinterpret_cast<Bytef*>(out.data());
      stream.avail_out = static_cast<uInt>(out.size());
      deflate(&stream, flush);
      packed.append(out, 0, out.size() - stream.avail_out);
    } while (stream.avail_out == 0);
  };
  std::string header = "{'descr': '|u1', 'fortran_order': False, 'shape': (" +
                       std::to_string(megabytes) + ", 1048576), }";
  header.resize(117, ' ');
  add(std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + "\n", Z_NO_FLUSH);
  const std::string zeros(std::size_t{1} << 20, '\0');
  for (std::uint32_t i = 0; i < megabytes; ++i) add(zeros, Z_NO_FLUSH);
  add("", Z_FINISH);
  deflateEnd(&stream);
  std::string zip;
  const auto number = [&zip](std::uint32_t value, std::size_t bytes) {
    zip.append(reinterpret_cast<const char*>(&value), bytes);
  };
  const auto entry = [&] {  // the fields that both headers share
    for (const std::uint32_t word : {20u, 0u, 8u, 0u, 0x21u}) number(word, 2);
    for (const std::uint32_t word : {check, static_cast<std::uint32_t>(packed.size()), size}) {
      number(word, 4);
    }
    number(5, 2);  // length of the name
    number(0, 2);
  };
  number(0x04034B50, 4);
  entry();
  zip += "x.npy" + packed;
  const auto directory = static_cast<std::uint32_t>(zip.size());
  number(0x02014B50, 4);
  number(20, 2);
  entry();
  for (const std::size_t bytes : {2u, 2u, 2u, 4u, 4u}) number(0, bytes);
  zip += "x.npy";
  const auto end = static_cast<std::uint32_t>(zip.size());
  number(0x06054B50, 4);
  for (const std::uint32_t word : {0u, 0u, 1u, 1u}) number(word, 2);
  number(end - directory, 4);
  number(directory, 4);
  number(0, 2);
  WriteFileAtomically(path, zip);
}

TEST_CASE("An .npz that unpacks to more than memory holds is refused before it is unpacked",
          "[e2e][files]") {
  const Workplace w;
  WriteBomb(w.folder / "small.npz", 1);
  CHECK(w.Run({"quantize", "small.npz", "--dtype", "float8_e4m3fn", "--out", "o.npz"}).exit_code ==
        0);
  WriteBomb(w.folder / "b.npz", 1152);
  REQUIRE(fs::file_size(w.folder / "b.npz") < 10'000'000);
  if (MemoryHasNoLimit()) return;
  CheckOneLine(
      RunInLittleMemory(w.folder.path(), "quantize b.npz --dtype float8_e4m3fn --out big.npz"),
      "b.npz#x: needs 1.1 GiB of memory, but only 1.0 GiB are available");
}

TEST_CASE("A small tensor of a file larger than memory is read", "[e2e][files]") {
  const Workplace w;
  const std::string header =
      R"({"big":{"dtype":"U8","shape":[1099511627776],"data_offsets":[512,1099511628288]},)"
      R"("small":{"dtype":"BF16","shape":[4,64],"data_offsets":[0,512]}})";
  const std::uint64_t length = header.size();
  const std::string file(reinterpret_cast<const char*>(&length), 8);
  w.Write("f.safetensors", file + header);
  fs::resize_file(w.folder / "f.safetensors", 8 + length + 512 + (std::uintmax_t{1} << 40));
  const ProcessResult run = w.Run({"quantize", "f.safetensors#small", "--out", "o.npz"});
  INFO(run.error);
  CHECK(run.exit_code == 0);
  CheckOneLine(w.Run({"quantize", "f.safetensors#big", "--dtype", "float8_e4m3fn", "--out", "o"}),
               "f.safetensors#big: needs 4096.0 GiB");
}

// A sparse matrix of 256 MiB, and its quantized bytes, 36 MiB.
struct LargeWorkplace : Workplace {
  LargeWorkplace() {
    Write("big", "");
    fs::resize_file(folder / "big", std::uintmax_t{256} << 20);
    REQUIRE(Shell("quantize big" + kShape + "--out big.safetensors").exit_code == 0);
  }
  // `fp4lab ARGUMENTS` with so many MiB of memory that no file backs.
  ProcessResult RunWithin(int megabytes, const std::string& arguments) const {
    const std::string limit = "ulimit -d " + std::to_string(1024 * megabytes);
    return RunProcess({"sh", "-c", limit + "; exec '" + Program() + "' " + arguments},
                      {.environment = {{"OMP_NUM_THREADS", "2"}},
                       .folder = folder.path(),
                       .timeout_seconds = kProgramSeconds});
  }
  const std::string kShape = " --shape 8192x8192 --dtype float32 ";
};

TEST_CASE("A large input is mapped, not copied", "[e2e][files]") {
  if (MemoryHasNoLimit()) return;
  const LargeWorkplace w;
  for (const std::string& arguments :
       {"quantize big" + w.kShape + "--out again.safetensors",
        "verify --input big" + w.kShape + "--stored big.safetensors"}) {
    const ProcessResult run = w.RunWithin(160, arguments);
    INFO(run.error);
    CHECK(run.exit_code == 0);
  }
}

TEST_CASE("Memory that ends anywhere is reported with the command and the limit", "[e2e][files]") {
  if (MemoryHasNoLimit()) return;
  const LargeWorkplace w;
  for (int megabytes = 32; megabytes <= 192; megabytes += 8) {
    for (const std::string name : {"convert", "dequantize"}) {
      const ProcessResult run =
          w.RunWithin(megabytes, name + " big.safetensors --out " + name + ".npz");
      CAPTURE(name, megabytes);
      if (run.exit_code == 0) continue;
      CheckOneLine(run, "memory");
      CHECK_THAT(run.error, ContainsSubstring("ulimit -d") || ContainsSubstring("big.safetensors"));
      CHECK_FALSE(Exists(w.folder / (name + ".npz")));
    }
  }
  const ProcessResult run = w.RunWithin(48, "dequantize big.safetensors --out o.npy");
  CheckOneLine(run, "fp4lab dequantize: out of memory: ulimit -d has ");
}

TEST_CASE("A case stream of 38 bytes that claims gigabytes takes no memory", "[e2e][files]") {
  const Workplace w;
  std::string stream = "fp4lab-answers 1\n";
  for (const std::uint32_t number : {0u, 0u, 1u << 30, 1u << 30, 1u << 28}) {
    stream.append(reinterpret_cast<const char*>(&number), 4);
  }
  stream += "x";
  REQUIRE(stream.size() == 38);
  w.Write("s", stream);
  CheckOneLine(RunInLittleMemory(w.folder.path(), "verify --stream s"), "s: ends within record 0");
  std::string cases = "fp4lab-cases 1 dialect=nvfp4.te dtype=fp32 count=1\n";
  for (const std::uint32_t number : {0u, 0u, 1u << 14, 1u << 14, 1u}) {
    cases.append(reinterpret_cast<const char*>(&number), 4);
  }
  w.Write("c", cases);
  CheckOneLine(RunInLittleMemory(w.folder.path(), "cases answer < c"),
               "standard input: ends within a case");
  for (const auto& [rows, cols] : {std::pair{~0u, 0u}, std::pair{0u, ~0u}}) {
    std::string empty = cases.substr(0, cases.find('\n') + 1);
    for (const std::uint32_t number : {7u, 0u, rows, cols, 0u}) {
      empty.append(reinterpret_cast<const char*>(&number), 4);
    }
    w.Write("c", empty);
    CheckOneLine(RunInLittleMemory(w.folder.path(), "cases answer < c"),
                 "standard input: case 7 has no elements");
  }
}

TEST_CASE("A column-major array of 100,000 axes is refused at once", "[e2e][files]") {
  const Workplace w;
  std::string shape = "(", header;
  for (int i = 0; i < 100'000; ++i) shape += "1,";
  header = "{'descr': '<f4', 'fortran_order': True, 'shape': " + shape + ")}\n";
  const auto length = static_cast<std::uint32_t>(header.size());
  std::string file("\x93NUMPY\x02\x00", 8);
  file.append(reinterpret_cast<const char*>(&length), 4);
  w.Write("axes.npy", file + header + std::string(4, '\0'));
  CheckOneLine(w.Run({"quantize", "axes.npy", "--out", "o.npz"}),
               "axes.npy: has more than 64 axes");
}

TEST_CASE("Every command reports a standard output that cannot be written", "[e2e][files]") {
  const Workplace w;
  w.Write("study.json", kTinyStudy);
  for (const char* command :
       {"cases --family signs > cases", "cases answer < cases > answers",
        "crosscheck --dialect mxfp4.floor --write-cases c",
        "crosscheck --answer c --to a --device cpu", "gemm q.safetensors q.safetensors --out d.npy",
        "study run study.json", "gemm --probe nvfp4 --out probe.safetensors"}) {
    CAPTURE(command);
    REQUIRE(w.Shell(command).exit_code == 0);
  }
  const std::string train =
      "train --data synthetic --steps 1 --set model.layers=1 "
      "--set data.synthetic_bytes=20000 --set evaluation.tokens=256 ";
  REQUIRE(w.Shell(train + "--out-dir seen").exit_code == 0);
  // An exit code of 2 is an error of commands that compare.
  const std::vector<std::pair<std::string, int>> commands = {
      {"--help", 1},
      {"--version", 1},
      {"study run --help", 1},
      {"formats", 1},
      {"formats --values e2m1 --json", 1},
      {"dialects", 1},
      {"dialects nvfp4.te --json", 1},
      {"cases --list", 1},
      {"cases --family signs", 1},
      {"cases --family signs --mutation-report", 1},
      {"cases --family signs --out-dir in", 1},
      {"cases answer < cases", 1},
      {"crosscheck --dialect mxfp4.floor --answers a", 2},
      {"data get synthetic", 1},
      {"data list", 1},
      {"data verify", 1},
      {"bench --list", 1},
      {"recipes", 1},
      {"recipes te_nvfp4", 1},
      {"recipes te_nvfp4 --json", 1},
      {"gemm --models", 1},
      {"gemm --probe nvfp4", 1},
      {"gemm --probe nvfp4 --out p.safetensors", 1},
      {"gemm q.safetensors q.safetensors", 1},
      {"study check study.json", 1},
      {"study show study.json", 1},
      {"study plan study.json", 1},
      {"study run study.json", 1},
      {"study report out/tiny", 1},
      {"study watch out/tiny --once", 1},
      {train + "--out-dir \"$(mktemp -d run.XXXXXX)\"", 1},
      {"what-if seen --recipe te_nvfp4 --no-shares --sequences 1", 1},
      {"quantize x.npy --out o.npz", 1},
      {"dequantize q.safetensors --out o.npy", 1},
      {"inspect q.safetensors", 1},
      {"inspect q.safetensors --list", 1},
      {"convert q.safetensors --out c.npz", 1},
      {"pack --input x.npy --out p.safetensors", 1},
      {"verify --input x.npy --stored q.safetensors", 2},
      {"verify --pack p.safetensors", 2},
      {"verify --family signs --stream answers", 2},
      {"verify gemm q.safetensors q.safetensors d.npy", 2},
      {"explain --input x.npy --stored q.safetensors", 2},
      {"identify --input x.npy --stored q.safetensors", 2}};
  for (const auto& [arguments, code] : commands) {
    for (const char* sink : {"> /dev/full", ">&-"}) {
      CAPTURE(arguments, sink);
      const ProcessResult run = w.Shell(arguments + " " + sink);
      INFO(run.error);
      CHECK(run.exit_code == code);
      CHECK_THAT(LastLine(run.error), ContainsSubstring("cannot be written: "));
      CHECK_THAT(LastLine(run.error), StartsWith("error: "));
    }
  }
}

TEST_CASE("A reader that goes away ends the program silently, as of any Unix tool",
          "[e2e][files]") {
  const ProcessResult run =
      RunProcess({"sh", "-c", "{ sleep 0.5; '" + Program() + "' formats; echo $? >&2; } | true"},
                 {.timeout_seconds = kProgramSeconds});
  CHECK(run.error == std::to_string(128 + SIGPIPE) + "\n");
}

TEST_CASE("Control sequences in names from files and command lines are escaped", "[e2e][files]") {
  const Workplace w;
  const std::string bad =
      "\x1b[2J\n\xC2\x9B"
      "31m\x07";
  std::vector<ProcessResult> runs;
  // Control sequences in a dialect's name inside a file, and in names on the command line.
  SafetensorsFile file = ReadSafetensors(w.folder / "q.safetensors");
  Json description = Json::parse(file.metadata.at("fp4lab"));
  description["dialect"] = bad;
  file.metadata["fp4lab"] = description.dump();
  WriteSafetensors(w.folder / "d.safetensors", file);
  for (const char* json : {"", "--json"}) {
    std::vector<std::string> arguments = {"inspect", "d.safetensors"};
    if (*json != '\0') arguments.emplace_back(json);
    runs.push_back(w.Run(arguments));
    CHECK(runs.back().exit_code == 0);
    CHECK_THAT(runs.back().output, ContainsSubstring("\\u001b[2J\\n\\u009b31m\\u0007"));
  }
  CHECK(Json::parse(runs.back().output).at("dialect") == bad);
  runs.push_back(w.Run({"quantize", "x.npy", "--out", bad + ".npz"}));
  CHECK(runs.back().exit_code == 0);
  runs.push_back(w.Run({"inspect", bad + ".npz"}));
  CHECK(runs.back().exit_code == 0);
  runs.push_back(w.Run({"inspect", bad + ".npz", "--input", "x.npy", "--error-map", "map.svg"}));
  CHECK(runs.back().exit_code == 0);
  const std::string svg = ReadFile(w.folder / "map.svg");
  CHECK(svg.find('\x1b') == svg.npos);
  CHECK(svg.find('\x07') == svg.npos);
  runs.push_back(w.Run({"inspect", bad + "absent.npz"}));
  runs.push_back(w.Run({"quantize", "x.npy", "--dialect", bad, "--out", "o.npz"}));
  runs.push_back(w.Run({"formats", bad}));
  runs.push_back(w.Run({bad}));
  w.Write("s.json", Json{{"name", "x"}, {bad, 1}}.dump());
  runs.push_back(w.Run({"study", "check", "s.json"}));
  for (std::size_t i = 5; i < runs.size(); ++i) {
    INFO(runs[i].error);
    CHECK(runs[i].exit_code != 0);
    CHECK(IsOneLine(runs[i].error));
  }
  for (const ProcessResult& run : runs) {
    for (const char* obeyed : {"\x1b", "\xC2\x9B", "\x07"}) {
      CHECK_THAT(run.output + run.error, !ContainsSubstring(obeyed));
    }
  }
}

TEST_CASE("Control sequences in results.json reach neither terminal nor page nor figures",
          "[e2e][files]") {
  const Workplace w;
  Json results =
      ReadJsonFile(SourceDirectory() / "tests" / "study" / "support" / "synthetic_results.json");
  const std::string bad = "\x1b[2J</svg><script>&";
  results["study"]["title"] = bad;
  results["study"]["description"] = bad + "\n";
  results["corpus"]["name"] = bad;
  results["fp4lab_version"] = bad;
  results["name"] = bad;
  for (Json& run : results["runs"]) {
    for (Json& tensor : run["tensors"]) tensor["format"] = bad;
  }
  results["runs"].back()["status"] = "diverged";
  results["runs"].back()["diverged_at"] = {{"step", 3}, {"tensor", bad}};
  w.Write("r.json", results.dump());
  const ProcessResult run = w.Run({"study", "report", "r.json", "--out-dir", "\x1b[2Jout"});
  INFO(run.error);
  CHECK(run.exit_code == 0);
  CHECK((run.output + run.error).find('\x1b') == std::string::npos);
  std::size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(w.folder / "\x1b[2Jout")) {
    if (entry.path().extension() != ".svg" && entry.path().extension() != ".html") continue;
    CAPTURE(entry.path());
    const std::string text = ReadFile(entry.path());
    CHECK(text.find('\x1b') == text.npos);
    CHECK(text.find("<script>&") == text.npos);
    const std::size_t script = text.find("<script");  // the page has one of its own
    CHECK((script != text.npos) == (entry.path().extension() == ".html"));
    if (script != text.npos) CHECK(text.find("<script", script + 1) == text.npos);
    ++files;
  }
  CHECK(files == 6);
  // Arms are names, which go into paths, too.
  for (const char* arm : {"../../up", "a\nb", "a,b", ".hidden", "</svg>", ""}) {
    results["study"]["arm_order"][1] = arm;
    w.Write("arm.json", results.dump());
    CheckOneLine(w.Run({"study", "report", "arm.json", "--out-dir", "arm"}),
                 "arm.json#/study/arm_order/1: ");
    CHECK_FALSE(fs::exists(w.folder / "arm"));
  }
}

TEST_CASE("JSON of a wrong shape is refused with its place, never with the parser's own words",
          "[e2e][files]") {
  const Workplace w;
  w.Write("c.json", R"({"evaluation": 3})");
  CheckOneLine(w.Run({"train", "--config", "c.json", "--eval-every", "5", "--out-dir", "t"}),
               "c.json#/evaluation");
  w.Write("r.json", R"({"schema": "fp4lab.study.results/1", "name": "x", "fp4lab_version": 7})");
  CheckOneLine(w.Run({"study", "report", "r.json"}), "r.json#/fp4lab_version: must be a string");
  // File names that are not UTF-8, in printed text and in JSON.
  const ProcessResult run = w.Run({"quantize", "x.npy", "--out", "\xFF.npz"});
  CHECK(run.exit_code == 0);
  const ProcessResult inspected = w.Run({"inspect", "\xFF.npz", "--json"});
  INFO(inspected.error);
  CHECK(inspected.exit_code == 0);
  CheckOneLine(w.Run({"train", "--set", "data.text=\xFF", "--out-dir", "t"}), "\\xff");
}

TEST_CASE("File errors give the system's reason (strerror)", "[e2e][files]") {
  const Workplace w;
  fs::create_symlink("loop.npy", w.folder / "loop.npy");
  fs::create_symlink("loop.npz", w.folder / "loop.npz");
  fs::create_directory(w.folder / "d.npz");
  const auto says = [&](const std::vector<std::string>& arguments, const std::string& reason) {
    CheckOneLine(w.Run(arguments), reason);
  };
  const std::string loop = std::strerror(ELOOP), no_folder = std::strerror(ENOTDIR);
  says({"quantize", "loop.npy", "--out", "o.npz"}, "loop.npy: cannot be read: " + loop);
  says({"quantize", "loop.npz", "--out", "o.npz"}, "loop.npz: cannot be read: " + loop);
  says({"quantize", "x.npy", "--out", "loop.npz"}, "loop.npz: cannot be written: " + loop);
  says({"quantize", "d.npz", "--out", "o.npz"}, "d.npz: is a folder where a file is needed");
  says({"quantize", "x.npy", "--out", "d.npz"}, "d.npz: is a folder where a file is needed");
  says({"quantize", "x.npy/y.npz", "--out", "o.npz"}, "cannot be read: " + no_folder);
  says({"quantize", "x.npy", "--out", "x.npy/o.npz"}, "cannot be written: " + no_folder);
  says({"verify", "--stream", "."}, ".: is a folder where a file is needed");
  says({"verify", "--stream", "none"}, std::strerror(ENOENT));
  says({"verify", "--stream", "x.npy/none"}, no_folder);
}

// `fp4lab ARGUMENTS` as a user whom file modes bind: if the test runs as root, as nobody.
ProcessResult RunAsNobody(const fs::path& folder, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), Program());
  if (::geteuid() == 0) {
    const std::vector<std::string> nobody = {"setpriv", "--reuid=65534", "--regid=65534",
                                             "--clear-groups"};
    arguments.insert(arguments.begin(), nobody.begin(), nobody.end());
  }
  return RunProcess(arguments, {.folder = folder, .timeout_seconds = kProgramSeconds});
}

TEST_CASE("A file or folder without permission is reported so, not as missing", "[e2e][files]") {
  const Workplace w;
  fs::permissions(w.folder.path(), fs::perms(0777));
  if (RunAsNobody(w.folder.path(), {"--version"}).exit_code != 0) {
    WARN("SKIPPED: no user other than root can run the program here");
    return;
  }
  w.Write("study.json", kTinyStudy);
  for (const char* name : {"x.npy", "x.npz", "q.safetensors", "q.gguf", "c.json", "t.txt"}) {
    w.Write(std::string("secret-") + name, "x");
    fs::permissions(w.folder / (std::string("secret-") + name), fs::perms::none);
  }
  fs::create_directory(w.folder / "closed");
  w.Write("closed/x.npy", "x");
  fs::permissions(w.folder / "closed", fs::perms::none);
  fs::create_directory(w.folder / "fixed");
  fs::permissions(w.folder / "fixed", fs::perms(0555));
  const std::string denied = std::strerror(EACCES);
  const auto says = [&](const std::vector<std::string>& arguments, const std::string& place) {
    const ProcessResult run = RunAsNobody(w.folder.path(), arguments);
    CAPTURE(arguments);
    CheckOneLine(run, place);
    CHECK_THAT(run.error, ContainsSubstring(denied));
    CHECK_THAT(run.error, !ContainsSubstring(std::strerror(ENOENT)));
  };
  says({"quantize", "secret-x.npy", "--out", "o.npz"}, "secret-x.npy: cannot be read: ");
  says({"quantize", "secret-x.npz", "--out", "o.npz"}, "secret-x.npz: cannot be read: ");
  says({"quantize", "closed/x.npy", "--out", "o.npz"}, "closed/x.npy: cannot be read: ");
  says({"inspect", "secret-q.safetensors"}, "secret-q.safetensors: cannot be read: ");
  says({"inspect", "secret-q.gguf"}, "secret-q.gguf: cannot be read: ");
  says({"study", "check", "secret-c.json"}, "secret-c.json: cannot be read: ");
  says({"study", "report", "secret-c.json"}, "secret-c.json: cannot be read: ");
  says({"study", "report", "closed"}, "closed");
  says({"verify", "--stream", "secret-x.npy"}, "secret-x.npy: cannot be read: ");
  says({"train", "--config", "secret-c.json", "--out-dir", "t"}, "secret-c.json: cannot be read: ");
  says({"train", "--text", "secret-t.txt", "--out-dir", "t"}, "secret-t.txt: cannot be read: ");
  says({"train", "--resume", "--out-dir", "closed"}, "closed");
  for (const std::string folder : {"closed", "fixed"}) {
    says({"quantize", "x.npy", "--out", folder + "/o.npz"}, folder + "/o.npz: cannot be written: ");
    says({"quantize", "x.npy", "--out", folder + "/new/o.npz"},
         folder + "/new/o.npz: cannot be written: ");
    says({"study", "run", "study.json", "--out-dir", folder}, folder);
    says({"study", "run", "study.json", "--out-dir", folder + "/new"}, folder + "/new");
    says({"train", "--data", "synthetic", "--steps", "1", "--out-dir", folder + "/new"}, folder);
  }
  fs::permissions(w.folder / "closed", fs::perms::owner_all);  // so that it can be removed
  CHECK(fs::is_empty(w.folder / "fixed"));
}

TEST_CASE("--out at a device, a pipe or a link writes there and replaces none of them",
          "[e2e][files]") {
  const Workplace w;
  const auto type = [&](const fs::path& path) { return fs::symlink_status(path).type(); };
  fs::create_symlink("/dev/null", w.folder / "null.npz");
  CHECK(w.Run({"quantize", "x.npy", "--out", "null.npz"}).exit_code == 0);
  CHECK(type(w.folder / "null.npz") == fs::file_type::symlink);
  CHECK(type("/dev/null") == fs::file_type::character);
  fs::create_symlink("/dev/full", w.folder / "full.npz");
  CheckOneLine(w.Run({"quantize", "x.npy", "--out", "full.npz"}),
               "full.npz: cannot be written: " + std::string(std::strerror(ENOSPC)));
  CHECK(type("/dev/full") == fs::file_type::character);
  w.Write("far.npz", "old");
  fs::create_symlink("far.npz", w.folder / "near.npz");
  CHECK(w.Run({"quantize", "x.npy", "--out", "near.npz"}).exit_code == 0);
  CHECK(type(w.folder / "near.npz") == fs::file_type::symlink);
  CHECK(w.Run({"inspect", "far.npz"}).exit_code == 0);
  // Through /dev/stdout into a pipe.
  const ProcessResult run = RunProcess(
      {"sh", "-c",
       "'" + Program() + "' dequantize q.safetensors --out /dev/stdout | head -c 8192 | wc -c"},
      {.folder = w.folder.path(), .timeout_seconds = kProgramSeconds});
  CHECK(std::stoi(run.output) == 8192);
}

}  // namespace
}  // namespace fp4lab
