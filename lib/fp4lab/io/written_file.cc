// WriteFileAtomically: a temporary file replaces the old file; devices, pipes and sockets are
// written to directly.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <system_error>

#include "fp4lab/base/error.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/random_digits.h"

namespace fp4lab {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPartial = ".partial-";
constexpr mode_t kPermissions = 07777;

bool WriteAll(int descriptor, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return true;
}

// A new file beside `target`; the destructor removes the file unless it was renamed to `target`.
class TemporaryFile {
 public:
  explicit TemporaryFile(const fs::path& target) {
    do {
      path_ = target.string() + std::string(kPartial) + RandomDigits();
      descriptor_ =
          ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    } while (descriptor_ < 0 && errno == EEXIST);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (descriptor_ < 0) return;
    ::close(descriptor_);
    if (!in_place_) ::unlink(path_.c_str());
  }

  bool IsOpen() const { return descriptor_ >= 0; }
  bool Write(std::span<const std::byte> bytes) { return WriteAll(descriptor_, bytes); }
  bool SetPermissions(mode_t mode) { return ::fchmod(descriptor_, mode) == 0; }
  bool Flush() { return ::fsync(descriptor_) == 0; }
  bool MoveTo(const fs::path& target) {
    in_place_ = ::rename(path_.c_str(), target.c_str()) == 0;
    return in_place_;
  }

 private:
  std::string path_;
  int descriptor_ = -1;
  bool in_place_ = false;
};

// The file to write, after all links are followed.
struct Target {
  fs::path path;
  std::optional<mode_t> mode = {};  // of the existing file; nullopt: there is none
  bool through = false;             // open the file and write to it instead of replacing it
};

Target FollowLinks(fs::path path) {
  constexpr int kMostLinks = 40;  // the limit of the Linux kernel
  struct stat status;
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    return {path, status.st_mode, true};
  }
  for (int links = 0; links <= kMostLinks; ++links) {
    if (::lstat(path.c_str(), &status) != 0) return {path};  // opening the file reports the error
    if (!S_ISLNK(status.st_mode)) return {path, status.st_mode};
    // The links of /dev/stdout and /dev/fd/N end in /proc, where a link refers to an open file and
    // not to a name.
    if (path.native().starts_with("/proc/")) return {path, {}, true};
    std::error_code error;
    const fs::path next = fs::read_symlink(path, error);
    if (error) throw Error(path.string(), "cannot be written: " + error.message());
    path = path.parent_path() / next;  // an absolute `next` replaces the whole path
  }
  throw Error(path.string(), std::string("cannot be written: ") + std::strerror(ELOOP));
}

class Writing {
 public:
  explicit Writing(const fs::path& path) : path_(path), target_(FollowLinks(path)) {}

  void Run(const std::function<void(const ByteSink& sink)>& write) {
    if (target_.mode && S_ISDIR(*target_.mode)) {
      throw Error(path_.string(), "is a folder where a file is needed");
    }
    target_.through ? WriteThrough(write) : Replace(write);
  }

 private:
  [[noreturn]] void Fail(int error, const char* consequence) const {
    throw Error(path_.string(),
                std::string("cannot be written: ") + std::strerror(error) + consequence);
  }

  void Replace(const std::function<void(const ByteSink& sink)>& write) {
    const auto fail = [this] { Fail(errno, "; the previous file is unchanged"); };
    std::error_code status;
    const fs::path folder = target_.path.parent_path();
    if (!folder.empty()) fs::create_directories(folder, status);
    if (status) Fail(status.value(), "; its folder cannot be created");
    TemporaryFile file(target_.path);
    if (!file.IsOpen()) fail();
    if (target_.mode && !file.SetPermissions(*target_.mode & kPermissions)) fail();
    write([&](std::span<const std::byte> bytes) {
      if (!file.Write(bytes)) fail();
    });
    if (!file.Flush() || !file.MoveTo(target_.path)) fail();
  }

  void WriteThrough(const std::function<void(const ByteSink& sink)>& write) {
    const int descriptor = ::open(target_.path.c_str(), O_WRONLY | O_TRUNC | O_NOCTTY | O_CLOEXEC);
    if (descriptor < 0) Fail(errno, "");
    try {
      write([&](std::span<const std::byte> bytes) {
        if (!WriteAll(descriptor, bytes)) Fail(errno, "; a part of it may be written");
      });
    } catch (...) {
      ::close(descriptor);
      throw;
    }
    if (::close(descriptor) != 0) Fail(errno, "; a part of it may be written");
  }

  const fs::path& path_;
  Target target_;
};

// Whether `file` is a temporary file of `name`, written by this version or by an older one, whose
// temporary files ended in the process number.
bool IsPartialOf(std::string_view file, std::string_view name) {
  if (!file.starts_with(name)) return false;
  file.remove_prefix(name.size());
  if (!file.starts_with(kPartial)) return false;
  file.remove_prefix(kPartial.size());
  return !file.empty() && file.size() <= kRandomDigits &&
         file.find_first_not_of("0123456789abcdef") == file.npos;
}

}  // namespace

void WriteFileAtomically(const fs::path& path,
                         const std::function<void(const ByteSink& sink)>& write) {
  Writing(path).Run(write);
}

void WriteFileAtomically(const fs::path& path, std::span<const std::byte> bytes) {
  WriteFileAtomically(path, [bytes](const ByteSink& sink) { sink(bytes); });
}

void WriteFileAtomically(const fs::path& path, std::string_view text) {
  WriteFileAtomically(path, std::as_bytes(std::span(text)));
}

void RemovePartialFiles(const fs::path& folder, std::span<const std::string_view> names) {
  std::error_code ignored;  // a file that cannot be listed or removed does no harm
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string file = entry.path().filename().string();
    const bool partial = std::any_of(names.begin(), names.end(), [&file](std::string_view name) {
      return IsPartialOf(file, name);
    });
    if (partial && entry.is_regular_file(ignored)) fs::remove(entry.path(), ignored);
  }
}

}  // namespace fp4lab
