#include "fp4lab/io/shared_lock.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <ctime>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/base/hash.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/io/host_name.h"
#include "fp4lab/io/random_digits.h"

namespace fp4lab {
namespace {

namespace fs = std::filesystem;

// The claim of a successor: ".lock.after-NAME", NAME the lock whose holder is dead.
constexpr const char* kClaim = ".lock.after-";
// A file that is being made: ".lock.new-NAME-MACHINE-PROCESS-BORN". Its maker may be killed before
// it has written a byte, so the file's name tells whose it is. MACHINE is a hash.
constexpr const char* kNew = ".lock.new-";

// The lines of a lock's file.
struct Content {
  std::string name;  // 16 unpredictable hexadecimal digits
  std::string host;
  std::string machine;  // boot and process namespace, in which process numbers mean something
  long process = 0;
  std::string born;   // the start of the process in ticks since the boot, as /proc has it
  std::string start;  // UTC, of the lock
};

std::string FirstWord(const char* path) {
  std::ifstream in(path);
  std::string word;
  in >> word;
  return word;
}

// The start of a process in ticks since the boot; empty: there is no such process, or it has ended
// and only waits for its parent.
std::string BirthOf(const std::string& process) {
  std::ifstream in("/proc/" + process + "/stat");
  std::string line;
  if (!std::getline(in, line)) return "";
  const std::size_t name_end = line.rfind(')');  // the name may hold anything
  if (name_end == line.npos) return "";
  std::istringstream fields(line.substr(name_end + 1));
  constexpr int kStateField = 3, kStartField = 22;
  std::string field;
  for (int i = kStateField; i <= kStartField && fields >> field; ++i) {
    if (i == kStateField && (field == "Z" || field == "X")) return "";
  }
  return field;
}

std::string Machine() {
  std::error_code status;
  const std::string space = fs::read_symlink("/proc/self/ns/pid", status).string();
  return FirstWord("/proc/sys/kernel/random/boot_id") + "/" + space;
}

std::string TimeOfDay() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text.data();
}

// A machine as file names have it.
std::string HashOf(const std::string& machine) { return Sha256(machine).substr(0, 16); }

std::string TextOf(const Content& content) {
  return "fp4lab lock\n" + content.name + "\n" + content.host + "\n" + content.machine + "\n" +
         std::to_string(content.process) + "\n" + content.born + "\n" + content.start + "\n";
}

// A lock's file, opened anew, so that NFS asks its server for it.
struct SeenFile {
  Content content;  // of an empty name where the text is not a lock's
  struct stat status {};
};

std::optional<SeenFile> Look(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (descriptor < 0 && (errno == ENOENT || errno == ESTALE)) return std::nullopt;
  if (descriptor < 0)
    throw Error(path.string(), std::string("cannot be read: ") + std::strerror(errno));
  SeenFile seen;
  std::array<char, 2048> text{};
  const ssize_t size = ::read(descriptor, text.data(), text.size() - 1);
  ::fstat(descriptor, &seen.status);
  ::close(descriptor);
  std::istringstream lines(std::string(text.data(), size > 0 ? static_cast<std::size_t>(size) : 0));
  Content& c = seen.content;
  std::string head, process;
  std::getline(lines, head);
  std::getline(lines, c.name);
  std::getline(lines, c.host);
  std::getline(lines, c.machine);
  std::getline(lines, process);
  std::getline(lines, c.born);
  std::getline(lines, c.start);
  const bool whole = !lines.eof() && head == "fp4lab lock" && c.name.size() == 16 &&
                     c.name.find_first_not_of("0123456789abcdef") == c.name.npos;
  std::from_chars(process.data(), process.data() + process.size(), c.process);
  if (!whole) c = {};
  return seen;
}

double Seconds(const struct timespec& time) {
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

LockHolder HolderOf(const SeenFile& seen, double now) {
  const Content& c = seen.content;
  return {c.host, c.process, c.start, now - Seconds(seen.status.st_mtim)};
}

// `now`: a time of the file's server.
bool IsDead(const SeenFile& seen, double now) {
  const Content& c = seen.content;
  if (!c.name.empty() && c.machine == Machine())
    return BirthOf(std::to_string(c.process)) != c.born;
  return now - Seconds(seen.status.st_mtim) > SharedLock::kDeadSeconds;
}

// A lock's file under a name of its own: the identity of this process. Removed by the destructor.
class NewFile {
 public:
  explicit NewFile(const fs::path& folder)
      : content_{RandomDigits(), HostName(), Machine(), ::getpid(), BirthOf("self"), TimeOfDay()} {
    path_ = folder / (kNew + content_.name + "-" + HashOf(content_.machine) + "-" +
                      std::to_string(content_.process) + "-" + content_.born);
    descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (descriptor_ < 0) {
      throw Error(folder.string(), std::string("cannot be written to: ") + std::strerror(errno));
    }
    const std::string text = TextOf(content_);
    const bool written =
        ::write(descriptor_, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
        ::fsync(descriptor_) == 0;
    if (written) return;
    const std::string reason = std::strerror(errno);
    Remove();
    throw Error(folder.string(), "cannot be written to: " + reason);
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile() { Remove(); }

  const std::string& name() const { return content_.name; }
  // The server's time, now.
  double Now() const {
    struct stat status {};
    if (::futimens(descriptor_, nullptr) != 0 || ::fstat(descriptor_, &status) != 0) return 0;
    return Seconds(status.st_mtim);
  }
  // Gives the file the name `target` too; false where that name exists. The reply of a server may
  // be lost, so the number of names decides.
  bool LinkTo(const fs::path& target) const {
    const int result = ::link(path_.c_str(), target.c_str()), problem = errno;
    struct stat mine {
    }, there{};
    if (result == 0) return true;
    if (::fstat(descriptor_, &mine) == 0 && ::lstat(target.c_str(), &there) == 0 &&
        mine.st_ino == there.st_ino && mine.st_dev == there.st_dev) {
      return true;
    }
    if (problem == EEXIST) return false;
    throw Error(target.string(), std::string("cannot be linked: ") + std::strerror(problem) +
                                     "; --out-dir needs a file system with hard links");
  }
  bool RenameTo(const fs::path& target) const {
    return ::rename(path_.c_str(), target.c_str()) == 0;
  }
  int Release() { return std::exchange(descriptor_, -1); }

 private:
  void Remove() {
    ::unlink(path_.c_str());
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = -1;
  }
  Content content_;
  fs::path path_;
  int descriptor_ = -1;
};

// The name by which the claim on a lock is known: its own, or, where the file is no lock's, its
// inode and time.
std::string NameOf(const SeenFile& seen) {
  if (!seen.content.name.empty()) return seen.content.name;
  return "damaged-" + std::to_string(seen.status.st_ino) + "-" +
         std::to_string(seen.status.st_mtim.tv_sec);
}

// Whether the process that was making the new file `path` has ended. Files of other machines, and
// those that an older version named, are judged by their age.
bool IsOfDead(const fs::path& path, double now) {
  std::istringstream words(path.filename().string().substr(std::strlen(kNew)));
  std::string name, machine, process, born;
  std::getline(words, name, '-');
  std::getline(words, machine, '-');
  std::getline(words, process, '-');
  std::getline(words, born);
  if (machine == HashOf(Machine())) return BirthOf(process) != born;
  const std::optional<SeenFile> seen = Look(path);
  return seen && IsDead(*seen, now);
}

// Removes the remains of killed processes: claims on locks other than `own`, and new files of the
// dead.
void Sweep(const fs::path& folder, const std::string& own, double now) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string file = entry.path().filename().string();
    bool removes = file.starts_with(kClaim) && file != kClaim + own;
    if (file.starts_with(kNew)) removes = IsOfDead(entry.path(), now);
    if (removes) fs::remove(entry.path(), ignored);
  }
}

}  // namespace

std::string LockHolder::Text() const {
  if (process == 0) return "a process that its file does not name";
  return "process " + std::to_string(process) + " on " + host + ", since " + start;
}

std::optional<LockHolder> SharedLock::Take(const fs::path& folder,
                                           std::optional<LockHolder>* from) {
  const IeeeArithmetic ieee;
  std::error_code status;
  fs::create_directories(folder, status);
  if (status) throw Error(folder.string(), "cannot be written to: " + status.message());
  const fs::path lock = folder / kFile;
  NewFile mine(folder);
  std::optional<LockHolder> dead;
  for (bool held = false; !held;) {
    if (mine.LinkTo(lock)) break;
    const std::optional<SeenFile> first = Look(lock);
    if (!first) continue;  // released meanwhile
    // The chain of claims: each on a lock, or claim, whose holder is dead.
    fs::path claim;
    for (std::optional<SeenFile> seen = first; seen;) {
      const double now = mine.Now();
      if (!IsDead(*seen, now)) return HolderOf(*seen, now);
      dead = HolderOf(*first, now);
      claim = folder / (kClaim + NameOf(*seen));
      held = mine.LinkTo(claim);
      if (held) break;
      seen = Look(claim);
    }
    // Who claimed a lock that was another one meanwhile starts again: its claim may be one that the
    // present holder had used and removed.
    const std::optional<SeenFile> again = Look(lock);
    if (held && (!again || NameOf(*again) != NameOf(*first))) {
      ::unlink(claim.c_str());
      held = false;
    }
    if (held && !mine.RenameTo(lock)) {
      const std::string reason = std::strerror(errno);
      ::unlink(claim.c_str());
      throw Error(folder.string(), "cannot be written to: " + reason);
    }
  }
  if (from != nullptr) *from = dead;
  Sweep(folder, mine.name(), mine.Now());
  folder_ = folder;
  name_ = mine.name();
  descriptor_ = mine.Release();
  beats_ = std::thread([this] { Beat(); });
  return std::nullopt;
}

void SharedLock::Beat() {
  std::unique_lock lock(mutex_);
  while (!ends_.wait_for(lock, std::chrono::seconds(kBeatSeconds), [this] { return ended_; })) {
    ::futimens(descriptor_, nullptr);  // of a lock that was taken over, it touches nobody's file
  }
}

void SharedLock::CheckHeld() const {
  const std::optional<SeenFile> seen = Look(folder_ / kFile);
  if (seen && seen->content.name == name_) return;
  const std::string now =
      seen
          ? "is " +
                LockHolder{seen->content.host, seen->content.process, seen->content.start, 0}.Text()
          : "was removed";
  throw Error((folder_ / kFile).string(),
              now + ", and no longer of this process, which stops; it was paused for more than " +
                  std::to_string(kDeadSeconds) + " s, or the file was changed by hand");
}

SharedLock::~SharedLock() {
  if (name_.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  ends_.notify_all();
  beats_.join();
  try {
    const std::optional<SeenFile> seen = Look(folder_ / kFile);
    if (seen && seen->content.name == name_) ::unlink((folder_ / kFile).c_str());
  } catch (const std::exception&) {  // a folder that has gone holds no lock
  }
  ::close(descriptor_);
}

}  // namespace fp4lab
