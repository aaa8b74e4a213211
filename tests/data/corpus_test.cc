#include <cstring>
#include <numeric>

#include "fp4lab/base/hash.h"
#include "fp4lab/data/load_corpus.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/temporary_folder.h"
#include "fp4lab/io/tensors/npy.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab {
namespace {

std::string TokenFile(const std::vector<std::uint16_t>& tokens, std::int32_t magic = 20240520,
                      std::int32_t version = 1) {
  std::vector<std::int32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = static_cast<std::int32_t>(tokens.size());
  std::string bytes(1024 + 2 * tokens.size(), '\0');
  std::memcpy(bytes.data(), header.data(), 1024);
  if (!tokens.empty()) std::memcpy(bytes.data() + 1024, tokens.data(), 2 * tokens.size());
  return bytes;
}

std::vector<std::uint16_t> Counting(std::size_t count) {
  std::vector<std::uint16_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), std::uint16_t{0});
  return tokens;
}

std::string ReadError(const char* json) {
  return ErrorOf([json] { ReadDataConfig(Json::parse(json), "study.json#/data"); });
}

TEST_CASE("A user's text file becomes byte tokens; its end is the validation part", "[data]") {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 2000; ++i) text += static_cast<char>(i * 7);
  WriteFileAtomically(folder / "my.txt", text);
  DataConfig config;
  config.text = (folder / "my.txt").string();
  config.validation_fraction = 0.1;
  const Corpus corpus = LoadCorpus(config);
  REQUIRE(corpus.train.size() == 1800);
  REQUIRE(corpus.validation.size() == 200);
  CHECK(corpus.vocabulary == 256);
  CHECK(corpus.train[100] == (100 * 7) % 256);
  CHECK(corpus.validation[0] == (1800 * 7) % 256);
  CHECK(corpus.train_sha256 == Sha256(text.substr(0, 1800)));
  CHECK(corpus.validation_sha256 == Sha256(text.substr(1800)));
}

TEST_CASE("Missing, empty and short text files are refused in one line", "[data]") {
  const TemporaryFolder folder;
  DataConfig config;
  config.text = (folder / "no.txt").string();
  CHECK(ErrorOf([&] { LoadCorpus(config); }) ==
        config.text + ": cannot be read: No such file or directory");
  WriteFileAtomically(config.text, std::string_view(""));
  CHECK(ErrorOf([&] { LoadCorpus(config); }) ==
        config.text + ": is too short: its training part has 0 tokens, at least 64 are needed");
  WriteFileAtomically(config.text, std::string(200, 'a'));
  CHECK(ErrorOf([&] { LoadCorpus(config); }) ==
        config.text + ": is too short: its validation part has 10 tokens, at least 64 are needed");
}

TEST_CASE("A token file of llm.c is read with its vocabulary", "[data]") {
  const TemporaryFolder folder;
  DataConfig config;
  config.tokens = (folder / "train.bin").string();
  WriteFileAtomically(config.tokens, TokenFile(Counting(3000)));
  const Corpus corpus = LoadCorpus(config);
  CHECK(corpus.vocabulary == 3000);
  CHECK(corpus.train == Counting(2850));
  REQUIRE(corpus.validation.size() == 150);
  CHECK(corpus.validation.front() == 2850);

  config.validation_tokens = (folder / "val.bin").string();
  config.vocabulary = 50257;
  WriteFileAtomically(config.validation_tokens, TokenFile(Counting(100)));
  const Corpus two = LoadCorpus(config);
  CHECK(two.vocabulary == 50257);
  CHECK(two.train == Counting(3000));
  CHECK(two.validation == Counting(100));
  CHECK(two.train_sha256 == Sha256(TokenFile(Counting(3000)).substr(1024)));
}

TEST_CASE("Tokens are read from .npy files of one axis", "[data]") {
  const TemporaryFolder folder;
  DataConfig config;
  config.tokens = (folder / "ids.npy").string();
  std::vector<std::uint32_t> wide(3000);
  std::iota(wide.begin(), wide.end(), 0u);
  const std::vector<std::int64_t> longs(wide.begin(), wide.end());
  for (const NpyArray& array :
       {MakeNpyArray<std::uint16_t>({3000}, Counting(3000)),
        MakeNpyArray<std::uint32_t>({3000}, wide), MakeNpyArray<std::int64_t>({3000}, longs)}) {
    WriteNpy(config.tokens, array);
    CHECK(LoadCorpus(config).train == Counting(2850));
  }
  const auto error = [&](const NpyArray& array) {
    WriteNpy(config.tokens, array);
    return ErrorOf([&] { LoadCorpus(config); }).substr(config.tokens.size());
  };
  wide[7] = 70000;
  CHECK(error(MakeNpyArray<std::uint32_t>({3000}, wide)) ==
        ": holds 70000 at 7; tokens are 0 to 65535");
  CHECK(error(MakeNpyArray<std::uint16_t>({2, 1500}, Counting(3000))) ==
        ": has 2 axes; tokens are an array of one axis");
  CHECK(error(MakeNpyArray<float>({2}, std::vector<float>{1, 2})) ==
        ": has the dtype <f4; tokens are uint16, or integers of 32 or 64 bits");
}

TEST_CASE("A wrong token file is refused by what is wrong with it", "[data]") {
  const TemporaryFolder folder;
  DataConfig config;
  config.tokens = (folder / "t.bin").string();
  const auto error = [&](std::string_view bytes) {
    WriteFileAtomically(config.tokens, bytes);
    const std::string text = ErrorOf([&] { LoadCorpus(config); });
    return text.substr(config.tokens.size());
  };
  const std::string whole = TokenFile(Counting(3000));
  CHECK(error("It is a truth universally acknowledged") ==
        ": is not a token file of llm.c (magic 20240520); for plain text use \"text\"");
  CHECK(error(TokenFile(Counting(3000), 1)).find(": is not a token file of llm.c") == 0);
  CHECK(error(TokenFile(Counting(3000), 20240520, 7)) ==
        ": is a token file of version 7; version 1 (uint16 tokens) is needed");
  CHECK(error(whole.substr(0, whole.size() - 1)) ==
        ": has 5999 bytes of tokens, but the header states 3000 tokens: the file may be truncated");
  CHECK(error(TokenFile({})) ==
        ": is too short: its training part has 0 tokens, at least 64 are needed");
  config.vocabulary = 256;
  CHECK(error(whole) == ": holds the token 2999, outside the vocabulary of 256");
}

TEST_CASE("The synthetic corpus has the size and split that were asked for", "[data]") {
  const Corpus corpus =
      LoadCorpus(ReadDataConfig(Json::parse(R"({"source": "synthetic", "synthetic_bytes": 1e5,
                                                "validation_fraction": 0.25})"),
                                "study.json#/data"));
  CHECK(corpus.train.size() == 75'000);
  CHECK(corpus.validation.size() == 25'000);
  CHECK(corpus.name == "synthetic");
}

TEST_CASE("A data configuration survives JSON", "[data]") {
  for (const char* text :
       {R"({"source": "austen"})", R"({"text": "a.txt", "validation_fraction": 0.2})",
        R"({"tokens": "a.bin", "vocabulary": 50257, "validation_fraction": 0.01})",
        R"({"tokens": "a.bin", "vocabulary": 0, "validation_tokens": "b.bin"})",
        R"({"source": "synthetic", "synthetic_seed": 9, "synthetic_bytes": 4096,
            "validation_fraction": 0.5})"}) {
    CHECK(ToJson(ReadDataConfig(Json::parse(text), "x")) == Json::parse(text));
  }
  CHECK(ReadDataConfig(Json::parse("{}"), "x") == DataConfig{});
}

TEST_CASE("A wrong data configuration is refused at its pointer", "[data]") {
  CHECK(ReadError(R"({"sorce": "austen"})") ==
        "study.json#/data/sorce: unknown key; did you mean \"source\"?");
  CHECK(ReadError(R"({"source": "austen", "text": "a.txt"})") ==
        "study.json#/data: only one of \"source\", \"text\" and \"tokens\" can be the corpus");
  CHECK(ReadError(R"({"text": "a.txt", "validation_fraction": 1})") ==
        "study.json#/data/validation_fraction: must be between 0 and 1, both excluded");
  CHECK(ReadError(R"({"source": "synthetic", "synthetic_bytes": 0})")
            .find("study.json#/data/synthetic_bytes: must be from 1") == 0);
  CHECK(ReadError(R"({"source": "austen", "synthetic_seed": 3})")
            .find("study.json#/data/synthetic_seed: unknown key") == 0);
  CHECK(ReadError(R"({"tokens": "a", "validation_tokens": "b", "validation_fraction": 0.1})")
            .find("study.json#/data/validation_fraction: cannot be combined with") == 0);
  CHECK(ReadError(R"({"text": ""})") == "study.json#/data/text: must not be empty");
}

}  // namespace
}  // namespace fp4lab
