#include "fp4lab/base/hash.h"

#include <openssl/evp.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>

#include "fp4lab/base/error.h"

namespace fp4lab {

struct Sha256Stream::Context {
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> digest{EVP_MD_CTX_new(),
                                                                 &EVP_MD_CTX_free};
};

Sha256Stream::Sha256Stream() : context_(std::make_unique<Context>()) {
  Expects(context_->digest && EVP_DigestInit_ex(context_->digest.get(), EVP_sha256(), nullptr) == 1,
          "OpenSSL initializes SHA-256");
}

Sha256Stream::~Sha256Stream() = default;

void Sha256Stream::Add(std::span<const std::byte> bytes) {
  Expects(EVP_DigestUpdate(context_->digest.get(), bytes.data(), bytes.size()) == 1,
          "OpenSSL updates the digest");
}

std::string Sha256Stream::Hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  Expects(EVP_DigestFinal_ex(context_->digest.get(), digest.data(), &length) == 1,
          "OpenSSL finishes the digest");
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  for (unsigned i = 0; i < length; ++i) {
    hex += kDigits[digest[i] >> 4];
    hex += kDigits[digest[i] & 15];
  }
  return hex;
}

std::string Sha256(std::span<const std::byte> bytes) {
  Sha256Stream digest;
  digest.Add(bytes);
  return digest.Hex();
}

std::string Sha256(std::string_view text) { return Sha256(std::as_bytes(std::span(text))); }

std::string Sha256OfFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(path.string(), std::string("cannot be read: ") + std::strerror(errno));
  Sha256Stream digest;
  std::array<char, 1 << 16> buffer;
  while (file.read(buffer.data(), buffer.size()) || file.gcount() > 0) {
    digest.Add(std::as_bytes(std::span(buffer).first(static_cast<std::size_t>(file.gcount()))));
  }
  if (file.bad()) throw Error(path.string(), "reading failed");
  return digest.Hex();
}

}  // namespace fp4lab
