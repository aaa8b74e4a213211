#include "fp4lab/base/hash.h"

#include <openssl/evp.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>

#include "fp4lab/base/error.h"

namespace fp4lab {
namespace {

class Digest {
 public:
  Digest() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
    Expects(context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1,
            "OpenSSL offers SHA-256");
  }

  void Add(const void* bytes, std::size_t count) {
    Expects(EVP_DigestUpdate(context_.get(), bytes, count) == 1, "OpenSSL takes bytes");
  }

  std::string Hex() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned length = 0;
    Expects(EVP_DigestFinal_ex(context_.get(), digest.data(), &length) == 1, "OpenSSL finishes");
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string hex;
    for (unsigned i = 0; i < length; ++i) {
      hex += kDigits[digest[i] >> 4];
      hex += kDigits[digest[i] & 15];
    }
    return hex;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

}  // namespace

std::string Sha256(std::span<const std::byte> bytes) {
  Digest digest;
  digest.Add(bytes.data(), bytes.size());
  return digest.Hex();
}

std::string Sha256(std::string_view text) { return Sha256(std::as_bytes(std::span(text))); }

std::string Sha256OfFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(path.string(), std::string("cannot be read: ") + std::strerror(errno));
  Digest digest;
  std::array<char, 1 << 16> buffer;
  while (file.read(buffer.data(), buffer.size()) || file.gcount() > 0) {
    digest.Add(buffer.data(), static_cast<std::size_t>(file.gcount()));
  }
  if (file.bad()) throw Error(path.string(), "reading failed");
  return digest.Hex();
}

}  // namespace fp4lab
