#include "fp4lab/io/tensors/safetensors.h"

#include <cstring>
#include <functional>

#include "fp4lab/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab {
namespace {

std::vector<std::byte> Bytes(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

// A file with this header text and `data_size` zero bytes of data, consistent or not.
std::vector<std::byte> FileOf(const std::string& header, std::size_t data_size) {
  const std::uint64_t length = header.size();
  std::vector<std::byte> file(8 + header.size() + data_size);
  std::memcpy(file.data(), &length, 8);
  std::memcpy(file.data() + 8, header.data(), header.size());
  return file;
}

std::string ParseError(const std::vector<std::byte>& file) {
  return ErrorOf([&] { ParseSafetensors(file, "f.safetensors"); });
}

TEST_CASE("A safetensors file gives back what was written", "[io]") {
  SafetensorsFile file;
  file.metadata = {{"dialect", "te"}, {"note", "a \"quoted\" word"}};
  file.tensors["w"] = {"F4", {2, 4}, Bytes({0x21, 0x43, 0x65, 0x87})};
  file.tensors["w_scale"] = {"F8_E4M3", {2, 1}, Bytes({0x38, 0x40})};
  file.tensors["scalar"] = {"F32", {}, Bytes({0, 0, 0x80, 0x3F})};
  file.tensors["empty"] = {"BF16", {0, 16}, {}};
  const std::vector<std::byte> bytes = FormatSafetensors(file);
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  CHECK(header % 8 == 0);
  CHECK(ParseSafetensors(bytes, "f") == file);
}

TEST_CASE("SafetensorsBytes counts two F4 elements a byte and refuses an odd number", "[io]") {
  CHECK(SafetensorsBytes("F4", std::vector<std::size_t>{3, 32}, "t") == 48);
  CHECK_THROWS_AS(SafetensorsBytes("F4", std::vector<std::size_t>{3, 3}, "t"), Error);
}

TEST_CASE("Wrong safetensors headers are refused with the reason", "[io]") {
  const std::string good = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
  CHECK(ParseError(FileOf(good, 4)) == "no error");
  CHECK(ParseError(FileOf(good, 3)).find("f.safetensors#a: data_offsets") == 0);
  CHECK(ParseError(FileOf(good, 5)).find("1 bytes after the last tensor") != std::string::npos);
  CHECK(ParseError(FileOf("not json", 0)).find("not JSON") != std::string::npos);
  CHECK(ParseError(FileOf("[]", 0)).find("not a JSON object") != std::string::npos);
  CHECK(ParseError(Bytes({1, 2})).find("is not a safetensors file") != std::string::npos);
  const auto with = [](const std::string& entry) {
    return ParseError(FileOf("{\"a\":" + entry + "}", 8));
  };
  CHECK(with(R"({"dtype":"U8","shape":[9],"data_offsets":[0,8]})").find("need 9 bytes") !=
        std::string::npos);
  CHECK(with(R"({"dtype":"U8","shape":[8],"data_offsets":[8,0]})").find("data_offsets") !=
        std::string::npos);
  CHECK(with(R"({"dtype":"U8","shape":[-8],"data_offsets":[0,8]})").find("/shape/0") !=
        std::string::npos);
  CHECK(with(R"({"dtype":"FP4","shape":[16],"data_offsets":[0,8]})").find("unknown dtype") !=
        std::string::npos);
  CHECK(with(R"({"dtype":"U8","shape":[8],"data_offsets":[0,8],"x":1})").find("unknown key") !=
        std::string::npos);
  CHECK(with(R"({"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,8]})")
            .find("overflows") != std::string::npos);
}

TEST_CASE("Overlaps, gaps and duplicate keys in safetensors are refused", "[io]") {
  const auto two = [](const std::string& first, const std::string& second) {
    const auto entry = [](const std::string& offsets) {
      return R"({"dtype":"U8","shape":[4],"data_offsets":)" + offsets + "}";
    };
    return ParseError(FileOf("{\"a\":" + entry(first) + ",\"b\":" + entry(second) + "}", 8));
  };
  CHECK(two("[0,4]", "[4,8]") == "no error");
  CHECK(two("[0,4]", "[2,6]").find("f.safetensors#b: overlaps") == 0);
  CHECK(two("[1,5]", "[5,9]").find("data_offsets") != std::string::npos);
  CHECK(ParseError(FileOf(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})", 8))
            .find("leaves a gap") != std::string::npos);
  const std::string twice = R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  CHECK(ParseError(FileOf("{" + twice + "," + twice + "}", 4)).find("twice") != std::string::npos);
}

TEST_CASE("No prefix of a safetensors file is accepted", "[io]") {
  SafetensorsFile file;
  file.tensors["x"] = {"U8", {5}, Bytes({1, 2, 3, 4, 5})};
  const std::vector<std::byte> whole = FormatSafetensors(file);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    CHECK_THROWS_AS(ParseSafetensors(std::span(whole).first(size), "f"), Error);
  }
}

}  // namespace
}  // namespace fp4lab
