// A checkpoint: one file or a folder of shards, mapped, with its list of tensors and its
// configuration.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fp4lab/checkpoint/config.h"
#include "fp4lab/checkpoint/finding.h"
#include "fp4lab/io/file_content.h"
#include "fp4lab/io/tensors/gguf.h"
#include "fp4lab/io/tensors/safetensors.h"

namespace fp4lab {

// Reads an .npz file as tensors that own their bytes. The library's core has no libzip, so that the
// caller passes the reader.
using NpzReader = std::function<SafetensorsFile(const std::filesystem::path&)>;

struct Shard {
  std::string name;                      // the file's
  std::unique_ptr<FileContent> content;  // nullptr for .npz
  std::size_t bytes = 0;                 // of the tensors' data
};

struct ModelFiles {
  std::string path;
  std::vector<Shard> shards;
  SafetensorsFile tensors;                   // of all shards; of .safetensors files as views
  std::map<std::string, std::size_t> shard;  // the index in `shards`, by tensor
  std::map<std::size_t, GgufFile> ggufs;     // by the index in `shards`
  QuantizationConfig config;
  std::vector<Finding> findings;  // duplicates and what the index says

  // The mapped file that holds `bytes`; nullptr if they are owned.
  const FileContent* ContentOf(std::span<const std::byte> bytes) const;
};

// Opens a folder (the shards that its *.index.json names; without one all .safetensors, .gguf and
// .npz files in it), an index.json or a single file. Throws Error for what cannot be read: a file
// that is missing or damaged, a folder without any of them.
ModelFiles OpenCheckpoint(const std::filesystem::path& path, const NpzReader& read_npz);

// The files that an index names, by tensor. Throws Error(where, ...) for another form of JSON, and
// for names of files that leave the folder.
std::map<std::string, std::string> ParseIndex(const Json& json, const std::string& where);

}  // namespace fp4lab
