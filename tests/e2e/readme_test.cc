// Runs every command that README.md shows, in one shell as a reader would, in a temporary folder
// with the program in PATH; and checks that fp4lab has every name and every piece of code in
// README.md.
//
//   FP4LAB_APPROVE=1 ctest --test-dir build/test -R readme_test
//
// writes the commands' current output into README.md.
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "fp4lab/dialect/dialect.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/temporary_folder.h"
#include "fp4lab/recipe/recipe.h"
#include "tests/support/catch.h"
#include "tests/support/golden.h"
#include "tests/support/program.h"

namespace fp4lab {
namespace {

// Commands that README.md shows and this test does not run, each with the reason.
const std::vector<std::string> kNotRun = {
    "tools/run",                                 // builds, and trains for minutes
    "tools/test",                                // runs this test
    "cmake --install build --prefix ~/fp4lab"};  // find_package_test does it with another prefix

std::filesystem::path ReadmePath() { return SourceDirectory() / "README.md"; }

// A fenced block. In "console", a command follows "$ " and continues after a line that ends in \ or
// |; its output comes next. "sh" holds commands only.
struct Block {
  std::string language, text;
};

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::vector<Block> BlocksOf(const std::string& page) {
  std::vector<Block> blocks;
  bool open = false;
  for (const std::string& line : LinesOf(page)) {
    if (line.rfind("```", 0) == 0) {
      open = !open;
      if (open) blocks.push_back({line.substr(3), ""});
    } else if (open) {
      blocks.back().text += line + "\n";
    }
  }
  return blocks;
}

bool GoesOn(const std::string& line) { return line.ends_with('\\') || line.ends_with('|'); }

std::vector<std::string> CommandsOf(const Block& block) {
  std::vector<std::string> commands;
  bool goes_on = false;
  for (const std::string& line : LinesOf(block.text)) {
    if (goes_on) {
      commands.back() += "\n" + line;
    } else if (line.rfind("$ ", 0) == 0) {
      commands.push_back(line.substr(2));
    } else {
      continue;
    }
    goes_on = GoesOn(line);
  }
  return commands;
}

std::string TextOf(const std::string& language) {
  std::string text;
  for (const Block& block : BlocksOf(ReadFile(ReadmePath()))) {
    if (block.language == language) text += block.text;
  }
  return text;
}

// The output of each command, standard error included; all commands run in one shell.
std::vector<std::string> Run(const std::vector<std::string>& commands) {
  const std::string mark = "-- end of a command, exit code ";
  std::string script;
  for (const std::string& command : commands) {
    script += "{ " + command + "\n} 2>&1; echo \"" + mark + "$?\"\n";
  }
  const std::string programs = std::filesystem::path(Program()).parent_path().string();
  const char* path = std::getenv("PATH");
  const TemporaryFolder folder;
  const ProcessResult run =
      RunProcess({"sh", "-c", script},
                 {.environment = {{"PATH", programs + ":" + (path == nullptr ? "" : path)}},
                  .folder = folder.path(),
                  .timeout_seconds = 600});
  std::vector<std::string> outputs(1);
  for (const std::string& line : LinesOf(run.output)) {
    const std::size_t at = line.find(mark);
    if (at == line.npos) {
      outputs.back() += line + "\n";
      continue;
    }
    INFO(commands.at(outputs.size() - 1) << "\n" << outputs.back());
    CHECK((line.substr(mark.size()) == "0" || line.substr(mark.size()) == "1"));  // 1: different
    outputs.emplace_back();
  }
  REQUIRE(outputs.size() == commands.size() + 1);
  outputs.pop_back();
  return outputs;
}

// The page with `outputs` in place of the outputs that it shows.
std::string WithOutputs(const std::string& page, const std::vector<std::string>& outputs) {
  std::string text;
  std::size_t next = 0;
  bool console = false, goes_on = false;
  for (const std::string& line : LinesOf(page)) {
    const bool fence = line.rfind("```", 0) == 0;
    if (fence) console = line == "```console";
    const bool command = console && (goes_on || line.rfind("$ ", 0) == 0);
    if (fence || !console || command) text += line + "\n";
    if (!command) continue;
    goes_on = GoesOn(line);
    if (!goes_on) text += outputs.at(next++);
  }
  return text;
}

TEST_CASE("Every command of README.md runs and prints what README.md says", "[e2e]") {
  const std::string page = ReadFile(ReadmePath());
  std::vector<std::string> commands;
  for (const Block& block : BlocksOf(page)) {
    const std::vector<std::string> some = CommandsOf(block);
    CHECK(some.empty() == (block.language != "console"));
    std::copy(some.begin(), some.end(), std::back_inserter(commands));
  }
  REQUIRE(commands.size() >= 5);
  const std::string now = WithOutputs(page, Run(commands));
  if (std::getenv("FP4LAB_APPROVE") != nullptr && now != page) {
    WriteFileAtomically(ReadmePath(), now);
    WARN("README.md was written anew");
    return;
  }
  CHECK(now == page);
}

TEST_CASE("The commands of README.md that are not run are listed, and no block is of another kind",
          "[e2e]") {
  std::vector<std::string> shown;
  for (const Block& block : BlocksOf(ReadFile(ReadmePath()))) {
    CAPTURE(block.language, block.text);
    const std::vector<std::string> kinds = {"console", "sh", "cpp", "cmake",
                                            "python"};  // tests/python/test_readme.py
    CHECK(std::count(kinds.begin(), kinds.end(), block.language) == 1);
    if (block.language != "sh") continue;
    for (const std::string& line : LinesOf(block.text)) {
      const std::string command = line.substr(0, line.find(" #"));
      shown.push_back(command.substr(0, command.find_last_not_of(' ') + 1));
    }
  }
  CHECK(shown == kNotRun);
}

// tests/find_package is built by find_package_test against an installed copy.
TEST_CASE("The C++ and the CMake lines of README.md are those of tests/find_package", "[e2e]") {
  const std::filesystem::path folder = SourceDirectory() / "tests" / "find_package";
  CHECK(TextOf("cpp") == ReadFile(folder / "main.cc"));
  const std::vector<std::string> built = LinesOf(ReadFile(folder / "CMakeLists.txt"));
  const std::vector<std::string> shown = LinesOf(TextOf("cmake"));
  CHECK(!shown.empty());
  for (const std::string& line : shown) {
    CAPTURE(line);
    CHECK(std::count(built.begin(), built.end(), line) == 1);
  }
}

// Words between backticks in the second column of the table under "Names you know".
std::vector<std::string> NamesOfOurs() {
  const std::string page = ReadFile(ReadmePath());
  const std::size_t first = page.find("## Names you know");
  REQUIRE(first != page.npos);
  std::vector<std::string> names;
  for (const std::string& line : LinesOf(page.substr(first, page.find("\n## ", first) - first))) {
    if (line.rfind("| ", 0) != 0) continue;
    std::string ours = line.substr(line.rfind(" | "));
    for (std::size_t at = ours.find('`'); at != ours.npos; at = ours.find('`')) {
      const std::size_t end = ours.find('`', at + 1);
      REQUIRE(end != ours.npos);
      names.push_back(ours.substr(at + 1, end - at - 1));
      ours = ours.substr(end + 1);
    }
  }
  return names;
}

TEST_CASE("Every link of README.md leads to a file, and to a heading of it", "[e2e]") {
  std::size_t count = 0;
  const std::string page = ReadFile(ReadmePath());
  for (std::size_t at = page.find("]("); at != page.npos; at = page.find("](", at + 1), ++count) {
    const std::string link = page.substr(at + 2, page.find(')', at) - at - 2);
    const std::size_t mark = link.find('#');
    CAPTURE(link);
    const std::filesystem::path file = SourceDirectory() / link.substr(0, mark);
    REQUIRE(std::filesystem::exists(file));
    if (mark == link.npos) continue;
    std::string headings;  // as GitHub turns them into anchors
    for (const char c : ReadFile(file)) {
      if (c == ' ') headings += '-';
      if (c == '\n' || std::isalnum(static_cast<unsigned char>(c)) != 0) {
        headings += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      }
    }
    CHECK(headings.find("\n-" + link.substr(mark + 1) + "\n") != headings.npos);
  }
  CHECK(count > 8);
}

TEST_CASE("README.md counts the dialects", "[e2e]") {
  const std::string count = "of " + std::to_string(Dialects().size()) + " published ones";
  CAPTURE(count);
  CHECK(ReadFile(ReadmePath()).find(count) != std::string::npos);
}

TEST_CASE("The fp4lab names beside other programs' names in README.md exist", "[e2e]") {
  const std::string options = RunProgram({"quantize", "--help"}).output;
  const std::vector<std::string> names = NamesOfOurs();
  CHECK(names.size() > 20);
  for (const std::string& name : names) {
    CAPTURE(name);
    std::istringstream words(name);
    std::string first, second, third, fourth;
    words >> first >> second >> third >> fourth;
    if (first.rfind("te_", 0) == 0) {
      CHECK_NOTHROW(ReadRecipe(first, "README.md"));
    } else if (first.find("bf16") != first.npos || first.rfind("disable_", 0) == 0) {
      const Json value = first.find("bf16") != first.npos ? Json(0) : Json(true);
      CHECK_NOTHROW(ReadRecipe({{"base", "te_nvfp4"}, {first, value}}, "README.md"));
    } else if (first == "--set") {
      CHECK(second == "recipe.disable_rht=true");  // the example in `train --help` runs it
    } else if (first == "fp4lab") {
      CHECK(RunProgram({second, "--help"}).output.find(third) != std::string::npos);
      CHECK_NOTHROW(ReadRecipe(fourth, "README.md"));
    } else if (first.rfind("--", 0) == 0) {
      CHECK(options.find(first) != options.npos);
      CHECK(options.find(" " + second) != options.npos);
    } else if (FindDialect(first) == nullptr) {
      CHECK(options.find(" " + first) != options.npos);  // a value of the option before it
    }
  }
}

}  // namespace
}  // namespace fp4lab
