// SHA-256 of bytes and files (OpenSSL).
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace fp4lab {

// SHA-256 of bytes that arrive in pieces.
class Sha256Stream {
 public:
  Sha256Stream();
  ~Sha256Stream();
  void Add(std::span<const std::byte> bytes);
  std::string Hex();  // 64 lower-case hex digits; call it once, after the last piece

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

// SHA-256 as 64 lower-case hex digits.
std::string Sha256(std::span<const std::byte> bytes);
std::string Sha256(std::string_view text);
// Throws Error if the file cannot be read.
std::string Sha256OfFile(const std::filesystem::path& path);

}  // namespace fp4lab
