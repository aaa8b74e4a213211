// Token files: those that the data scripts of llm.c write, and .npy arrays. Tokens are below 65536.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace fp4lab {

// Reads a token file. A name that ends in .npy: one axis of integers, unsigned or signed, of 16, 32
// or 64 bits (numpy.save of a tokenizer's ids). Any other: llm.c's format, little-endian: an
// int32[256] header {20240520, version 1, token count, 0...}, then uint16 tokens (llm.c
// dev/data/data_common.py, write_datafile, "gpt-2"). Throws Error for any other magic, version or
// length, and for a truncated file.
std::vector<std::uint16_t> ReadTokenFile(const std::filesystem::path& path);
// The same for the content of a file of llm.c, or of a .npy file; `where` is its name in errors.
std::vector<std::uint16_t> ParseTokenArray(std::span<const std::byte> bytes,
                                           const std::string& where);
std::vector<std::uint16_t> ParseTokenFile(std::span<const std::byte> bytes,
                                          const std::string& where);

}  // namespace fp4lab
