// What is known of a corpus that fp4lab does not carry: where it comes from and its hashes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/data/corpus.h"
#include "fp4lab/io/json.h"

namespace fp4lab {

struct PackageVersion {
  std::string version, sha256;  // of the package file
};

struct Document {
  std::string name;
  bool train = true;  // else validation
  std::int64_t bytes = 0;
  std::string sha256;
};

// One file of data/ (data/README.md describes the members).
struct Manifest {
  std::string name, title, licence;
  std::string package;                   // of Debian and its descendants
  std::vector<PackageVersion> versions;  // known ones; the first is asked for first
  std::string extraction;                // "r-rdb": data/r_data.h
  std::string file;                      // inside the package
  std::vector<Document> documents;       // training text = those for training, in this order
  std::string sha256;                    // of all documents one after the other, in this order

  std::int64_t Bytes() const;
};

// Strict, as ReadDataConfig.
Manifest ReadManifest(const Json& json, const std::string& where);

// The manifests of data/, which are compiled in, by name.
std::vector<Manifest> BuiltInManifests();
// A built-in one by its name, or a file (*.json). Error lists what there is.
Manifest FindManifest(const std::string& name_or_file);

// Where texts are kept: $FP4LAB_DATA_DIR, else $XDG_DATA_HOME/fp4lab, else ~/.local/share/fp4lab.
std::filesystem::path DataFolder();
std::filesystem::path DocumentPath(const Manifest& manifest, const Document& document);

enum class DocumentState { kVerified, kMissing, kDifferent };
// Reads the file and compares its hash. Error only where it is there but cannot be read.
DocumentState StateOf(const Manifest& manifest, const Document& document);
// kMissing if all are missing, kVerified if all are right, else kDifferent.
DocumentState StateOf(const Manifest& manifest);

// Error unless `texts`, one a document, have the hashes of the manifest. `where` is their source.
void CheckTexts(const Manifest& manifest, const std::vector<std::string>& texts,
                const std::string& where);

// Both parts from the data folder, each document verified. `name` is how the user calls it.
Corpus LoadManifestCorpus(const Manifest& manifest, const std::string& name);

}  // namespace fp4lab
