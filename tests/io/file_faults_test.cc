// The program's behaviour when a mapped file becomes shorter.
#include "tools/file_faults.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "fp4lab/io/file.h"
#include "fp4lab/io/file_content.h"
#include "fp4lab/io/temporary_folder.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

TEST_CASE("A file that becomes shorter while it is mapped ends the program with one line",
          "[io][file]") {
  const int threads = GENERATE(1, 4);
  CAPTURE(threads);
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "cut\x1b.npy", said = folder / "said";
  WriteFileAtomically(path, std::string(1 << 20, 'x'));
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const int file = ::open(said.c_str(), O_WRONLY | O_CREAT, 0600);
    ::dup2(file, STDERR_FILENO);
    tools::NameFilesThatFault();
    const FileContent content(path);
    if (::truncate(path.c_str(), 4096) != 0) ::_exit(3);
    const auto read = [&content] {
      volatile std::byte last = content.bytes().back();
      static_cast<void>(last);
    };
    std::vector<std::thread> others;
    for (int i = 1; i < threads; ++i) others.emplace_back(read);
    read();
    ::_exit(2);  // the read did not fault
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 1);
  CHECK(ReadFile(said) == "error: " + folder.path().string() +
                              "/cut?.npy: became shorter while it was read, or its disk failed; "
                              "start again when no program writes the file\n");
}

}  // namespace
}  // namespace fp4lab
