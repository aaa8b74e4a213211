#include "fp4lab/io/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include "fp4lab/base/error.h"

namespace fp4lab {
namespace {

// The process number that the holder wrote into the file.
std::string Holder(int descriptor) {
  char text[32] = {};
  const ssize_t size = ::pread(descriptor, text, sizeof(text) - 1, 0);
  std::string holder(text, size > 0 ? static_cast<std::size_t>(size) : 0);
  while (!holder.empty() && holder.back() == '\n') holder.pop_back();
  return holder;
}

}  // namespace

FolderLock::FolderLock(const std::filesystem::path& folder) {
  std::error_code status;
  std::filesystem::create_directories(folder, status);
  const std::filesystem::path path = folder / ".lock";
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (descriptor_ < 0) {
    const std::string reason = status ? status.message() : std::strerror(errno);
    throw Error(folder.string(), "cannot be written to: " + reason);
  }
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    const std::string holder = Holder(descriptor_);
    ::close(descriptor_);
    throw Error(folder.string(),
                "another fp4lab process" + (holder.empty() ? "" : " (" + holder + ")") +
                    " is already running in this folder; wait for it or give another --out-dir");
  }
  const std::string self = std::to_string(::getpid()) + "\n";
  if (::ftruncate(descriptor_, 0) != 0 ||
      ::pwrite(descriptor_, self.data(), self.size(), 0) != static_cast<ssize_t>(self.size())) {
    const std::string reason = std::strerror(errno);
    ::close(descriptor_);
    throw Error(path.string(), "cannot be written: " + reason);
  }
}

FolderLock::~FolderLock() { ::close(descriptor_); }

}  // namespace fp4lab
