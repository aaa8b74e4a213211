#include "fp4lab/data/token_file.h"

#include <bit>
#include <cstring>

#include "fp4lab/base/error.h"
#include "fp4lab/io/file_content.h"
#include "fp4lab/io/memory.h"

namespace fp4lab {
namespace {

constexpr std::size_t kHeaderBytes = 256 * 4;
constexpr std::int32_t kMagic = 20240520, kVersion = 1;

std::int32_t HeaderWord(std::span<const std::byte> bytes, std::size_t index) {
  std::int32_t word;
  std::memcpy(&word, bytes.data() + 4 * index, 4);
  return word;
}

}  // namespace

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
  return ParseTokenFile(content.bytes(), path.string());
}

}  // namespace fp4lab
