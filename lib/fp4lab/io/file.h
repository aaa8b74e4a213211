// Whole files: reading with clear errors, and atomic writing, so that a reader never sees a partial
// file.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace fp4lab {

// Throws Error(where, ...) if `name`, read from a file, has characters that Printable would escape
// (base/text/printable.h).
void RefuseControlCharacters(std::string_view name, std::string_view where);

// Whether `path` exists. Throws Error with the system's reason if the answer cannot be determined:
// a folder that may not be searched, a link that points to itself.
bool Exists(const std::filesystem::path& path);

using ByteSink = std::function<void(std::span<const std::byte>)>;

// The most bytes that are read from a file that states no size (a pipe, a device).
inline constexpr std::size_t kMostStreamedBytes = std::size_t{1} << 28;

// A file open for reading. Errors name the path and the system's reason.
class OpenFile {
 public:
  explicit OpenFile(const std::filesystem::path& path);  // throws Error for a folder
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile();

  int descriptor() const { return descriptor_; }
  // The size of a regular file; 0 if only reading tells the size (a pipe, a device, a file of
  // /proc).
  std::size_t MappableBytes() const { return size_; }
  // Reads to the end and passes the bytes to `sink` in pieces. Throws Error for more than
  // kMostStreamedBytes from a file whose MappableBytes() is 0.
  void ReadAll(const ByteSink& sink) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  std::size_t size_ = 0;
};

// The whole content of a file, for texts; throws Error if memory cannot hold it. For tensors use
// FileContent, which maps the file (io/file_content.h).
std::string ReadFile(const std::filesystem::path& path);

// Writes to a temporary file beside `path`, flushes it to disk and renames it over `path`: after a
// crash, a full disk or Ctrl-C the old content is intact. Creates missing parent folders.
//   an existing file        keeps its permissions; a new file has 0666 less the umask
//   a link                  stays; the file that it points to is replaced or created
//   a device, pipe, socket  is opened and written to, and never replaced; bytes written before an
//                           error stay written
void WriteFileAtomically(const std::filesystem::path& path, std::span<const std::byte> bytes);
void WriteFileAtomically(const std::filesystem::path& path, std::string_view text);

// WriteFileAtomically for bytes that are produced in pieces: `write` passes them to its sink. If
// `write` throws, the old content is intact as well.
void WriteFileAtomically(const std::filesystem::path& path,
                         const std::function<void(const ByteSink& sink)>& write);

// Removes the temporary files that killed writers of folder/name left behind. The caller must hold
// the folder's lock (io/folder_lock.h): otherwise a writer at work would lose its file.
void RemovePartialFiles(const std::filesystem::path& folder,
                        std::span<const std::string_view> names);

}  // namespace fp4lab
