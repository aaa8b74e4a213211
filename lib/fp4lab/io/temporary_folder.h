// A new folder below the system's one for temporary files, removed with everything in it.
#pragma once

#include <filesystem>

namespace fp4lab {

class TemporaryFolder {
 public:
  TemporaryFolder();  // Error where none can be made
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::filesystem::path& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace fp4lab
