// Reads every #include of the library and the program against the architecture of
// lib/fp4lab/README.md: which layer may use which, and which package belongs where. Reads every
// CMake file as well: a file of a layer is named in its folder alone, and no source file is
// forgotten.
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
  std::ifstream in(FP4LAB_LAYERS "/links.txt");
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

// What a file includes.
std::vector<std::string> TargetsIn(const fs::path& file) {
  static const std::regex kInclude(R"re(^\s*#\s*include\s+["<]([^">]+)[">])re");
  std::vector<std::string> targets;
  std::ifstream in(file);
  std::smatch match;
  for (std::string line; std::getline(in, line);) {
    if (std::regex_search(line, match, kInclude)) targets.push_back(match[1]);
  }
  return targets;
}

std::vector<Include> IncludesBelow(const fs::path& folder) {
  std::vector<Include> includes;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    const std::string extension = entry.path().extension();
    if (extension != ".h" && extension != ".cc" && extension != ".cu" && extension != ".cuh") {
      continue;
    }
    for (const std::string& target : TargetsIn(entry.path())) {
      includes.push_back({entry.path(), target});
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

// The CMake files of the project: CMakeLists.txt of every folder and cmake/.
std::vector<fs::path> CMakeFiles() {
  std::vector<fs::path> files = {SourceDirectory() / "CMakeLists.txt"};
  for (const char* folder : {"cmake", "lib", "tests", "tools"}) {
    for (const fs::directory_entry& entry :
         fs::recursive_directory_iterator(SourceDirectory() / folder)) {
      const fs::path& path = entry.path();
      if (path.filename() == "CMakeLists.txt" || path.extension() == ".cmake") {
        files.push_back(path);
      }
    }
  }
  return files;
}

// The words of a CMake file that look like source files or headers, without comments.
std::vector<std::string> FilesNamedIn(const fs::path& file) {
  static const std::regex kComment("#[^\n]*");
  static const std::regex kName(R"re([\w${}./+-]+\.(cc|cu|cuh|h|in)\b)re");
  const std::string text = std::regex_replace(ReadFile(file), kComment, "");
  std::vector<std::string> names;
  for (auto i = std::sregex_iterator(text.begin(), text.end(), kName); i != std::sregex_iterator();
       ++i) {
    names.push_back(i->str());
  }
  return names;
}

// What `name` means in a CMake file of `folder`: CMake's variables for folders, or a relative path.
fs::path Resolve(const std::string& name, const fs::path& folder) {
  static const std::regex kRoot(R"re(\$\{PROJECT_SOURCE_DIR\}/?)re");
  static const std::regex kHere(R"re(\$\{CMAKE_CURRENT_(SOURCE|LIST)_DIR\}/?)re");
  const std::string path = std::regex_replace(
      std::regex_replace(name, kRoot, SourceDirectory().string() + "/"), kHere, "");
  return (folder / path).lexically_normal();
}

TEST_CASE("No file of a layer is named outside of its folder", "[layering]") {
  const fs::path library = SourceDirectory() / "lib" / "fp4lab";
  std::size_t seen = 0;
  for (const fs::path& file : CMakeFiles()) {
    const fs::path folder = file.parent_path();
    for (const std::string& name : FilesNamedIn(file)) {
      // What stands in cmake/ is read in the root's name; targets include from lib/.
      for (const fs::path& from : {folder, SourceDirectory(), SourceDirectory() / "lib"}) {
        const fs::path named = Resolve(name, from), below = named.lexically_relative(library);
        if (!fs::is_regular_file(named) || below.begin()->string() == "..") continue;
        const fs::path layer = library / *below.begin();
        // The root reads the version before it knows any layer.
        if (below == "base/version.h" && folder == SourceDirectory()) continue;
        CAPTURE(file, name, layer);
        CHECK(folder == layer);
        ++seen;
      }
    }
  }
  CHECK(seen > 200);
}

// Source files of a folder. The .cu files of tests are programs that are compiled by hand on a
// GPU's machine.
std::vector<fs::path> SourcesBelow(const fs::path& folder) {
  const bool is_test = folder.parent_path().filename() == "tests";
  std::vector<fs::path> sources;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    const std::string extension = entry.path().extension();
    if (extension == ".cc" || (extension == ".cu" && !is_test)) sources.push_back(entry.path());
  }
  return sources;
}

TEST_CASE("Every source file is named in the CMakeLists.txt of its folder", "[layering]") {
  std::vector<fs::path> folders = {SourceDirectory() / "tools"};
  for (const char* parent : {"lib/fp4lab", "tests"}) {
    for (const fs::directory_entry& entry : fs::directory_iterator(SourceDirectory() / parent)) {
      if (entry.is_directory()) folders.push_back(entry.path());
    }
  }
  std::size_t seen = 0;
  for (const fs::path& folder : folders) {
    if (folder.filename() == "fuzz") continue;  // its CMakeLists.txt makes names of formats
    std::set<fs::path> named;
    const fs::path list = folder / "CMakeLists.txt";
    if (fs::exists(list)) {
      for (const std::string& name : FilesNamedIn(list)) named.insert(Resolve(name, folder));
    }
    for (const fs::path& source : SourcesBelow(folder)) {
      CAPTURE(source);
      CHECK(named.count(source) == 1);
      ++seen;
    }
  }
  CHECK(seen > 500);
}

// The public headers, as fp4lab_layer names them: "fp4lab/quantize/quantize.h".
std::set<std::string> PublicHeaders() {
  std::set<std::string> headers;
  std::ifstream in(FP4LAB_LAYERS "/public.txt");
  for (std::string line; std::getline(in, line);) headers.insert(line);
  return headers;
}

// The headers of the library that a file includes.
std::set<std::string> HeadersIn(const fs::path& file) {
  std::set<std::string> headers;
  for (const std::string& target : TargetsIn(file)) {
    if (target.rfind("fp4lab/", 0) == 0) headers.insert(target);
  }
  return headers;
}

// `headers` and all that they include.
std::set<std::string> Closure(const std::set<std::string>& headers) {
  std::set<std::string> all;
  std::vector<std::string> open(headers.begin(), headers.end());
  while (!open.empty()) {
    const std::string header = open.back();
    open.pop_back();
    if (!all.insert(header).second) continue;
    const std::set<std::string> included = HeadersIn(SourceDirectory() / "lib" / header);
    open.insert(open.end(), included.begin(), included.end());
  }
  return all;
}

TEST_CASE("A folder of the library or the program holds what one can overlook", "[layering]") {
  constexpr std::ptrdiff_t kMost = 24;
  std::size_t seen = 0;
  for (const char* room : {"lib", "tools"}) {
    for (const auto& entry : fs::recursive_directory_iterator(SourceDirectory() / room)) {
      if (!entry.is_directory()) continue;
      const std::string name = entry.path().filename().string();
      if (name == "__pycache__") continue;
      CAPTURE(entry.path());
      const auto is_file = [](const fs::directory_entry& e) { return e.is_regular_file(); };
      CHECK(std::count_if(fs::directory_iterator(entry.path()), fs::directory_iterator(),
                          is_file) <= kMost);
      ++seen;
    }
  }
  CHECK(seen > 60);
}

TEST_CASE("Public headers exist and include what is installed", "[layering]") {
  const std::set<std::string> headers = PublicHeaders();
  CHECK(headers.size() > 40);
  const std::set<std::string> all = Closure(headers);
  for (const std::string& header : all) {
    CAPTURE(header);
    CHECK(fs::is_regular_file(SourceDirectory() / "lib" / header));
    CHECK(header.find("-inl.h") == header.npos);
    CHECK(header.find("fp4lab/measure/") == header.npos);
    CHECK(header.find("fp4lab/oracle/") == header.npos);
  }
  // Public headers and those behind them. It may only fall: all but the public ones should be free
  // to change.
  CHECK(all.size() <= 135);
}

TEST_CASE("A user's program needs public headers only", "[layering]") {
  const std::set<std::string> headers = PublicHeaders();
  for (const std::string& used : HeadersIn(SourceDirectory() / "tests/find_package/main.cc")) {
    CAPTURE(used);
    CHECK(headers.count(used) == 1);
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

// Two types of one name in one namespace are one to the linker, which takes either one's functions.
TEST_CASE("A type's name stands once in its namespace", "[layering]") {
  const std::regex kNamespace(R"(^namespace ([\w:]*) ?\{)");
  const std::regex kType(R"(^(?:struct|class|enum class|union) (\w+)(?: final)?(?: : [^:].*)? \{)");
  const std::regex kEnd(R"(^\}\s*// namespace)");
  std::map<std::string, fs::path> seen;
  for (const fs::directory_entry& entry :
       fs::recursive_directory_iterator(SourceDirectory() / "lib" / "fp4lab")) {
    const std::string name = entry.path().filename().string();
    // Files that are compiled once a SIMD target have a namespace of each.
    if (name.ends_with("-inl.h")) continue;
    if (!name.ends_with(".h") && !name.ends_with(".cc") && !name.ends_with(".cuh")) continue;
    std::vector<std::string> inside;
    std::ifstream in(entry.path());
    std::smatch match;
    for (std::string line; std::getline(in, line);) {
      if (std::regex_search(line, match, kNamespace)) {
        inside.push_back(match[1]);
      } else if (std::regex_search(line, kEnd) && !inside.empty()) {
        inside.pop_back();
      } else if (std::regex_search(line, match, kType) &&
                 std::count(inside.begin(), inside.end(), "") == 0) {
        std::string type;
        for (const std::string& space : inside) type += space + "::";
        type += match[1];
        CAPTURE(type, entry.path(), seen[type]);
        CHECK(seen[type].empty());
        seen[type] = entry.path();
      }
    }
  }
  CHECK(seen.size() > 300);
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
    {"nlohmann/",
     R"(lib/fp4lab/(io|data|exchange|judge|recipe|train|study|crosscheck)/.*|tools/.*)"},
    {"CLI/", R"(tools/.*)"},
    {"cuda_runtime", R"(lib/fp4lab/(cuda|gpu)/.*\.cuh)"},
    {"cublasLt.h", R"(lib/fp4lab/gpu/gemm/blas\.cuh)"},
    {"Eigen/", R"(lib/fp4lab/(study|tensor|nn)/.*\.cc)"},
    {"boost/math/", R"(lib/fp4lab/(formats|study)/.*\.cc)"},
    {"openssl/", R"(lib/fp4lab/base/hash\.cc)"},
    {"zip.h", R"(lib/fp4lab/io/tensors/npz(_writer)?\.cc)"},
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
