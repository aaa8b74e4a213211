// Runs a fuzz target on every file of the folders that the command line names, so that the corpus
// and the findings of fuzzing are tests of every build, with any compiler.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "fp4lab/io/file.h"
#include "tests/fuzz/fuzz.h"

int main(int argc, char** argv) {
  std::vector<std::filesystem::path> files;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  for (const std::filesystem::path& file : files) {
    const std::string content = fp4lab::ReadFile(file);
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(content.data()), content.size());
  }
  std::printf("%zu files\n", files.size());
  return files.empty() ? 1 : 0;
}
