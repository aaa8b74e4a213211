#include "fp4lab/data/token_file.h"

#include <bit>
#include <cstring>
#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/io/file_content.h"
#include "fp4lab/io/memory.h"
#include "fp4lab/io/tensors/npy.h"

namespace fp4lab {
namespace {

constexpr std::size_t kHeaderBytes = 256 * 4;
constexpr std::int32_t kMagic = 20240520, kVersion = 1;

std::int32_t HeaderWord(std::span<const std::byte> bytes, std::size_t index) {
  std::int32_t word;
  std::memcpy(&word, bytes.data() + 4 * index, 4);
  return word;
}

template <class Integer>
std::vector<std::uint16_t> TokensIn(const NpyArray& array) {
  std::vector<std::uint16_t> tokens;
  tokens.reserve(array.bytes.size() / sizeof(Integer));
  for (const Integer token : array.As<Integer>()) {
    if (!std::in_range<std::uint16_t>(token)) {
      throw Error(array.where, "holds " + std::to_string(token) + " at " +
                                   std::to_string(tokens.size()) + "; tokens are 0 to 65535");
    }
    tokens.push_back(static_cast<std::uint16_t>(token));
  }
  return tokens;
}

// The integers that a tokenizer's ids are saved as.
struct TokenArray {
  std::string_view dtype;
  std::vector<std::uint16_t> (*read)(const NpyArray& array);
};
constexpr TokenArray kTokenArrays[] = {{"<u4", TokensIn<std::uint32_t>},
                                       {"<u8", TokensIn<std::uint64_t>},
                                       {"<i4", TokensIn<std::int32_t>},
                                       {"<i8", TokensIn<std::int64_t>}};

}  // namespace

std::vector<std::uint16_t> ParseTokenArray(std::span<const std::byte> bytes,
                                           const std::string& where) {
  const NpyArray array = ViewNpy(bytes, where);
  if (array.shape.size() != 1) {
    throw Error(where, "has " + std::to_string(array.shape.size()) +
                           " axes; tokens are an array of one axis");
  }
  RequireMemory(array.shape[0] * sizeof(std::uint16_t), where);
  if (array.dtype == "<u2") {
    const auto tokens = array.As<std::uint16_t>();
    return {tokens.begin(), tokens.end()};
  }
  for (const TokenArray& row : kTokenArrays) {
    if (row.dtype == array.dtype) return row.read(array);
  }
  throw Error(where,
              "has the dtype " + array.dtype + "; tokens are uint16, or integers of 32 or 64 bits");
}

std::vector<std::uint16_t> ParseTokenFile(std::span<const std::byte> bytes,
                                          const std::string& where) {
  static_assert(std::endian::native == std::endian::little);
  if (bytes.size() < kHeaderBytes || HeaderWord(bytes, 0) != kMagic) {
    throw Error(where,
                "is not a token file of llm.c (magic 20240520); for plain text use \"text\"");
  }
  if (HeaderWord(bytes, 1) != kVersion) {
    throw Error(where, "is a token file of version " + std::to_string(HeaderWord(bytes, 1)) +
                           "; version 1 (uint16 tokens) is needed");
  }
  const std::int64_t count = HeaderWord(bytes, 2);
  const std::size_t payload = bytes.size() - kHeaderBytes;
  if (count < 0 || payload != static_cast<std::size_t>(count) * 2) {
    throw Error(where, "has " + std::to_string(payload) +
                           " bytes of tokens, but the header states " + std::to_string(count) +
                           " tokens: the file may be truncated");
  }
  RequireMemory(payload, where);
  std::vector<std::uint16_t> tokens(static_cast<std::size_t>(count));
  if (count > 0) std::memcpy(tokens.data(), bytes.data() + kHeaderBytes, payload);
  return tokens;
}

std::vector<std::uint16_t> ReadTokenFile(const std::filesystem::path& path) {
  const FileContent content(path);
  if (path.extension() == ".npy") return ParseTokenArray(content.bytes(), path.string());
  return ParseTokenFile(content.bytes(), path.string());
}

}  // namespace fp4lab
