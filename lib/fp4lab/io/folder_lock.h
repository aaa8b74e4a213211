// A lock that lets one process at a time use an output folder.
#pragma once

#include <filesystem>

namespace fp4lab {

// Holds the lock folder/.lock until destruction. The kernel releases the lock when the process
// ends, so a killed run leaves nothing to clean up. The constructor creates a missing folder; it
// throws Error if another process holds the lock, or if the folder cannot be created or written to.
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
