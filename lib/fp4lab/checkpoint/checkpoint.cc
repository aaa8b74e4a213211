#include "fp4lab/checkpoint/checkpoint.h"

#include <algorithm>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/near_files.h"

namespace fp4lab {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndexEnding = ".index.json";

bool IsReadable(const fs::path& path) {
  const std::string ending = LowerCase(path.extension().string());
  return ending == ".safetensors" || ending == ".gguf" || ending == ".npz";
}

class Opener {
 public:
  Opener(const fs::path& path, const NpzReader& read_npz) : read_npz_(read_npz) {
    checkpoint_.path = path.string();
  }

  ModelFiles Open() {
    const fs::path path = checkpoint_.path;
    if (fs::is_directory(path)) {
      OpenFolder(path);
    } else if (path.string().ends_with(kIndexEnding)) {
      OpenIndex(path);
    } else if (!Exists(path)) {
      throw Error(path.string(), "is not there" + NearFilesText(path));
    } else if (!IsReadable(path)) {
      throw Error(path.string(),
                  "is no checkpoint: pass a folder, a *.index.json, .safetensors, .gguf or .npz");
    } else {
      Add(path);
    }
    const fs::path folder = fs::is_directory(path) ? path : path.parent_path();
    checkpoint_.config = ReadQuantizationConfig(folder.empty() ? fs::path(".") : folder);
    return std::move(checkpoint_);
  }

 private:
  void OpenFolder(const fs::path& folder) {
    std::vector<fs::path> files, indices;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      if (entry.path().string().ends_with(kIndexEnding)) indices.push_back(entry.path());
      if (IsReadable(entry.path())) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    std::sort(indices.begin(), indices.end());
    if (indices.size() == 1) return OpenIndex(indices.front());
    if (indices.size() > 1) {
      throw Error(folder.string(), "has " + std::to_string(indices.size()) +
                                       " indices: pass one of them, such as " +
                                       indices.front().filename().string());
    }
    if (files.empty()) {
      throw Error(folder.string(), "holds no .safetensors, .gguf or .npz file");
    }
    for (const fs::path& file : files) Add(file);
  }

  void OpenIndex(const fs::path& path) {
    const std::map<std::string, std::string> index =
        ParseIndex(ReadJsonFile(path), path.filename().string());
    std::set<std::string> files;
    for (const auto& [tensor, file] : index) files.insert(file);
    for (const std::string& file : files) {
      if (!Exists(path.parent_path() / file)) {
        throw Error(path.string(), "names the file " + file + ", which is not there");
      }
      Add(path.parent_path() / file);
    }
    const std::string where = path.filename().string();
    for (const auto& [tensor, file] : index) {
      const auto found = checkpoint_.shard.find(tensor);
      if (found == checkpoint_.shard.end()) {
        checkpoint_.findings.push_back(
            {FindingKind::kIndex, tensor, where + " names it in " + file + ", which lacks it"});
      } else if (checkpoint_.shards[found->second].name != file) {
        checkpoint_.findings.push_back({FindingKind::kIndex, tensor,
                                        where + " names it in " + file + "; it is in " +
                                            checkpoint_.shards[found->second].name});
      }
    }
    for (const auto& [tensor, shard] : checkpoint_.shard) {
      if (index.contains(tensor)) continue;
      checkpoint_.findings.push_back(
          {FindingKind::kIndex, tensor,
           where + " lacks it; it is in " + checkpoint_.shards[shard].name});
    }
  }

  void Add(const fs::path& path) {
    const std::size_t index = checkpoint_.shards.size();
    checkpoint_.shards.push_back({path.filename().string(), nullptr, 0});
    const std::string ending = LowerCase(path.extension().string());
    if (ending == ".npz") {
      AddTensors(read_npz_(path), index);
      return;
    }
    Shard& shard = checkpoint_.shards[index];
    shard.content = std::make_unique<FileContent>(path);
    if (ending == ".gguf") {
      GgufFile file = ViewGguf(shard.content->bytes(), path.string());
      for (const auto& [name, tensor] : file.tensors) shard.bytes += tensor.bytes.size();
      checkpoint_.ggufs.emplace(index, std::move(file));
      return;
    }
    AddTensors(ViewSafetensors(shard.content->bytes(), path.string()), index);
  }

  void AddTensors(SafetensorsFile file, std::size_t index) {
    checkpoint_.tensors.metadata.merge(file.metadata);
    for (auto& [name, tensor] : file.tensors) {
      checkpoint_.shards[index].bytes += tensor.bytes.size();
      const auto [found, is_new] = checkpoint_.shard.emplace(name, index);
      if (is_new) {
        checkpoint_.tensors.tensors.emplace(name, std::move(tensor));
        continue;
      }
      const bool equal = checkpoint_.tensors.tensors.at(name) == tensor;
      checkpoint_.findings.push_back({FindingKind::kDuplicate, name,
                                      "is in " + checkpoint_.shards[found->second].name +
                                          " and in " + checkpoint_.shards[index].name +
                                          (equal ? ", with equal bytes" : ", and they differ")});
    }
  }

  const NpzReader& read_npz_;
  ModelFiles checkpoint_;
};

}  // namespace

const FileContent* ModelFiles::ContentOf(std::span<const std::byte> bytes) const {
  for (const Shard& s : shards) {
    if (s.content == nullptr) continue;
    const std::span<const std::byte> all = s.content->bytes();
    if (bytes.data() >= all.data() && bytes.data() < all.data() + all.size()) {
      return s.content.get();
    }
  }
  return nullptr;
}

std::map<std::string, std::string> ParseIndex(const Json& json, const std::string& where) {
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || map == json.end() || !map->is_object()) {
    throw Error(where, "is no index of a checkpoint: it has no object weight_map");
  }
  std::map<std::string, std::string> index;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string()) throw Error(where + "#/weight_map", "has a file that is no text");
    const std::string name = file.get<std::string>();
    const bool plain = !name.empty() && name != "." && name != ".." &&
                       name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
    if (!plain || !IsReadable(name)) {
      throw Error(where + "#/weight_map",
                  "names the file \"" + name + "\"; files are .safetensors beside the index");
    }
    index.emplace(tensor, name);
  }
  return index;
}

ModelFiles OpenCheckpoint(const fs::path& path, const NpzReader& read_npz) {
  return Opener(path, read_npz).Open();
}

}  // namespace fp4lab
