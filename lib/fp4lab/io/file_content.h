// The bytes of a file, mapped into memory rather than copied.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

namespace fp4lab {

// A regular file is mapped: reading a tensor touches only the pages that it lies on, and several
// readers of one file share them. Anything else (a pipe, a device) is read into memory up to
// kMostStreamedBytes. Errors name the path and the system's reason.
//
// The mapping shows the file that was opened: a file that is replaced by rename, as
// WriteFileAtomically does, stays as it was. A file that is written in place while it is mapped
// changes under the reader, and if the file becomes shorter, the system ends the process with
// SIGBUS; the program fp4lab reports the SIGBUS in one line that names the file
// (tools/file_faults.h). Use ReadFile for texts that users edit.
class FileContent {
 public:
  explicit FileContent(const std::filesystem::path& path);
  FileContent(const FileContent&) = delete;
  FileContent& operator=(const FileContent&) = delete;
  ~FileContent();

  // The content; valid as long as this object.
  std::span<const std::byte> bytes() const { return bytes_; }
  // Maps the pages of `part` in one call, which is faster than a fault for each. A hint: the part
  // can be read without it.
  void Populate(std::span<const std::byte> part) const;
  // A hint that `part` will not be read again soon: the memory of a mapped part is released.
  void Forget(std::span<const std::byte> part) const;

 private:
  std::vector<std::byte> own_;  // the content of a file that cannot be mapped
  std::span<const std::byte> bytes_;
};

}  // namespace fp4lab
