// Reads every #include of the library and the program against the architecture of
// lib/fp4lab/README.md: which layer may use which, and which package belongs where.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/golden.h"

namespace fp4lab {
namespace {

namespace fs = std::filesystem;

// A layer and the layers it may include, itself left out.
const std::map<std::string, std::set<std::string>> kMayInclude = {
    {"base", {}},
    {"measure", {"base"}},
    {"formats", {"base"}},
    {"block", {"base", "formats"}},
    {"transform", {"base", "formats", "block"}},
    {"tensor", {"base", "formats", "block", "transform"}},
    {"io", {"base", "formats"}},
    {"data", {"base", "io"}},
    {"dialect", {"base", "formats", "block"}},
    {"nn", {"base", "formats", "block", "dialect", "transform", "tensor"}},
    {"train", {"base", "formats", "block", "dialect", "transform", "tensor", "io", "data", "nn"}},
    {"study",
     {"base", "formats", "block", "dialect", "transform", "tensor", "io", "data", "nn", "train"}},
    {"exchange", {"base", "formats", "block", "transform", "io", "dialect"}},
    {"judge", {"base", "formats", "block", "transform", "tensor", "io", "dialect", "exchange"}},
    {"oracle", {"base", "formats", "block"}},
    {"gpu",
     {"base", "formats", "block", "transform", "dialect", "cuda", "io", "data", "nn", "train"}},
    {"cuda", {"base", "formats", "block", "transform", "dialect"}},
};

struct Include {
  fs::path file;
  std::string target;  // as written between quotes or angle brackets
};

std::vector<Include> IncludesBelow(const fs::path& folder) {
  static const std::regex kInclude(R"re(^\s*#\s*include\s+["<]([^">]+)[">])re");
  std::vector<Include> includes;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    const std::string extension = entry.path().extension();
    if (extension != ".h" && extension != ".cc" && extension != ".cu" && extension != ".cuh") {
      continue;
    }
    std::ifstream in(entry.path());
    std::smatch match;
    for (std::string line; std::getline(in, line);) {
      if (std::regex_search(line, match, kInclude)) includes.push_back({entry.path(), match[1]});
    }
  }
  return includes;
}

// The first folder of `path` below `root`.
std::string FolderOf(const fs::path& path, const fs::path& root) {
  return path.lexically_relative(root).begin()->string();
}

TEST_CASE("Every layer includes only layers below it", "[layering]") {
  const fs::path library = SourceDirectory() / "lib" / "fp4lab";
  std::size_t seen = 0;
  for (const Include& include : IncludesBelow(library)) {
    if (include.target.rfind("fp4lab/", 0) != 0) continue;
    const std::string layer = FolderOf(include.file, library);
    const std::string target = FolderOf(include.target, "fp4lab");
    CAPTURE(include.file, include.target);
    REQUIRE(kMayInclude.count(layer) == 1);
    CHECK((target == layer || kMayInclude.at(layer).count(target) == 1));
    ++seen;
  }
  CHECK(seen > 100);
}

TEST_CASE("Oracles know the types of formats and blocks, not their code", "[layering]") {
  const fs::path library = SourceDirectory() / "lib" / "fp4lab";
  const std::set<std::string> kTypes = {"fp4lab/formats/format.h", "fp4lab/block/block_format.h",
                                        "fp4lab/block/quantize.h"};
  for (const Include& include : IncludesBelow(library / "oracle")) {
    const std::string target = FolderOf(include.target, "fp4lab");
    CAPTURE(include.file, include.target);
    if (target == "formats" || target == "block") CHECK(kTypes.count(include.target) == 1);
  }
}

// Where a package may be included, as regular expressions over the path below the source tree.
struct Place {
  const char* package;
  const char* where;
};
const Place kPlaces[] = {
    {"hwy/", R"(lib/fp4lab/.*(\.cc|-inl\.h))"},
    {"omp.h", R"(lib/fp4lab/base/parallel\.cc)"},
    {"nlohmann/", R"(lib/fp4lab/(io|data|exchange|judge|train|study)/.*|tools/.*)"},
    {"CLI/", R"(tools/.*)"},
    {"cuda_runtime_api.h", R"(lib/fp4lab/cuda/.*\.cuh)"},
    {"cuda_runtime.h", R"(lib/fp4lab/gpu/.*\.cuh)"},
    {"cublasLt.h", R"(lib/fp4lab/gpu/blas\.cuh)"},
    {"Eigen/", R"(lib/fp4lab/(study|tensor|nn)/.*\.cc)"},
    {"openssl/", R"(lib/fp4lab/base/hash\.cc)"},
    {"zip.h", R"(lib/fp4lab/io/npz(_writer)?\.cc)"},
    {"zlib.h", R"(lib/fp4lab/data/.*\.cc)"},
};

TEST_CASE("Every package is used in its place only", "[layering]") {
  std::vector<Include> includes = IncludesBelow(SourceDirectory() / "lib");
  const std::vector<Include> tools = IncludesBelow(SourceDirectory() / "tools");
  includes.insert(includes.end(), tools.begin(), tools.end());
  for (const Place& place : kPlaces) {
    std::size_t used = 0;
    for (const Include& include : includes) {
      if (include.target.rfind(place.package, 0) != 0) continue;
      const std::string file = include.file.lexically_relative(SourceDirectory()).string();
      CAPTURE(file, include.target);
      CHECK(std::regex_match(file, std::regex(place.where)));
      ++used;
    }
    CAPTURE(place.package);
    CHECK(used > 0);  // else the row is stale
  }
}

}  // namespace
}  // namespace fp4lab
