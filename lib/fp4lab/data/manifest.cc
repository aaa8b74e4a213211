#include "fp4lab/data/manifest.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "fp4lab/base/hash.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/data/embedded.h"
#include "fp4lab/io/file.h"

namespace fp4lab {
namespace {

std::string ReadHash(JsonObject& object) {
  std::string hash;
  object.Require("sha256", &hash);
  if (hash.size() != 64 || hash.find_first_not_of("0123456789abcdef") != hash.npos) {
    throw Error(object.Where("sha256"), "must be 64 lower-case hex digits");
  }
  return hash;
}

// A name that is also a file name.
std::string ReadName(JsonObject& object) {
  std::string name;
  object.Require("name", &name);
  const std::string allowed = "abcdefghijklmnopqrstuvwxyz0123456789_-+.";
  if (name.empty() || name[0] == '.' || name[0] == '-' ||
      name.find_first_not_of(allowed) != name.npos) {
    throw Error(object.Where("name"), "must be of lower-case letters, digits, '_', '-', '+', '.'");
  }
  return name;
}

const Json& RequireArray(JsonObject& object, std::string_view key) {
  const Json* array = object.Member(key);
  if (array == nullptr || !array->is_array() || array->empty()) {
    throw Error(object.Where(key), "must be an array of at least one object");
  }
  return *array;
}

std::string Indexed(const JsonObject& object, std::string_view key, std::size_t i) {
  return object.Where(key) + "/" + std::to_string(i);
}

void ReadPackage(JsonObject package, Manifest* manifest) {
  manifest->package = ReadName(package);
  const Json& versions = RequireArray(package, "versions");
  for (std::size_t i = 0; i < versions.size(); ++i) {
    JsonObject object(versions[i], Indexed(package, "versions", i));
    PackageVersion version;
    object.Require("version", &version.version);
    version.sha256 = ReadHash(object);
    object.Finish();
    manifest->versions.push_back(version);
  }
  package.Finish();
}

void ReadExtraction(JsonObject extraction, Manifest* manifest) {
  extraction.Require("method", &manifest->extraction);
  if (manifest->extraction != "r-rdb") {
    throw Error(extraction.Where("method"), "must be \"r-rdb\"");
  }
  extraction.Require("file", &manifest->file);
  const std::filesystem::path file = manifest->file;
  if (file.empty() || file.is_absolute() || std::ranges::count(file, "..") > 0) {
    throw Error(extraction.Where("file"), "must be a path inside the package");
  }
  extraction.Finish();
}

Document ReadDocument(JsonObject object) {
  Document document;
  document.name = ReadName(object);
  std::string part;
  object.Require("part", &part);
  if (part != "train" && part != "validation") {
    throw Error(object.Where("part"), "must be \"train\" or \"validation\"");
  }
  document.train = part == "train";
  object.Require("bytes", &document.bytes);
  document.sha256 = ReadHash(object);
  object.Finish();
  return document;
}

JsonObject RequireObject(JsonObject& object, std::string_view key) {
  const Json* member = object.Member(key);
  if (member == nullptr) throw Error(object.Where(key), "is needed");
  return {*member, object.Where(key)};
}

std::string Remedy(const Manifest& manifest, const std::string& name) {
  return "get it with: fp4lab data get " + name + " (" + manifest.package +
         "); or use your own text file (\"text\": \"my.txt\") or \"source\": \"synthetic\"";
}

}  // namespace

std::int64_t Manifest::Bytes() const {
  std::int64_t sum = 0;
  for (const Document& document : documents) sum += document.bytes;
  return sum;
}

Manifest ReadManifest(const Json& json, const std::string& where) {
  const IeeeArithmetic ieee;
  JsonObject object(json, where);
  Manifest manifest;
  manifest.name = ReadName(object);
  object.Require("title", &manifest.title);
  object.Require("licence", &manifest.licence);
  ReadPackage(RequireObject(object, "package"), &manifest);
  ReadExtraction(RequireObject(object, "extraction"), &manifest);
  const Json& documents = RequireArray(object, "documents");
  std::set<std::string> names;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    const std::string place = Indexed(object, "documents", i);
    manifest.documents.push_back(ReadDocument({documents[i], place}));
    if (!names.insert(manifest.documents.back().name).second) {
      throw Error(place + "/name", "is the name of an earlier document");
    }
  }
  manifest.sha256 = ReadHash(object);
  object.Finish();
  return manifest;
}

std::vector<Manifest> BuiltInManifests() {
  std::vector<Manifest> manifests;
  for (const auto& [file, json] : EmbeddedManifests()) {
    manifests.push_back(ReadManifest(ParseJson(json, file), std::string(file)));
  }
  std::ranges::sort(manifests, {}, &Manifest::name);
  return manifests;
}

Manifest FindManifest(const std::string& name_or_file) {
  if (name_or_file.ends_with(".json")) {
    return ReadManifest(ReadJsonFile(name_or_file), name_or_file);
  }
  std::string all;
  std::vector<std::string> known = {"synthetic"};
  for (Manifest& manifest : BuiltInManifests()) {
    if (manifest.name == name_or_file) return std::move(manifest);
    all += manifest.name + ", ";
    known.push_back(manifest.name);
  }
  throw Error(
      name_or_file,
      "is not a known corpus; " +
          DidYouMean(name_or_file, known,
                     "known are: " + all + "synthetic (built in), and manifest files (*.json)"));
}

std::filesystem::path DataFolder() {
  const auto variable = [](const char* name) -> std::filesystem::path {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  if (const auto folder = variable("FP4LAB_DATA_DIR"); !folder.empty()) return folder;
  if (const auto folder = variable("XDG_DATA_HOME"); !folder.empty()) return folder / "fp4lab";
  if (const auto home = variable("HOME"); !home.empty()) return home / ".local/share/fp4lab";
  throw Error("FP4LAB_DATA_DIR", "must name a folder where HOME is not set");
}

std::filesystem::path DocumentPath(const Manifest& manifest, const Document& document) {
  return DataFolder() / manifest.name / (document.name + ".txt");
}

DocumentState StateOf(const Manifest& manifest, const Document& document) {
  const std::filesystem::path path = DocumentPath(manifest, document);
  if (!Exists(path)) return DocumentState::kMissing;
  return Sha256OfFile(path) == document.sha256 ? DocumentState::kVerified
                                               : DocumentState::kDifferent;
}

DocumentState StateOf(const Manifest& manifest) {
  std::set<DocumentState> states;
  for (const Document& document : manifest.documents) states.insert(StateOf(manifest, document));
  return states.size() == 1 ? *states.begin() : DocumentState::kDifferent;
}

void CheckTexts(const Manifest& manifest, const std::vector<std::string>& texts,
                const std::string& where) {
  Expects(texts.size() == manifest.documents.size(), "one text per document");
  std::string all;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const Document& document = manifest.documents[i];
    if (Sha256(texts[i]) != document.sha256) {
      throw Error(where, "the text of " + document.name + " is not the manifest's (SHA-256 " +
                             document.sha256.substr(0, 12) + "...); refused");
    }
    all += texts[i];
  }
  if (Sha256(all) != manifest.sha256) {
    throw Error(where, "the documents together do not have the manifest's SHA-256; refused");
  }
}

Corpus LoadManifestCorpus(const Manifest& manifest, const std::string& name) {
  std::string train, validation;
  std::vector<std::string> texts;
  for (const Document& document : manifest.documents) {
    const std::filesystem::path path = DocumentPath(manifest, document);
    if (!Exists(path)) {
      throw Error(name, "is not at " + path.string() + "; " + Remedy(manifest, name));
    }
    texts.push_back(ReadFile(path));
    (document.train ? train : validation) += texts.back();
  }
  CheckTexts(manifest, texts, DocumentPath(manifest, manifest.documents[0]).parent_path().string());
  return CorpusFromText(manifest.name, train, validation);
}

}  // namespace fp4lab
