// A new folder inside the system's folder for temporary files; the destructor removes it with its
// content.
#pragma once

#include <filesystem>

namespace fp4lab {

class TemporaryFolder {
 public:
  TemporaryFolder();  // throws Error if the folder cannot be created
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::filesystem::path& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace fp4lab
