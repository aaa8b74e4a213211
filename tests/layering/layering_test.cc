// Reads every #include of the library and the program against the architecture of
// lib/fp4lab/README.md: which layer may use which, and which package belongs where.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "fp4lab/io/file.h"
#include "tests/support/catch.h"
#include "tests/support/golden.h"

namespace fp4lab {
namespace {

namespace fs = std::filesystem;

using Layers = std::map<std::string, std::set<std::string>>;

// Every layer and the layers that it links, from CMake's targets: one line a layer, such as
// "nn: base block".
Layers DirectLinks() {
  Layers layers;
  std::ifstream in(FP4LAB_LAYERS);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string layer, link;
    words >> layer;
    layer.pop_back();  // the colon
    for (std::set<std::string>& links = layers[layer]; words >> link;) links.insert(link);
  }
  return layers;
}

void AddBelow(const Layers& direct, const std::string& layer, std::set<std::string>* below) {
  for (const std::string& link : direct.at(layer)) {
    if (below->insert(link).second) AddBelow(direct, link, below);
  }
}

// Every layer and all layers below it, which it may include.
Layers AllBelow(const Layers& direct) {
  Layers all;
  for (const auto& [layer, links] : direct) AddBelow(direct, layer, &all[layer]);
  return all;
}

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
  const Layers below = AllBelow(DirectLinks());
  std::size_t seen = 0;
  for (const auto& [layer, layers] : below) {
    CAPTURE(layer);
    CHECK(layers.count(layer) == 0);
  }
  for (const Include& include : IncludesBelow(library)) {
    if (include.target.rfind("fp4lab/", 0) != 0) continue;
    const std::string layer = FolderOf(include.file, library);
    const std::string target = FolderOf(include.target, "fp4lab");
    CAPTURE(include.file, include.target);
    REQUIRE(below.count(layer) == 1);
    CHECK((target == layer || below.at(layer).count(target) == 1));
    ++seen;
  }
  CHECK(seen > 100);
}

TEST_CASE("Every link between layers is used", "[layering]") {
  const fs::path library = SourceDirectory() / "lib" / "fp4lab";
  for (const auto& [layer, links] : DirectLinks()) {
    std::set<std::string> used;
    for (const Include& include : IncludesBelow(library / layer)) {
      if (include.target.rfind("fp4lab/", 0) == 0) used.insert(FolderOf(include.target, "fp4lab"));
    }
    used.erase(layer);
    CAPTURE(layer);
    CHECK(links == used);
  }
}

// A component: a header with the source of its name, "fp4lab/nn/linear" of linear.h and linear.cc.
std::string ComponentOf(const std::string& path) {
  static const std::regex kEnd(R"re((-inl)?\.(h|cc|cu|cuh)$)re");
  return std::regex_replace(path, kEnd, "");
}

using Graph = std::map<std::string, std::set<std::string>>;

// The first cycle found from `node` along `graph`, "a -> b -> a", or "". `path`: the nodes from the
// start to here; `done`: nodes without a cycle.
std::string CycleFrom(const Graph& graph, const std::string& node, std::vector<std::string>* path,
                      std::set<std::string>* done) {
  if (done->count(node) != 0 || graph.count(node) == 0) return "";
  const auto here = std::find(path->begin(), path->end(), node);
  if (here != path->end()) {
    std::string text;
    for (auto i = here; i != path->end(); ++i) text += *i + " -> ";
    return text + node;
  }
  path->push_back(node);
  for (const std::string& next : graph.at(node)) {
    const std::string cycle = CycleFrom(graph, next, path, done);
    if (!cycle.empty()) return cycle;
  }
  path->pop_back();
  done->insert(node);
  return "";
}

TEST_CASE("No headers with their sources include each other in a cycle", "[layering]") {
  for (const auto& [folder, root] : {std::pair("lib/fp4lab", "lib"), std::pair("tools", "")}) {
    Graph graph;
    for (const Include& include : IncludesBelow(SourceDirectory() / folder)) {
      const std::string from =
          ComponentOf(include.file.lexically_relative(SourceDirectory() / root).string());
      const std::string to = ComponentOf(include.target);
      if (to != from) graph[from].insert(to);
    }
    CHECK(graph.size() > 40);
    std::set<std::string> done;
    for (const auto& [component, ignored] : graph) {
      std::vector<std::string> path;
      CHECK(CycleFrom(graph, component, &path, &done) == "");
    }
  }
}

// The length of the longest chain of links from a layer down.
std::size_t HeightOf(const Layers& direct, const std::string& layer) {
  std::size_t height = 0;
  for (const std::string& link : direct.at(layer)) {
    height = std::max(height, HeightOf(direct, link) + 1);
  }
  return height;
}

// The layers from the highest to the lowest, each with the links that no other link implies.
std::string Picture(const Layers& direct) {
  const Layers below = AllBelow(direct);
  std::vector<std::string> order;
  for (const auto& [layer, links] : direct) order.push_back(layer);
  std::ranges::stable_sort(order, std::greater(),
                           [&](const std::string& layer) { return HeightOf(direct, layer); });
  std::string text;
  for (const std::string& layer : order) {
    std::string line = layer;
    line.resize(11, ' ');
    for (const std::string& link : direct.at(layer)) {
      const bool implied = std::ranges::any_of(direct.at(layer), [&](const std::string& other) {
        return below.at(other).count(link) == 1;
      });
      if (!implied) line += link + " ";
    }
    while (line.back() == ' ') line.pop_back();
    text += line + "\n";
  }
  return text;
}

TEST_CASE("The picture of the layers in lib/fp4lab/README.md is that of the links", "[layering]") {
  const fs::path path = SourceDirectory() / "lib" / "fp4lab" / "README.md";
  const std::string page = ReadFile(path), begin = "<!-- layers: begin -->\n```\n",
                    end = "```\n<!-- layers: end -->";
  const std::size_t first = page.find(begin), last = page.find(end);
  REQUIRE(first != page.npos);
  REQUIRE(last != page.npos);
  const std::size_t from = first + begin.size();
  const std::string picture = Picture(DirectLinks());
  if (std::getenv("FP4LAB_APPROVE") != nullptr) {
    std::ofstream(path) << page.substr(0, from) << picture << page.substr(last);
    return;
  }
  CHECK(page.substr(from, last - from) == picture);
}

TEST_CASE("Oracles know the types of formats and dialects, not their code", "[layering]") {
  const fs::path library = SourceDirectory() / "lib" / "fp4lab";
  const std::set<std::string> kTypes = {"fp4lab/formats/format.h", "fp4lab/dialect/dialect.h"};
  for (const Include& include : IncludesBelow(library / "oracle")) {
    const std::string target = FolderOf(include.target, "fp4lab");
    CAPTURE(include.file, include.target);
    if (target == "formats" || target == "dialect") CHECK(kTypes.count(include.target) == 1);
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
    {"nlohmann/", R"(lib/fp4lab/(io|data|exchange|judge|train|study|crosscheck)/.*|tools/.*)"},
    {"CLI/", R"(tools/.*)"},
    {"cuda_runtime", R"(lib/fp4lab/(cuda|gpu)/.*\.cuh)"},
    {"cublasLt.h", R"(lib/fp4lab/gpu/gemm/blas\.cuh)"},
    {"Eigen/", R"(lib/fp4lab/(study|tensor|nn)/.*\.cc)"},
    {"boost/math/", R"(lib/fp4lab/(formats|study)/.*\.cc)"},
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
