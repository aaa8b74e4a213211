// Packs as text: what each form writes is parsed back to the pack's words.
#include "fp4lab/judge/packs/pack_form.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "fp4lab/base/text/text.h"
#include "fp4lab/judge/packs/pack.h"
#include "fp4lab/transform/hadamard.h"
#include "tests/support/catch.h"
#include "tests/support/values.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;
using Words = std::vector<std::uint64_t>;

// The words of a tensor's bytes, by its dtype.
Words WordsOf(const SafetensorsTensor& tensor) {
  const std::size_t size = tensor.dtype == "F32" ? 4 : tensor.dtype == "U8" ? 1 : 2;
  Words words(tensor.bytes.size() / size);
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::memcpy(&words[i], tensor.bytes.data() + i * size, size);
  }
  return words;
}

// The lines of a text that do not start with `comment`, joined.
std::string WithoutComments(const std::string& text, const std::string& comment) {
  std::istringstream lines(text);
  std::string rest;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(comment, 0) != 0) rest += line + "\n";
  }
  return rest;
}

Words HexWords(std::string text) {
  for (char& c : text) c = c == ',' || c == ';' ? ' ' : c;
  std::istringstream in(text);
  Words words;
  for (std::string word; in >> word;) words.push_back(std::stoull(word, nullptr, 16));
  return words;
}

// A pack with words of 8, 16 and 32 bits, with NaN, and with bytes in two layouts.
SafetensorsFile PackOf(const char* dialect) {
  Matrix<float> x = NormalMatrix(7, 18, 48);
  x.values[5] = std::numeric_limits<float>::quiet_NaN();
  PackOptions options;
  std::vector<std::uint16_t> random(x.values.size());
  for (std::size_t i = 0; i < random.size(); ++i) random[i] = static_cast<std::uint16_t>(i * 37);
  const Dialect& d = *FindDialect(dialect);
  if (IsStochastic(d)) options.quantize.random = random;
  options.layouts = {{.codes = DefaultCodeOrder(d.element)},
                     {.codes = DefaultCodeOrder(d.element), .scales = ScaleOrder::k128x4}};
  return MakePack(d, x.View(), options);
}

std::string FileOf(const std::string& tensor, PackForm form) {
  std::string name = tensor;
  for (char& c : name) c = c == '.' || c == '-' ? '_' : c;
  return name + std::string(Named(form).ending);
}

TEST_CASE("Every form of a pack for memories holds the words of every tensor", "[judge]") {
  for (const char* dialect : {"nvfp4.te.stochastic", "mxfp4.floor", "mxfp6_e2m3.floor"}) {
    CAPTURE(dialect);
    const SafetensorsFile pack = PackOf(dialect);
    for (const PackForm form : {PackForm::kReadmemh, PackForm::kCoe, PackForm::kMif}) {
      const std::vector<TextFile> files = PackTexts(pack, form, "pack");
      REQUIRE(files.size() == pack.tensors.size());
      std::size_t i = 0;
      for (const auto& [name, tensor] : pack.tensors) {
        CAPTURE(name, Named(form).name);
        const TextFile& file = files[i++];
        CHECK(file.name == FileOf(name, form));
        const Words words = WordsOf(tensor);
        CHECK_THAT(file.text,
                   ContainsSubstring(name + ": ") &&
                       ContainsSubstring("; " + CountText(words.size(), "word") + " of ") &&
                       ContainsSubstring(pack.metadata.at("source")) &&
                       ContainsSubstring(pack.metadata.at("sha256." + name)));
        if (form == PackForm::kReadmemh) {
          CHECK(HexWords(WithoutComments(file.text, "//")) == words);
        } else if (form == PackForm::kCoe) {
          const std::string text = WithoutComments(file.text, ";");
          const std::string head =
              "memory_initialization_radix=16;\nmemory_initialization_vector=\n";
          REQUIRE(text.rfind(head, 0) == 0);
          CHECK(text.find(";\n", head.size()) == text.size() - 2);
          CHECK(HexWords(text.substr(head.size())) == words);
        } else {
          const std::string text = WithoutComments(file.text, "--");
          const std::size_t begin = text.find("CONTENT BEGIN\n");
          REQUIRE(begin != std::string::npos);
          CHECK_THAT(text, ContainsSubstring("DEPTH=" + std::to_string(words.size()) + ";"));
          std::istringstream lines(text.substr(begin + 14));
          Words read;
          for (std::string line; std::getline(lines, line) && line != "END;";) {
            CHECK(std::stoull(line.substr(0, 8), nullptr, 16) == read.size());
            read.push_back(std::stoull(line.substr(10), nullptr, 16));
          }
          CHECK(read == words);
        }
      }
    }
  }
}

TEST_CASE("A line of a hex file is a row of its tensor", "[judge]") {
  const SafetensorsFile pack = PackOf("nvfp4.te");
  for (const TextFile& file : PackTexts(pack, PackForm::kReadmemh, "pack")) {
    if (file.name != "codes.hex") continue;
    std::istringstream lines(WithoutComments(file.text, "//"));
    std::size_t rows = 0;
    for (std::string line; std::getline(lines, line); ++rows) CHECK(HexWords(line).size() == 48);
    CHECK(rows == 18);
    CHECK_THAT(file.text, ContainsSubstring("reg [7:0] codes [0:863];  initial "
                                            "$readmemh(\"codes.hex\", codes);"));
  }
}

TEST_CASE("Names of C arrays", "[judge]") {
  CHECK(IsIdentifier("golden_1"));
  for (const char* name : {"", "1golden", "a-b", "a.b", "a b"}) CHECK_FALSE(IsIdentifier(name));
  for (std::size_t i = 0; i < kPackForms.size(); ++i) {
    CHECK(kPackForms[i].form == static_cast<PackForm>(i));
  }
}

}  // namespace
}  // namespace fp4lab
