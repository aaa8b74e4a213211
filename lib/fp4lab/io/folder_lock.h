// One process at a time in an output folder.
#pragma once

#include <filesystem>

namespace fp4lab {

// Holds folder/.lock until it is destroyed. The kernel drops the lock with the process, so a killed
// run leaves nothing to clean up. Throws Error if another process holds it, or if the folder cannot
// be made or written to.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

 private:
  int descriptor_ = -1;
};

}  // namespace fp4lab
