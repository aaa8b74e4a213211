#include "fp4lab/io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/text/printable.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/io/memory.h"
#include "fp4lab/io/near_files.h"

namespace fp4lab {
namespace {

constexpr std::size_t kMostNeighbours = 10'000;

}  // namespace

void RefuseControlCharacters(std::string_view name, std::string_view where) {
  if (Printable(name) != name) throw Error(where, "has a name with control characters");
}

std::string NearFilesText(const std::filesystem::path& path) {
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  const std::string name = Printable(path.filename().string());
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  while (!error && entry != std::filesystem::directory_iterator() &&
         names.size() < kMostNeighbours) {
    const std::string other = Printable(entry->path().filename().string());
    if (other != name) names.push_back(other);  // a link to nowhere has the name itself
    entry.increment(error);
  }
  return NearNames(name, names).empty() ? "" : "; " + DidYouMean(name, names);
}

void CannotRead(const std::filesystem::path& path, int error) {
  const std::string near = error == ENOENT ? NearFilesText(path) : "";
  throw Error(path.string(), std::string("cannot be read: ") + std::strerror(error) + near);
}

bool Exists(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) return false;
  if (error) CannotRead(path, error.value());
  return true;
}

OpenFile::OpenFile(const std::filesystem::path& path)
    : path_(path.string()), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (descriptor_ < 0) CannotRead(path_, errno);
  struct stat status;
  const bool known = ::fstat(descriptor_, &status) == 0;
  if (known && S_ISREG(status.st_mode)) size_ = static_cast<std::size_t>(status.st_size);
  if (known && !S_ISDIR(status.st_mode)) return;
  const int error = errno;
  ::close(descriptor_);
  if (known) throw Error(path_, "is a folder where a file is needed");
  CannotRead(path_, error);
}

OpenFile::~OpenFile() { ::close(descriptor_); }

void OpenFile::ReadAll(const ByteSink& sink) const {
  std::vector<std::byte> piece(std::size_t{1} << 20);
  for (std::size_t read = 0;;) {
    const ssize_t got = ::read(descriptor_, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) CannotRead(path_, errno);
    if (got == 0) return;
    read += static_cast<std::size_t>(got);
    if (size_ == 0 && read > kMostStreamedBytes) {
      throw Error(path_, "is not a regular file and gives more than " +
                             std::to_string(kMostStreamedBytes >> 20) +
                             " MiB: copy the data into a regular file first");
    }
    sink(std::span(piece).first(static_cast<std::size_t>(got)));
  }
}

std::string ReadFile(const std::filesystem::path& path) {
  const OpenFile file(path);
  RequireMemory(file.MappableBytes(), path.string());
  std::string text;
  text.reserve(file.MappableBytes());
  file.ReadAll([&text](std::span<const std::byte> piece) {
    text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  });
  return text;
}

}  // namespace fp4lab
