#include "fp4lab/io/process.h"

#include <chrono>

#include "fp4lab/io/temporary_folder.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab {
namespace {

TEST_CASE("A process gets arguments as they are and its streams come back apart", "[io]") {
  const ProcessResult result =
      RunProcess({"/bin/sh", "-c", "printf '%s' \"$1\"; cat; echo oops >&2; exit 7", "sh",
                  "a b; $HOME 'c' \"d\""},
                 {.input = " and its input"});
  CHECK(result.exit_code == 7);
  CHECK(result.output == "a b; $HOME 'c' \"d\" and its input");
  CHECK(result.error == "oops\n");
  CHECK_FALSE(result.timed_out);
}

TEST_CASE("A process has the environment and folder that it was given", "[io]") {
  const TemporaryFolder folder;
  const ProcessResult result =
      RunProcess({"/bin/sh", "-c", "echo $FP4LAB_TEST; pwd -P; test -n \"$PATH\""},
                 {.environment = {{"FP4LAB_TEST", "value"}}, .folder = folder.path()});
  CHECK(result.exit_code == 0);
  CHECK(result.output == "value\n" + std::filesystem::canonical(folder.path()).string() + "\n");
}

TEST_CASE("Output larger than a pipe does not block", "[io]") {
  const ProcessResult result =
      RunProcess({"/bin/sh", "-c", "head -c 1000000 /dev/zero; head -c 1000000 /dev/zero >&2"});
  CHECK(result.output.size() == 1'000'000);
  CHECK(result.error.size() == 1'000'000);
}

TEST_CASE("A process that overruns its time or is stopped ends", "[io]") {
  const auto start = std::chrono::steady_clock::now();
  const ProcessResult late = RunProcess({"sleep", "60"}, {.timeout_seconds = 0.1});
  CHECK(late.timed_out);
  CHECK(late.exit_code == 128 + 15);
  const std::atomic<bool> stop{true};
  const ProcessResult stopped = RunProcess({"sleep", "60"}, {.stop = &stop});
  CHECK(stopped.stopped);
  CHECK_FALSE(stopped.timed_out);
  const ProcessResult stubborn = RunProcess(
      {"/bin/sh", "-c", "trap '' TERM; while true; do sleep 1; done"}, {.timeout_seconds = 0.2});
  CHECK(stubborn.timed_out);
  CHECK(stubborn.exit_code == 128 + 9);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(30));
}

TEST_CASE("A program that does not exist is an error", "[io]") {
  CHECK(ErrorOf([] { RunProcess({"fp4lab-no-such-program"}); }) ==
        "fp4lab-no-such-program: cannot be started: No such file or directory");
}

}  // namespace
}  // namespace fp4lab
