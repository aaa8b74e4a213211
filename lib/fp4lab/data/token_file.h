// The token files that the data scripts of llm.c write: tokens of any vocabulary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace fp4lab {

// Reads a token file. Format, little-endian: an int32[256] header {20240520, version 1, token
// count, 0...}, then uint16 tokens (llm.c dev/data/data_common.py, write_datafile, "gpt-2"). Throws
// Error for any other magic, version or length, and for a truncated file.
std::vector<std::uint16_t> ReadTokenFile(const std::filesystem::path& path);
// The same for the content of a file; `where` is its name in errors.
std::vector<std::uint16_t> ParseTokenFile(std::span<const std::byte> bytes,
                                          const std::string& where);

}  // namespace fp4lab
