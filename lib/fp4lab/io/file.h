// Whole files: read with a clear error, write so that a reader never sees half of one.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace fp4lab {

// Error(where, ...) for a name, read from a file, that is not as it would be printed
// (base/printable.h).
void RefuseControlCharacters(std::string_view name, std::string_view where);

// Whether something is there. Error with the system's reason where that cannot be found out: a
// folder that may not be searched, a link that points to itself.
bool Exists(const std::filesystem::path& path);

using ByteSink = std::function<void(std::span<const std::byte>)>;

// What is no regular file (a pipe, a device) says no size; reading it ends here.
inline constexpr std::size_t kMostStreamedBytes = std::size_t{1} << 28;

// A file open for reading. Errors name the path and the system's reason.
class OpenFile {
 public:
  explicit OpenFile(const std::filesystem::path& path);  // Error for a folder
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile();

  int descriptor() const { return descriptor_; }
  // The size of a regular file; 0 where only reading tells (a pipe, a device, a file of /proc).
  std::size_t MappableBytes() const { return size_; }
  // In pieces, to the end. Error beyond kMostStreamedBytes where the size was not known.
  void ReadAll(const ByteSink& sink) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  std::size_t size_ = 0;
};

// A text; Error where memory does not hold it. Tensors are better mapped (io/file_content.h).
std::string ReadFile(const std::filesystem::path& path);

// Writes to a temporary file beside `path`, flushes it to disk and renames it over `path`: after a
// crash, a full disk or Ctrl-C the old content stands whole. Creates missing parent folders.
//   a file that was there   keeps its permissions; a new one has 0666 less the umask
//   a link                  stays; the file that it points to is replaced, or made
//   a device, pipe, socket  is opened and written to, and never replaced; what was written before
//                           an error stays written
void WriteFileAtomically(const std::filesystem::path& path, std::span<const std::byte> bytes);
void WriteFileAtomically(const std::filesystem::path& path, std::string_view text);

// The same of bytes that come in pieces: `write` gives them to the sink it is called with. What it
// throws leaves the old content, too.
void WriteFileAtomically(const std::filesystem::path& path,
                         const std::function<void(const ByteSink& sink)>& write);

// Removes the temporary files that killed writers of folder/name left behind. Only for whoever
// holds the folder (io/folder_lock.h): a writer at work would lose its file.
void RemovePartialFiles(const std::filesystem::path& folder,
                        std::span<const std::string_view> names);

}  // namespace fp4lab
