// Manifests: the source and the hashes of corpora that fp4lab does not contain.
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
  std::string version, sha256;  // sha256: of the package file
};

struct Document {
  std::string name;
  bool train = true;  // else validation
  std::int64_t bytes = 0;
  std::string sha256;
};

// A manifest: one JSON file of data/ (data/README.md describes the members).
struct Manifest {
  std::string name, title, licence;
  std::string package;                   // name of the package in Debian and its derivatives
  std::vector<PackageVersion> versions;  // known versions; Fetch tries the first one
  std::string extraction;                // "r-rdb": data/r_data.h
  std::string file;                      // path inside the package
  std::vector<Document> documents;       // training text: the documents with `train`, in order
  std::string sha256;                    // of all documents concatenated in this order

  std::int64_t Bytes() const;  // of all documents
};

// Reads a manifest strictly, as ReadDataConfig does.
Manifest ReadManifest(const Json& json, const std::string& where);

// The compiled-in manifests of data/, in order of their names.
std::vector<Manifest> BuiltInManifests();
// A built-in manifest by its name, or the manifest in a file (*.json). Throws Error for an unknown
// name, with the known ones.
Manifest FindManifest(const std::string& name_or_file);

// The folder of the texts: $FP4LAB_DATA_DIR, else $XDG_DATA_HOME/fp4lab, else
// ~/.local/share/fp4lab. Throws Error if HOME is needed and not set.
std::filesystem::path DataFolder();
std::filesystem::path DocumentPath(const Manifest& manifest, const Document& document);

enum class DocumentState { kVerified, kMissing, kDifferent };
// Compares the hash of the document's file. Throws Error only if the file exists but cannot be
// read.
DocumentState StateOf(const Manifest& manifest, const Document& document);
// kMissing if all documents are missing, kVerified if all are verified, else kDifferent.
DocumentState StateOf(const Manifest& manifest);

// Throws Error(where, ...) unless `texts`, one a document, have the hashes of the manifest. `where`
// names the source of the texts.
void CheckTexts(const Manifest& manifest, const std::vector<std::string>& texts,
                const std::string& where);

// Loads both parts from the data folder and verifies each document. Errors name the corpus `name`,
// as the user called it.
Corpus LoadManifestCorpus(const Manifest& manifest, const std::string& name);

}  // namespace fp4lab
