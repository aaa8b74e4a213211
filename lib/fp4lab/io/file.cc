#include "fp4lab/io/file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include "fp4lab/base/error.h"

namespace fp4lab {
namespace {

// Removes a half-written file unless it was renamed into place.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::filesystem::path& target)
      : path_(target.string() + ".partial-" + std::to_string(::getpid())),
        descriptor_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {}
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (!in_place_) ::unlink(path_.c_str());
  }

  bool IsOpen() const { return descriptor_ >= 0; }

  bool Write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return false;
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    return true;
  }

  bool Flush() { return ::fsync(descriptor_) == 0; }

  bool MoveTo(const std::filesystem::path& target) {
    in_place_ = ::rename(path_.c_str(), target.c_str()) == 0;
    return in_place_;
  }

 private:
  std::string path_;
  int descriptor_;
  bool in_place_ = false;
};

}  // namespace

void RefuseControlCharacters(std::string_view name, std::string_view where) {
  for (const char c : name) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      throw Error(where, "has a name with control characters");
    }
  }
}

std::string ReadFile(const std::filesystem::path& path) {
  std::error_code status;
  if (std::filesystem::is_directory(path, status)) {
    throw Error(path.string(), "is a folder where a file is needed");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(path.string(), std::string("cannot be read: ") + std::strerror(errno));
  std::string text;
  const std::uintmax_t size = std::filesystem::file_size(path, status);
  if (!status) text.reserve(size);
  std::array<char, 1 << 16> piece;
  while (file.read(piece.data(), piece.size()) || file.gcount() > 0) {
    text.append(piece.data(), static_cast<std::size_t>(file.gcount()));
  }
  if (file.bad()) throw Error(path.string(), "reading failed");
  return text;
}

void WriteFileAtomically(const std::filesystem::path& path,
                         const std::function<void(const ByteSink& sink)>& write) {
  std::error_code status;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), status);
  const auto fail = [&path] {
    throw Error(path.string(), std::string("cannot be written: ") + std::strerror(errno) +
                                   "; what stood there before is untouched");
  };
  TemporaryFile file(path);
  if (!file.IsOpen()) fail();
  write([&](std::span<const std::byte> bytes) {
    if (!file.Write(bytes)) fail();
  });
  if (!file.Flush() || !file.MoveTo(path)) fail();
}

void WriteFileAtomically(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  WriteFileAtomically(path, [bytes](const ByteSink& sink) { sink(bytes); });
}

void WriteFileAtomically(const std::filesystem::path& path, std::string_view text) {
  WriteFileAtomically(path, std::as_bytes(std::span(text)));
}

}  // namespace fp4lab
