// The bytes of a file without a copy of them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

namespace fp4lab {

// A regular file is mapped: reading a tensor touches only the pages that it lies on, and several
// readers of one file share them. Anything else (a pipe, a device) is read into memory up to
// kMostStreamedBytes. Error names the path and the system's reason.
//
// The mapping shows the file that was opened: a file that is replaced by rename, as
// WriteFileAtomically does, stays as it was. A file that is written in place while it is mapped
// changes under the reader, and where it becomes shorter the system ends the process with SIGBUS;
// the program fp4lab turns that into one line that names the file (tools/file_faults.h). For texts
// that people edit use ReadFile.
class FileContent {
 public:
  explicit FileContent(const std::filesystem::path& path);
  FileContent(const FileContent&) = delete;
  FileContent& operator=(const FileContent&) = delete;
  ~FileContent();

  // They live as long as this object.
  std::span<const std::byte> bytes() const { return bytes_; }
  // Says that `part` will not be read again soon: a mapped part gives its memory back.
  void Forget(std::span<const std::byte> part) const;

 private:
  std::vector<std::byte> own_;  // of what cannot be mapped
  std::span<const std::byte> bytes_;
};

}  // namespace fp4lab
