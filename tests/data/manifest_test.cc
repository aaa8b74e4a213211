#include "fp4lab/data/manifest.h"

#include <stdlib.h>

#include "fp4lab/base/hash.h"
#include "fp4lab/data/load_corpus.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/temporary_folder.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/r_package.h"

namespace fp4lab {
namespace {

// The data folder of this test, with both documents in it.
class DataFolderOfTest {
 public:
  DataFolderOfTest() {
    ::setenv("FP4LAB_DATA_DIR", folder_.path().c_str(), 1);
    const auto texts = SmallTexts();
    WriteFileAtomically(folder_ / "small/first.txt", Joined(texts[0]));
    WriteFileAtomically(folder_ / "small/second.txt", Joined(texts[1]));
  }
  ~DataFolderOfTest() { ::unsetenv("FP4LAB_DATA_DIR"); }

  const TemporaryFolder& folder() const { return folder_; }

 private:
  TemporaryFolder folder_;
};

std::string ErrorWith(const char* patch) {
  Json json = SmallManifest();
  json.merge_patch(Json::parse(patch));
  return ErrorOf([&] { ReadManifest(json, "m.json"); });
}

TEST_CASE("The built-in manifests are whole and Austen's split is the documented one", "[data]") {
  const std::vector<Manifest> manifests = BuiltInManifests();
  REQUIRE(manifests.size() >= 1);
  const Manifest austen = FindManifest("austen");
  CHECK(austen.Bytes() == 4'025'029);
  std::string train, validation;
  for (const Document& d : austen.documents) (d.train ? train : validation) += d.name + " ";
  CHECK(train == "sense_and_sensibility pride_and_prejudice mansfield_park emma northanger_abbey ");
  CHECK(validation == "persuasion ");
}

TEST_CASE("A manifest corpus is read when every hash is right", "[data]") {
  const DataFolderOfTest data;
  const Manifest manifest = ReadManifest(SmallManifest(), "m.json");
  CHECK(StateOf(manifest) == DocumentState::kVerified);
  const Corpus corpus = LoadManifestCorpus(manifest, "small");
  CHECK(corpus.name == "small");
  CHECK(corpus.train.size() == Joined(SmallTexts()[0]).size());
  CHECK(corpus.validation_sha256 == Sha256(Joined(SmallTexts()[1])));
}

TEST_CASE("A manifest corpus is refused when a text differs or is missing", "[data]") {
  const DataFolderOfTest data;
  const Manifest manifest = ReadManifest(SmallManifest(), "m.json");
  const auto path = data.folder() / "small/second.txt";
  WriteFileAtomically(path, ReadFile(path) + " ");
  CHECK(StateOf(manifest) == DocumentState::kDifferent);
  CHECK(ErrorOf([&] {
          LoadManifestCorpus(manifest, "small");
        }).find("the text of second is not the manifest's (SHA-256") != std::string::npos);
  std::filesystem::remove(path);
  CHECK(StateOf(manifest) == DocumentState::kDifferent);
  const std::string missing = ErrorOf([&] { LoadManifestCorpus(manifest, "small"); });
  CHECK(missing.find("small: is not at " + path.string()) == 0);
  CHECK(missing.find("fp4lab data get small") != std::string::npos);
  CHECK(missing.find("\"source\": \"synthetic\"") != std::string::npos);
  std::filesystem::remove(data.folder() / "small/first.txt");
  CHECK(StateOf(manifest) == DocumentState::kMissing);
}

TEST_CASE("A manifest file is a corpus of its own", "[data]") {
  const DataFolderOfTest data;
  const auto path = data.folder() / "m.json";
  WriteFileAtomically(path, SmallManifest().dump());
  DataConfig config;
  config.source = path.string();
  CHECK(LoadCorpus(config).name == "small");
  config.source = "smal";
  CHECK(ErrorOf([&] {
          LoadCorpus(config);
        }).find("smal: is not a known corpus; known are: austen") == 0);
}

TEST_CASE("A wrong manifest is refused at its pointer", "[data]") {
  CHECK(ErrorWith(R"({"nam": 1})") == "m.json#/nam: unknown key; did you mean \"name\"?");
  CHECK(ErrorWith(R"({"name": "../x"})").find("m.json#/name: must be of lower-case") == 0);
  CHECK(ErrorWith(R"({"package": null})") == "m.json#/package: is needed");
  CHECK(ErrorWith(R"({"package": {"versions": []}})").find("m.json#/package/versions: must") == 0);
  CHECK(ErrorWith(R"({"extraction": {"method": "zip"}})") ==
        "m.json#/extraction/method: must be \"r-rdb\"");
  CHECK(ErrorWith(R"({"extraction": {"file": "../../etc/passwd"}})") ==
        "m.json#/extraction/file: must be a path inside the package");
  CHECK(ErrorWith(R"({"extraction": {"file": "/etc/passwd"}})") ==
        "m.json#/extraction/file: must be a path inside the package");
  CHECK(ErrorWith(R"({"documents": [{"name": "a", "part": "test"}]})") ==
        "m.json#/documents/0/part: must be \"train\" or \"validation\"");
  CHECK(ErrorWith(R"({"sha256": "abc"})") == "m.json#/sha256: must be 64 lower-case hex digits");
}

}  // namespace
}  // namespace fp4lab
