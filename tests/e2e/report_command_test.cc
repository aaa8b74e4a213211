#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "fp4lab/io/file.h"
#include "fp4lab/io/json.h"
#include "tests/support/catch.h"
#include "tests/support/program.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

struct Folder {
  std::filesystem::path path = std::filesystem::temp_directory_path() / "fp4lab_tools_report_test";
  Folder() { std::filesystem::remove_all(path); }
  ~Folder() { std::filesystem::remove_all(path); }
};

TEST_CASE("fp4lab study report writes the report and prints the summary", "[tools]") {
  const Folder folder;
  const std::string fixture =
      std::string(std::getenv("FP4LAB_SOURCE_DIR")) + "/tests/study/support/synthetic_results.json";
  const ProcessResult run =
      RunProgram({"study", "report", fixture, "--out-dir", folder.path.string()});
  CHECK(run.exit_code == 0);
  CHECK_THAT(run.output, ContainsSubstring("mxfp4 to match nvfp4"));
  CHECK_THAT(run.output, ContainsSubstring("criteria\n  held"));
  CHECK_THAT(run.output, ContainsSubstring("report: " + (folder.path / "report.html").string()));
  for (const char* file :
       {"report.html", "results.csv", "results.json", "figures/loss.svg", "figures/gap.svg",
        "figures/token_ratio.svg", "figures/sqnr.svg", "figures/training.svg"}) {
    CAPTURE(file);
    CHECK(std::filesystem::file_size(folder.path / file) > 500);
  }
  CHECK_THAT(ReadFile(folder.path / "results.json"), ContainsSubstring("\"token_ratios\""));
}

TEST_CASE("fp4lab study report refuses results whose numbers were edited", "[tools]") {
  const Folder folder;
  const std::string fixture =
      std::string(std::getenv("FP4LAB_SOURCE_DIR")) + "/tests/study/support/synthetic_results.json";
  const ProcessResult old =
      RunProgram({"study", "report", fixture, "--out-dir", folder.path.string()});
  CHECK(old.exit_code == 0);  // a file of an older version has no hash
  CHECK(IsOneLine(old.error));
  CHECK_THAT(old.error, ContainsSubstring("synthetic_results.json: has no \"sha256\""));
  const std::filesystem::path results = folder.path / "results.json";
  const ProcessResult same = RunProgram({"study", "report", results.string()});
  CHECK(same.exit_code == 0);
  CHECK(same.error.empty());
  std::string text = ReadFile(results);
  const std::size_t loss = text.find("\"validation_loss\": ") + 19;
  text[loss + 2] = text[loss + 2] == '9' ? '8' : '9';
  WriteFileAtomically(results, text);
  const ProcessResult edited = RunProgram({"study", "report", results.string()});
  CHECK(edited.exit_code == 1);
  CHECK(edited.output.empty());
  CHECK(IsOneLine(edited.error));
  CHECK_THAT(edited.error, ContainsSubstring("results.json: was changed after fp4lab wrote it"));
  CHECK_THAT(edited.error, ContainsSubstring("fp4lab study run"));
  CHECK(ReadFile(results) == text);
}

TEST_CASE("fp4lab study report puts several studies on one page, in a folder of its own",
          "[tools]") {
  const Folder folder;
  const std::string fixture =
      std::string(std::getenv("FP4LAB_SOURCE_DIR")) + "/tests/study/support/synthetic_results.json";
  WriteFileAtomically(folder.path / "two/results.json", ReadFile(fixture));
  const std::string two = (folder.path / "two").string(), out = (folder.path / "out").string();
  const ProcessResult nowhere = RunProgram({"study", "report", fixture, two});
  CHECK(nowhere.exit_code == 1);
  CHECK(IsOneLine(nowhere.error));
  CHECK_THAT(nowhere.error, ContainsSubstring("--out-dir"));
  const ProcessResult run = RunProgram({"study", "report", fixture, two, "--out-dir", out});
  CHECK(run.exit_code == 0);
  CHECK_THAT(run.output, ContainsSubstring("report: " + out + "/report.html"));
  CHECK_THAT(ReadFile(folder.path / "out/report.html"),
             ContainsSubstring("2 studies side by side"));
}

TEST_CASE("fp4lab study report lays a curve of the reader's own over the training curves",
          "[tools]") {
  const Folder folder;
  const std::string fixture =
      std::string(std::getenv("FP4LAB_SOURCE_DIR")) + "/tests/study/support/synthetic_results.json";
  const std::string curve = (folder.path / "curve.csv").string();
  WriteFileAtomically(curve, "Wall time,Step,Value\n1,500,2\n2,1000,1.75\n");
  const std::string out = (folder.path / "out").string();
  const std::vector<std::string> command = {"study", "report",    fixture,        "--out-dir",
                                            out,     "--overlay", "mine=" + curve};
  const ProcessResult unknown = RunProgram(command);
  CHECK(unknown.exit_code == 1);
  CHECK(IsOneLine(unknown.error));
  CHECK_THAT(unknown.error, ContainsSubstring("curve.csv: line 2: ") &&
                                ContainsSubstring("--overlay-tokens-per-step"));
  CHECK_FALSE(std::filesystem::exists(folder.path / "out"));
  std::vector<std::string> with_tokens = command;
  with_tokens.insert(with_tokens.end(), {"--overlay-tokens-per-step", "2048"});
  CHECK(RunProgram(with_tokens).exit_code == 0);
  CHECK_THAT(ReadFile(folder.path / "out/figures/training.svg"),
             ContainsSubstring("mine (your own curve)"));
}

TEST_CASE("fp4lab study report refuses what is no results file, in one line", "[tools]") {
  const Folder folder;
  const ProcessResult missing =
      RunProgram({"study", "report", (folder.path / "none.json").string()});
  CHECK(missing.exit_code == 1);
  CHECK_THAT(missing.error, ContainsSubstring("none.json"));
  WriteFileAtomically(folder.path / "broken.json", "{\"schema\": ");
  const ProcessResult broken =
      RunProgram({"study", "report", (folder.path / "broken.json").string()});
  CHECK(broken.exit_code == 1);
  CHECK_THAT(broken.error, ContainsSubstring("broken.json: line 1, column "));
  WriteFileAtomically(folder.path / "other.json", "{}");
  const ProcessResult other =
      RunProgram({"study", "report", (folder.path / "other.json").string()});
  CHECK(other.exit_code == 1);
  CHECK_THAT(other.error, ContainsSubstring("other.json: is not a results file"));
  // The report reads the study inside only when it shows it, so an error there is found late.
  std::string text = ReadFile(std::string(std::getenv("FP4LAB_SOURCE_DIR")) +
                              "/tests/study/support/synthetic_results.json");
  Json json = Json::parse(text);
  json["study"]["arms"] = 3;
  WriteFileAtomically(folder.path / "study.json", json.dump());
  const ProcessResult study =
      RunProgram({"study", "report", (folder.path / "study.json").string()});
  CHECK(study.exit_code == 1);
  CHECK(IsOneLine(study.error));
  CHECK_THAT(study.error, ContainsSubstring("study.json#/study: is not as fp4lab writes it"));
  CHECK_THAT(study.error, !ContainsSubstring("json.exception"));
  for (const char* file : {"figures", "results.csv", "report.html", "results.json"}) {
    CHECK_FALSE(std::filesystem::exists(folder.path / file));  // nothing is half-written
  }
}

}  // namespace
}  // namespace fp4lab
