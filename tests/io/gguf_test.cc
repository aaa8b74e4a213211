// GGUF files: written files are read back, inconsistent files are refused with one line.
#include "fp4lab/io/tensors/gguf.h"

#include <cstring>

#include "fp4lab/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

// A GGUF file put together by hand.
struct Builder {
  std::string text = "GGUF";
  template <class T>
  Builder& Number(T value) {
    text.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Builder& U32(std::uint32_t value) { return Number(value); }
  Builder& U64(std::uint64_t value) { return Number(value); }
  Builder& String(const std::string& value) {
    U64(value.size());
    text += value;
    return *this;
  }
  Builder& Tensor(const std::string& name, std::vector<std::uint64_t> dimensions,
                  std::uint32_t type, std::uint64_t offset) {
    String(name).U32(static_cast<std::uint32_t>(dimensions.size()));
    for (const std::uint64_t n : dimensions) U64(n);
    return U32(type).U64(offset);
  }
  Builder& Data(std::size_t size, std::size_t alignment = 32) {
    text.resize((text.size() + alignment - 1) / alignment * alignment, '\0');
    text.append(size, 'd');
    return *this;
  }
};
Builder Header(std::uint64_t tensors, std::uint64_t pairs, std::uint32_t version = 3) {
  return Builder().U32(version).U64(tensors).U64(pairs);
}
std::string WhatReadingSays(const Builder& b) {
  return ErrorOf([&] { ParseGguf(std::as_bytes(std::span(b.text)), "m.gguf"); });
}
GgufFile Parsed(const Builder& b) { return ParseGguf(std::as_bytes(std::span(b.text)), "m.gguf"); }

TEST_CASE("What was written to GGUF is read back", "[io]") {
  GgufFile file;
  file.tensors["a.weight"] = {kGgmlMxfp4, {3, 64}, std::vector<std::byte>(3 * 2 * 17)};
  file.tensors["b.weight"] = {kGgmlNvfp4, {2, 5, 64}, std::vector<std::byte>(10 * 36)};
  file.tensors["b.scale"] = {kGgmlF32, {1}, std::vector<std::byte>(4)};
  file.tensors["none"] = {kGgmlF16, {0, 4}, {}};
  for (std::size_t i = 0; i < 102; ++i) {
    file.tensors["a.weight"].bytes.Change()[i] = std::byte(i);
  }
  CHECK(ParseGguf(FormatGguf(file), "x") == file);
  CHECK(FormatGguf(file).size() % 32 == 0);
  CHECK(ParseGguf(FormatGguf({}), "x").tensors.empty());
}

TEST_CASE("Metadata of every type is skipped, and the alignment is heeded", "[io]") {
  Builder b = Header(1, 9, 2);
  b.String("k.u8").U32(0).Number(std::uint8_t{1});
  b.String("k.f32").U32(6).Number(1.5f);
  b.String("k.bool").U32(7).Number(std::uint8_t{1});
  b.String("k.text").U32(8).String("hello");
  b.String("k.u64").U32(10).U64(1);
  b.String("k.words").U32(9).U32(8).U64(2).String("a").String("bc");
  b.String("k.nested").U32(9).U32(9).U64(2).U32(1).U64(0).U32(5).U64(1).U32(7);
  b.String("general.alignment").U32(4).U32(64);
  b.String("k.f64").U32(12).Number(1.5);
  b.Tensor("x", {4}, kGgmlF32, 0).Data(16, 64);
  const GgufFile file = Parsed(b);
  REQUIRE(file.tensors.size() == 1);
  CHECK(file.tensors.at("x").bytes == std::vector<std::byte>(16, std::byte{'d'}));
}

TEST_CASE("Dimensions are turned to outermost first", "[io]") {
  const GgufFile file = Parsed(Header(1, 0).Tensor("x", {64, 3, 2}, kGgmlNvfp4, 0).Data(216));
  CHECK(file.tensors.at("x").shape == std::vector<std::size_t>{2, 3, 64});
}

TEST_CASE("A wrong GGUF header is refused in one line that names the place", "[io]") {
  const auto one = [](std::vector<std::uint64_t> dimensions, std::uint32_t type,
                      std::uint64_t offset, std::size_t data) {
    return WhatReadingSays(Header(1, 0).Tensor("x", dimensions, type, offset).Data(data));
  };
  REQUIRE(one({32}, kGgmlMxfp4, 0, 17) == "no error");
  const std::uint64_t huge = std::uint64_t{1} << 62;
  const std::pair<std::string, std::string> cases[] = {
      {one({32}, kGgmlMxfp4, 0, 16), "does not lie in the file's 16 bytes"},
      {one({32}, kGgmlMxfp4, 0, 70), "bytes after the last tensor"},
      {one({33}, kGgmlMxfp4, 0, 34), "blocks of 32 do not fill"},
      {one({32}, 4, 0, 17), "type 4, which is not known"},
      {one({32}, 99, 0, 17), "type 99"},
      {one({32}, kGgmlMxfp4, 8, 25), "not a multiple of the alignment"},
      {one({32}, kGgmlMxfp4, 32, 64), "leaves a gap"},
      {one({32}, kGgmlMxfp4, ~std::uint64_t{31}, 64), "leaves a gap"},
      {one({huge, huge}, kGgmlF32, 0, 64), "overflows"},
      {one({}, kGgmlF32, 0, 64), "0 dimensions"},
      {one({1, 1, 1, 1, 1}, kGgmlF32, 0, 64), "5 dimensions"},
      {WhatReadingSays(Builder{"GGUX"}), "is not a GGUF file"},
      {WhatReadingSays(Builder{""}), "is not a GGUF file"},
      {WhatReadingSays(Header(0, 0, 1)), "version 1"},
      {WhatReadingSays(Header(0, 0, 0x03000000)), "version 50331648"},  // big-endian
      {WhatReadingSays(Header(huge, 0)), "states 4611686018427387904 tensors"},
      {WhatReadingSays(Header(0, huge)), "metadata pairs"},
      {WhatReadingSays(Header(0, 1).U64(huge)), "states 0 tensors and 1"},
      {WhatReadingSays(Header(0, 1).U64(huge).U64(0)), "longer than the rest"},
      {WhatReadingSays(Header(0, 1).String("key").U32(13)), "unknown type"},
      {WhatReadingSays(Header(0, 1).String("key").U32(7).U32(2)), "neither 0 nor 1"},
      {WhatReadingSays(Header(0, 1).String("key").U32(9).U32(0).U64(huge)), "array longer"},
      {WhatReadingSays(Header(0, 1).String("general.alignment").U32(4).U32(0)), "power of two"},
      {WhatReadingSays(Header(0, 1).String("general.alignment").U32(5).U32(32)), "not a uint32"},
      {WhatReadingSays(Header(0, 2).String("k").U32(4).U32(0).String("k").U32(4).U32(0)),
       "duplicate metadata key"},
      {WhatReadingSays(Header(2, 0).Tensor("x", {1}, 0, 0).Tensor("x", {1}, 0, 32).Data(36)),
       "duplicate tensor name"},
      {WhatReadingSays(Header(2, 0).Tensor("x", {1}, 0, 0).Tensor("y", {1}, 0, 0).Data(36)),
       "overlaps"},
      {WhatReadingSays(Header(1, 0).Tensor("a\nb", {1}, 0, 0).Data(4)), "control characters"},
      {WhatReadingSays(Header(1, 0).Tensor(std::string(65, 'n'), {1}, 0, 0).Data(4)), "at most 64"},
  };
  for (const auto& [what, expected] : cases) {
    CHECK_THAT(what, ContainsSubstring("m.gguf") && ContainsSubstring(expected));
    CHECK(what.find('\n') == std::string::npos);
  }
}

TEST_CASE("Arrays nested without end do not exhaust the stack", "[io]") {
  Builder b = Header(0, 1).String("deep").U32(9);
  for (int i = 0; i < 100000; ++i) b.U32(9).U64(1);
  CHECK_THAT(WhatReadingSays(b), ContainsSubstring("nested too deep"));
}

TEST_CASE("Every cut of a GGUF file is refused", "[io]") {
  GgufFile file;
  file.tensors["x"] = {kGgmlF32, {3}, std::vector<std::byte>(12)};
  const std::vector<std::byte> bytes = FormatGguf(file);
  const std::size_t padding = 20;  // after the last tensor; it may be missing
  for (std::size_t size = 0; size < bytes.size() - padding; ++size) {
    CHECK_THROWS_AS(ParseGguf(std::span(bytes).first(size), "x"), Error);
  }
  CHECK_NOTHROW(ParseGguf(std::span(bytes).first(bytes.size() - padding), "x"));
}

}  // namespace
}  // namespace fp4lab
