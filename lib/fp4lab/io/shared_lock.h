// A lock between processes of several machines that share a folder: NFS, Lustre or a local disk.
#pragma once

#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace fp4lab {

// The process that a lock's file names.
struct LockHolder {
  std::string host = {};
  long process = 0;        // its number on `host`; 0: the file names none
  std::string start = {};  // UTC, when it took the lock: "2026-01-31T12:00:00Z"
  double age = 0;          // seconds since its last sign of life, by the clock of the file's server

  std::string Text() const;  // "process 4711 on node7, since 2026-01-31T12:00:00Z"
};

// Holds folder/.lock from Take to destruction. The file is made whole under a name of its own and
// then linked to its place, so it is never half-written, and no byte-range or flock lock of the
// file system is needed. The holder sets the file's time every kBeatSeconds.
//   a holder on this machine  is dead once its process has ended: its number, start and boot are
//                             in the file
//   a holder elsewhere        (another host, boot or container) is dead when the file's time is
//                             kDeadSeconds old; both times are those of the file's server
// The lock of a dead holder is taken over. One of several who try gets it.
class SharedLock {
 public:
  static constexpr int kBeatSeconds = 10, kDeadSeconds = 120;
  // The lock's file. The names of the other files that locking makes beside it start with it, too.
  static constexpr const char* kFile = ".lock";

  SharedLock() = default;
  SharedLock(const SharedLock&) = delete;
  SharedLock& operator=(const SharedLock&) = delete;
  ~SharedLock();

  // Takes the lock, or returns who holds it. Creates a missing folder. `from`, if not nullptr,
  // receives the dead holder whose lock was taken over. Must be called once. Throws Error if the
  // folder cannot be created or written to.
  std::optional<LockHolder> Take(const std::filesystem::path& folder,
                                 std::optional<LockHolder>* from = nullptr);

  // Throws Error if another process has taken the lock over, as after a pause of this process for
  // longer than kDeadSeconds, or if the file was removed. Called before a file is replaced.
  void CheckHeld() const;

 private:
  void Beat();

  std::filesystem::path folder_;
  std::string name_;     // of this lock, unlike that of any other; empty: not held
  int descriptor_ = -1;  // of the file, for its time
  std::thread beats_;
  std::mutex mutex_;
  std::condition_variable ends_;
  bool ended_ = false;
};

}  // namespace fp4lab
