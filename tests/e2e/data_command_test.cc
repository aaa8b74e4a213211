#include <filesystem>

#include "fp4lab/io/file.h"
#include "fp4lab/io/temporary_folder.h"
#include "tests/support/catch.h"
#include "tests/support/program.h"
#include "tests/support/r_package.h"

namespace fp4lab {
namespace {

// A user's machine: a data folder, a folder for temporary files, a manifest and its package; and
// package tools that a test may replace.
class Machine {
 public:
  Machine() {
    std::filesystem::create_directories(folder_ / "tmp");
    std::filesystem::create_directories(folder_ / "bin");
    WriteFileAtomically(manifest(), SmallManifest().dump());
    package_ = BuildPackage(folder_ / "build", SmallDatabase());
  }

  std::string manifest() const { return (folder_ / "small.json").string(); }
  const std::filesystem::path& package() const { return package_; }
  std::filesystem::path data() const { return folder_ / "data"; }
  std::filesystem::path operator/(const char* name) const { return folder_ / name; }

  // Shadows the system's program of this name with a shell script.
  void Replace(const std::string& program, const std::string& script) const {
    const auto path = folder_ / "bin" / program;
    WriteFileAtomically(path, "#!/bin/sh\n" + script);
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }

  ProcessResult Run(const std::vector<std::string>& arguments) const {
    return RunProgram(arguments, {.environment = Environment()});
  }

  std::vector<std::pair<std::string, std::string>> Environment() const {
    return {{"FP4LAB_DATA_DIR", data().string()},
            {"TMPDIR", (folder_ / "tmp").string()},
            {"PATH", (folder_ / "bin").string() + ":/usr/bin:/bin"}};
  }

  // The data folder and the temporary folder are absent or empty.
  bool IsUntouched() const {
    const auto empty = [](const std::filesystem::path& path) {
      return !std::filesystem::exists(path) || std::filesystem::is_empty(path);
    };
    return empty(data()) && empty(folder_ / "tmp");
  }

 private:
  TemporaryFolder folder_;
  std::filesystem::path package_;
};

void CheckRefused(const Machine& machine, const ProcessResult& result, const std::string& why) {
  CHECK(result.exit_code == 1);
  CHECK(result.output.empty());
  const std::string last = result.error.substr(
      std::min(result.error.size(), result.error.rfind('\n', result.error.size() - 2) + 1));
  CHECK(last.find("error: ") == 0);
  CHECK_THAT(last, Catch::Matchers::ContainsSubstring(why));
  CHECK(machine.IsUntouched());
}

TEST_CASE("data get takes a package file, verifies it and is idempotent", "[e2e]") {
  const Machine machine;
  const std::vector<std::string> get{"data", "get", machine.manifest(), "--package",
                                     machine.package().string()};
  const ProcessResult first = machine.Run(get);
  CHECK(first.exit_code == 0);
  CHECK(first.output == "small: 2 documents, 0.01 MB, hashes verified, now in " +
                            (machine.data() / "small").string() + "\n");
  CHECK(ReadFile(machine.data() / "small/first.txt") == Joined(SmallTexts()[0]));
  CHECK(ReadFile(machine.data() / "small/second.txt") == Joined(SmallTexts()[1]));
  CHECK(std::filesystem::is_empty(machine / "tmp"));
  const ProcessResult second = machine.Run({"data", "get", machine.manifest()});
  CHECK(second.exit_code == 0);
  CHECK(second.output.find("small: already in ") == 0);
}

TEST_CASE("data verify finds a changed text and data get repairs it", "[e2e]") {
  const Machine machine;
  const std::vector<std::string> get{"data", "get", machine.manifest(), "--package",
                                     machine.package().string()};
  REQUIRE(machine.Run(get).exit_code == 0);
  CHECK(machine.Run({"data", "verify", machine.manifest()}).exit_code == 0);
  WriteFileAtomically(machine.data() / "small/first.txt", std::string_view("changed"));
  const ProcessResult different = machine.Run({"data", "verify", machine.manifest()});
  CHECK(different.exit_code == 1);
  CHECK(different.output.find("DIFFERENT") == 0);
  CHECK(machine.Run(get).exit_code == 0);
  CHECK(machine.Run({"data", "verify", machine.manifest()}).exit_code == 0);
}

TEST_CASE("data get downloads with apt-get, the manifest's version first", "[e2e]") {
  const Machine machine;
  machine.Replace("apt-get", "for last; do :; done\necho \"$last\" >> '" +
                                 (machine / "asked").string() +
                                 "'\ncase $last in *=*) echo \"E: Version '1.0-1' for 'small' was "
                                 "not found\" >&2; exit 100;; esac\ncp '" +
                                 machine.package().string() + "' .\n");
  const ProcessResult result = machine.Run({"data", "get", machine.manifest()});
  CHECK(result.exit_code == 0);
  CHECK(ReadFile(machine / "asked") == "r-cran-small=1.0-1\nr-cran-small\n");
  CHECK(std::filesystem::is_empty(machine / "tmp"));
}

TEST_CASE("data get makes its own package lists where the system has none", "[e2e]") {
  const Machine machine;
  machine.Replace("apt-get",
                  "case \"$*\" in *apt.conf*update) touch updated; exit 0;; esac\n"
                  "[ -e updated ] || { echo 'E: Unable to locate package x' >&2; exit 100; }\n"
                  "case \"$*\" in *apt.conf*) cp '" +
                      machine.package().string() + "' .;; *) exit 100;; esac\n");
  CHECK(machine.Run({"data", "get", machine.manifest()}).exit_code == 0);
}

TEST_CASE("Without a network data get names the alternatives and leaves no files", "[e2e]") {
  const Machine machine;
  machine.Replace("apt-get",
                  "echo 'E: Failed to fetch x Temporary failure resolving' >&2\nexit 100");
  const ProcessResult result = machine.Run({"data", "get", machine.manifest()});
  CheckRefused(machine, result, "Temporary failure resolving); is there a network? Without one");
  CHECK_THAT(result.error, Catch::Matchers::ContainsSubstring("--package FILE.deb") &&
                               Catch::Matchers::ContainsSubstring("\"source\": \"synthetic\""));
}

TEST_CASE("Without package tools data get says so", "[e2e]") {
  const Machine machine;
  auto environment = machine.Environment();
  environment[2].second = (machine / "bin").string();
  const ProcessResult result =
      RunProgram({"data", "get", machine.manifest()}, {.environment = environment});
  CheckRefused(machine, result, "the package tools of Debian or Ubuntu are needed for this");
}

TEST_CASE("A truncated package, another package and other texts are refused", "[e2e]") {
  const Machine machine;
  const auto get = [&](const std::filesystem::path& package) {
    return machine.Run({"data", "get", machine.manifest(), "--package", package.string()});
  };
  const std::string whole = ReadFile(machine.package());
  const auto cut = machine / "cut.deb";
  for (const std::size_t size : {std::size_t{0}, whole.size() / 2, whole.size() - 100}) {
    WriteFileAtomically(cut, whole.substr(0, size));
    CheckRefused(machine, get(cut), "cut.deb: is not a complete Debian package (");
  }
  CheckRefused(machine, get(machine / "no.deb"), "no.deb: cannot be read: No such file");

  const auto database = SmallDatabase();
  const auto short_package = BuildPackage(machine / "short", database.substr(0, 300));
  CheckRefused(machine, get(short_package), "is corrupt or truncated");
  auto texts = SmallTexts();
  texts[1][5] += '.';
  const auto other = BuildPackage(machine / "other", LazyLoadRecord(SerializedLines(texts[0])) +
                                                         LazyLoadRecord(SerializedLines(texts[1])));
  CheckRefused(machine, get(other), "none of its 2 texts is the manifest's second (SHA-256 ");

  Json manifest = SmallManifest();
  manifest["extraction"]["file"] = "usr/share/else";
  WriteFileAtomically(machine.manifest(), manifest.dump());
  CheckRefused(machine, get(machine.package()), "does not hold usr/share/else");
}

TEST_CASE("A data folder that cannot be made is refused before any download", "[e2e]") {
  const Machine machine;
  machine.Replace("apt-get", "touch '" + (machine / "asked").string() + "'");
  WriteFileAtomically(machine.data(), std::string_view("a file where the folder should be"));
  const ProcessResult result = machine.Run({"data", "get", machine.manifest()});
  CHECK(result.exit_code == 1);
  CHECK(IsOneLine(result.error));
  CHECK_THAT(result.error, Catch::Matchers::ContainsSubstring(
                               "set FP4LAB_DATA_DIR to a folder that you can write to"));
  CHECK_FALSE(std::filesystem::exists(machine / "asked"));
}

TEST_CASE("An interrupted download leaves nothing and says so by its exit code", "[e2e]") {
  const Machine machine;
  machine.Replace("apt-get",
                  "touch '" + (machine / "asked").string() + "' half.deb\nexec sleep 60");
  for (const auto& [signal, exit_code] : {std::pair{"INT", 130}, std::pair{"TERM", 143}}) {
    std::filesystem::remove(machine / "asked");
    const ProcessResult result =
        RunProcess({"timeout", "--preserve-status", "-s", signal, "1", Program(), "data", "get",
                    machine.manifest()},
                   {.environment = machine.Environment(), .timeout_seconds = 30});
    CHECK(result.exit_code == exit_code);
    CHECK_THAT(result.error,
               Catch::Matchers::ContainsSubstring("interrupted; nothing was written"));
    CHECK(std::filesystem::exists(machine / "asked"));
    CHECK(machine.IsUntouched());
  }
}

TEST_CASE("data list names every corpus and its state", "[e2e]") {
  const Machine machine;
  const ProcessResult result = machine.Run({"data", "list"});
  CHECK(result.exit_code == 0);
  CHECK_THAT(result.output, Catch::Matchers::ContainsSubstring("austen            4.03  not here"));
  CHECK_THAT(result.output, Catch::Matchers::ContainsSubstring("synthetic"));
  CHECK(result.error.empty());
}

TEST_CASE("An unknown corpus is refused with the known ones", "[e2e]") {
  const Machine machine;
  CheckRefused(machine, machine.Run({"data", "get", "asten"}),
               "asten: is not a known corpus; did you mean \"austen\"?");
  CheckRefused(machine, machine.Run({"data", "verify", "asten"}), "asten: is not a known corpus");
  CheckRefused(machine, machine.Run({"data", "get", "no.json"}), "no.json: cannot be read");
}

}  // namespace
}  // namespace fp4lab
