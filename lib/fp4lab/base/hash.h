// SHA-256 of bytes and files (OpenSSL).
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace fp4lab {

// 64 lower-case hex digits.
std::string Sha256(std::span<const std::byte> bytes);
std::string Sha256(std::string_view text);
// Throws Error if the file cannot be read.
std::string Sha256OfFile(const std::filesystem::path& path);

}  // namespace fp4lab
