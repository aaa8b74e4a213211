#include "fp4lab/io/file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <string>
#include <thread>

#include "fp4lab/base/error.h"
#include "fp4lab/io/file_content.h"
#include "fp4lab/io/folder_lock.h"
#include "fp4lab/io/memory.h"
#include "fp4lab/io/temporary_folder.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace {

// The byte for each coming call of getrandom(), which fills its buffer with it; empty: random
// bytes.
std::deque<unsigned char> foreseen_digits;

}  // namespace

// Stands in for the C library's function, which the names of temporary files are made with.
extern "C" ssize_t getrandom(void* buffer, std::size_t size, unsigned flags) {
  if (foreseen_digits.empty()) return ::syscall(SYS_getrandom, buffer, size, flags);
  std::memset(buffer, foreseen_digits.front(), size);
  foreseen_digits.pop_front();
  return static_cast<ssize_t>(size);
}

namespace fp4lab {
namespace {

namespace fs = std::filesystem;

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;

std::size_t Entries(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), {}));
}

mode_t ModeOf(const fs::path& path) {
  struct stat status {};
  REQUIRE(::lstat(path.c_str(), &status) == 0);
  return status.st_mode;
}

// Reads a FIFO to its end on another thread.
class Listener {
 public:
  explicit Listener(const fs::path& fifo) : thread_([this, fifo] { heard_ = ReadFile(fifo); }) {}
  std::string Heard() {
    thread_.join();
    return heard_;
  }

 private:
  std::string heard_;
  std::thread thread_;
};

TEST_CASE("A new file has the permissions that the umask leaves, an old one keeps its own",
          "[io][file]") {
  const TemporaryFolder folder;
  const mode_t umask = ::umask(027);
  WriteFileAtomically(folder / "new", std::string_view("1"));
  ::umask(umask);
  CHECK((ModeOf(folder / "new") & 07777) == 0640);
  REQUIRE(::chmod((folder / "new").c_str(), 0604) == 0);
  WriteFileAtomically(folder / "new", std::string_view("2"));
  CHECK((ModeOf(folder / "new") & 07777) == 0604);
  CHECK(ReadFile(folder / "new") == "2");
  CHECK(Entries(folder.path()) == 1);
}

TEST_CASE("Writing to a link replaces the file that it points to and keeps the link",
          "[io][file]") {
  const TemporaryFolder folder;
  fs::create_directory(folder / "far");
  WriteFileAtomically(folder / "far/file", std::string_view("old"));
  fs::create_symlink("far/file", folder / "near");
  fs::create_symlink("near", folder / "chain");
  for (const char* link : {"near", "chain"}) {
    WriteFileAtomically(folder / link, std::string_view(link));
    CHECK(S_ISLNK(ModeOf(folder / link)));
    CHECK(S_ISREG(ModeOf(folder / "far/file")));
    CHECK(ReadFile(folder / "far/file") == link);
  }
  fs::create_symlink("far/made", folder / "dangling");
  WriteFileAtomically(folder / "dangling", std::string_view("made"));
  CHECK(S_ISLNK(ModeOf(folder / "dangling")));
  CHECK(ReadFile(folder / "far/made") == "made");
  CHECK(Entries(folder / "far") == 2);
}

TEST_CASE("A file that is not there is named with the files whose names are near", "[io][file]") {
  const TemporaryFolder folder;
  const auto read = [&](const std::string& name) {
    return ErrorOf([&] { ReadFile(folder / name); });
  };
  CHECK_THAT(read("scales.npy"), EndsWith(std::strerror(ENOENT)));  // an empty folder has no names
  for (const char* name : {"scales.npz", "codes.npy", "readme"}) {
    WriteFileAtomically(folder / name, std::string_view("x"));
  }
  CHECK_THAT(read("scales.npy"), EndsWith("; did you mean \"scales.npz\"?"));
  CHECK_THAT(read("coeds.npy"), EndsWith("; did you mean \"codes.npy\"?"));
  CHECK_THAT(read("weights"), EndsWith(std::strerror(ENOENT)));
  CHECK_THAT(read("none/codes.npy"), EndsWith(std::strerror(ENOENT)));
  fs::create_symlink("far/away", folder / "linked");
  CHECK_THAT(read("linked"), EndsWith(std::strerror(ENOENT)));
  WriteFileAtomically(folder / "a\nb.bin", std::string_view("x"));
  CHECK_THAT(read("ab.bin"), EndsWith("; did you mean \"a\\nb.bin\"?"));
}

TEST_CASE("A link that points to itself is refused with the system's reason", "[io][file]") {
  const TemporaryFolder folder;
  fs::create_symlink("loop", folder / "loop");
  const auto write = [&] { WriteFileAtomically(folder / "loop", std::string_view("x")); };
  CHECK_THAT(ErrorOf(write), EndsWith(std::strerror(ELOOP)));
  CHECK_THAT(ErrorOf([&] { ReadFile(folder / "loop"); }), EndsWith(std::strerror(ELOOP)));
  CHECK_THAT(ErrorOf([&] { Exists(folder / "loop"); }), EndsWith(std::strerror(ELOOP)));
  CHECK(S_ISLNK(ModeOf(folder / "loop")));
}

TEST_CASE("A pipe is written to and read from, not replaced", "[io][file]") {
  const TemporaryFolder folder;
  const fs::path fifo = folder / "fifo";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  Listener listener(fifo);
  WriteFileAtomically(fifo, std::string_view("through"));
  CHECK(listener.Heard() == "through");
  CHECK(S_ISFIFO(ModeOf(fifo)));
  std::thread writer([&] { WriteFileAtomically(fifo, std::string_view("mapped? no")); });
  const FileContent content(fifo);
  writer.join();
  CHECK(std::string(reinterpret_cast<const char*>(content.bytes().data()),
                    content.bytes().size()) == "mapped? no");
  CHECK(Entries(folder.path()) == 1);
}

TEST_CASE("Writing to a device keeps it, also through a link; a full device is reported",
          "[io][file]") {
  const TemporaryFolder folder;
  fs::create_symlink("/dev/null", folder / "null");
  fs::create_symlink("/dev/full", folder / "full");
  WriteFileAtomically(folder / "null", std::string_view("gone"));
  CHECK(S_ISLNK(ModeOf(folder / "null")));
  CHECK(S_ISCHR(ModeOf("/dev/null")));
  const auto fill = [&] { WriteFileAtomically(folder / "full", std::string_view("x")); };
  CHECK_THAT(ErrorOf(fill), ContainsSubstring(std::strerror(ENOSPC)));
  CHECK(S_ISCHR(ModeOf("/dev/full")));
  CHECK(Entries(folder.path()) == 2);
}

TEST_CASE("A folder is refused as a file, and a file as a folder", "[io][file]") {
  const TemporaryFolder folder;
  WriteFileAtomically(folder / "file", std::string_view("x"));
  const auto write = [&](const fs::path& path) {
    return ErrorOf([&] { WriteFileAtomically(path, std::string_view("x")); });
  };
  CHECK_THAT(write(folder.path()), EndsWith("is a folder where a file is needed"));
  CHECK_THAT(write(folder / "file/below"), ContainsSubstring(std::strerror(ENOTDIR)));
  CHECK_THAT(ErrorOf([&] { ReadFile(folder.path()); }),
             EndsWith("is a folder where a file is needed"));
  CHECK_THAT(ErrorOf([&] { ReadFile(folder / "file/below"); }), EndsWith(std::strerror(ENOTDIR)));
  CHECK_THAT(write(folder / std::string(300, 'n')), ContainsSubstring(std::strerror(ENAMETOOLONG)));
  CHECK_FALSE(Exists(folder / "absent/below"));
  CHECK(Exists(folder / "file"));
}

TEST_CASE("EMFILE is reported as such, not as a missing file", "[io][file]") {
  const TemporaryFolder folder;
  WriteFileAtomically(folder / "file", std::string_view("x"));
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const int lowest = ::dup(STDIN_FILENO);
  ::close(lowest);
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(lowest);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  const std::string read = ErrorOf([&] { ReadFile(folder / "file"); });
  const std::string map = ErrorOf([&] { FileContent content(folder / "file"); });
  const std::string write =
      ErrorOf([&] { WriteFileAtomically(folder / "file", std::string_view("y")); });
  ::setrlimit(RLIMIT_NOFILE, &before);
  CHECK_THAT(read, EndsWith(std::strerror(EMFILE)));
  CHECK_THAT(map, EndsWith(std::strerror(EMFILE)));
  CHECK_THAT(write, ContainsSubstring(std::strerror(EMFILE)));
  CHECK(ReadFile(folder / "file") == "x");
}

TEST_CASE("What an exception leaves half-written is removed", "[io][file]") {
  const TemporaryFolder folder;
  WriteFileAtomically(folder / "file", std::string_view("old"));
  const auto write = [&] {
    WriteFileAtomically(folder / "file", [](const ByteSink& sink) {
      sink(std::as_bytes(std::span("new", 3)));
      throw Error("writer", "gives up");
    });
  };
  CHECK(ErrorOf(write) == "writer: gives up");
  CHECK(ReadFile(folder / "file") == "old");
  CHECK(Entries(folder.path()) == 1);
}

// The digits of a temporary file's name are random: foreseen_digits makes them known.
TEST_CASE("A writer opens nothing that somebody put at its temporary file's name", "[io][file]") {
  const TemporaryFolder folder;
  WriteFileAtomically(folder / "victim", std::string_view("precious"));
  const std::string link = "file.partial-0000000000000000", other = "file.partial-0101010101010101";
  fs::create_symlink("victim", folder / link);
  fs::create_hard_link(folder / "victim", folder / other);
  foreseen_digits = {0, 1};
  WriteFileAtomically(folder / "file", std::string_view("x"));
  CHECK(foreseen_digits.empty());  // both names were tried
  CHECK(ReadFile(folder / "victim") == "precious");
  CHECK(S_ISLNK(ModeOf(folder / link)));
  CHECK(ReadFile(folder / other) == "precious");
  CHECK(S_ISREG(ModeOf(folder / "file")));
  CHECK(ReadFile(folder / "file") == "x");
  CHECK(Entries(folder.path()) == 4);
}

TEST_CASE("A lock follows no link at its file's name", "[io][file]") {
  const TemporaryFolder folder;
  WriteFileAtomically(folder / "victim", std::string_view("precious"));
  fs::create_symlink("victim", folder / ".lock");
  CHECK_THAT(ErrorOf([&] { const FolderLock lock(folder.path()); }),
             EndsWith("cannot be written to: " + std::string(std::strerror(ELOOP))));
  CHECK(ReadFile(folder / "victim") == "precious");
}

TEST_CASE("A writer follows no link that somebody put at its temporary file's old name",
          "[io][file]") {
  const TemporaryFolder folder;
  WriteFileAtomically(folder / "victim", std::string_view("precious"));
  const std::string foreseeable = "file.partial-" + std::to_string(::getpid());
  fs::create_symlink("victim", folder / foreseeable);
  WriteFileAtomically(folder / "file", std::string_view("x"));
  CHECK(ReadFile(folder / "victim") == "precious");
  CHECK(S_ISREG(ModeOf(folder / "file")));
}

TEST_CASE("RemovePartialFiles removes the temporary files of the named files only", "[io][file]") {
  const TemporaryFolder folder;
  for (const char* stale : {"checkpoint.partial-0123456789abcdef", "checkpoint.partial-4711"}) {
    WriteFileAtomically(folder / stale, std::string_view("x"));
  }
  const std::array<const char*, 5> kept = {"checkpoint", "checkpoint.partial-notes", "partial-4711",
                                           "other.partial-0123456789abcdef",
                                           "checkpoint.partial-0123456789abcdef0"};
  for (const char* file : kept) WriteFileAtomically(folder / file, std::string_view("x"));
  constexpr std::string_view kNames[] = {"checkpoint"};
  RemovePartialFiles(folder.path(), kNames);
  CHECK(Entries(folder.path()) == kept.size());
  for (const char* file : kept) CHECK(Exists(folder / file));
  RemovePartialFiles(folder / "absent", kNames);
}

TEST_CASE("A file larger than memory is refused before it is read", "[io][file]") {
  const TemporaryFolder folder;
  const fs::path path = folder / "sparse";
  WriteFileAtomically(path, std::string_view("{"));
  fs::resize_file(path, std::uintmax_t{1} << 40);
  CHECK_THAT(ErrorOf([&] { ReadFile(path); }), ContainsSubstring("sparse: needs 1024.0 GiB"));
  const FileContent content(path);  // takes no memory
  CHECK(content.bytes().size() == std::size_t{1} << 40);
  CHECK(content.bytes()[0] == std::byte{'{'});
  CHECK(content.bytes()[(std::size_t{1} << 40) - 1] == std::byte{0});
}

TEST_CASE("A device without an end is read to a limit", "[io][file]") {
  CHECK_THAT(ErrorOf([] { ReadFile("/dev/zero"); }),
             ContainsSubstring("/dev/zero: is not a regular file and gives more than 256 MiB"));
}

TEST_CASE("A mapped file keeps its bytes after Forget and after the file is replaced",
          "[io][file]") {
  const TemporaryFolder folder;
  std::string text(std::size_t{1} << 20, 'a');
  text[700000] = 'b';
  WriteFileAtomically(folder / "file", text);
  const FileContent content(folder / "file");
  REQUIRE(content.bytes().size() == text.size());
  content.Forget(content.bytes().subspan(5, 900000));
  CHECK(std::memcmp(content.bytes().data(), text.data(), text.size()) == 0);
  WriteFileAtomically(folder / "file", std::string_view("replaced"));  // by rename
  CHECK(std::memcmp(content.bytes().data(), text.data(), text.size()) == 0);
  WriteFileAtomically(folder / "empty", std::string_view());
  CHECK(FileContent(folder / "empty").bytes().empty());
}

}  // namespace
}  // namespace fp4lab
