#include "tools/file_faults.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace fp4lab::tools {
namespace {

// The functions below run inside a signal handler: they make only async-signal-safe calls and
// allocate no memory.

void Say(const char* text, std::size_t size) {
  while (size > 0) {
    const ssize_t written = ::write(STDERR_FILENO, text, size);
    if (written <= 0) return;
    text += written;
    size -= static_cast<std::size_t>(written);
  }
}

// Reads /proc/self/maps line by line; a line is "55d0-55e0 r--p 00000000 08:01 42   /path".
class Maps {
 public:
  Maps() : file_(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC)) {}

  // The next line, without its '\n'; nullptr after the last line.
  const char* Next() {
    std::size_t size = 0;
    for (int c = Get(); c >= 0; c = Get()) {
      if (c == '\n') {
        line_[size] = '\0';
        return line_;
      }
      if (size + 1 < sizeof line_) line_[size++] = static_cast<char>(c);
    }
    return nullptr;
  }

 private:
  int Get() {
    if (at_ == end_) {
      const ssize_t got = file_ < 0 ? 0 : ::read(file_, buffer_, sizeof buffer_);
      if (got <= 0) return -1;
      at_ = 0;
      end_ = static_cast<std::size_t>(got);
    }
    return static_cast<unsigned char>(buffer_[at_++]);
  }

  int file_;
  char buffer_[4096], line_[4096];
  std::size_t at_ = 0, end_ = 0;
};

std::uintptr_t Hexadecimal(const char** text) {
  std::uintptr_t value = 0;
  for (;; ++*text) {
    const char c = **text;
    const bool digit = c >= '0' && c <= '9', letter = c >= 'a' && c <= 'f';
    if (!digit && !letter) return value;
    value = value << 4 | static_cast<std::uintptr_t>(digit ? c - '0' : c - 'a' + 10);
  }
}

// The path of the mapping that holds `address`; nullptr if no mapping of a file does.
const char* PathAt(std::uintptr_t address, Maps* maps) {
  while (const char* line = maps->Next()) {
    const char* at = line;
    const std::uintptr_t begin = Hexadecimal(&at);
    if (*at != '-') continue;
    ++at;
    const std::uintptr_t end = Hexadecimal(&at);
    if (address >= begin && address < end) return std::strchr(line, '/');
  }
  return nullptr;
}

void OnFault(int /*signal*/, siginfo_t* info, void* /*context*/) {
  static std::atomic_flag said = ATOMIC_FLAG_INIT;  // only the first thread reports
  while (said.test_and_set()) ::pause();
  Maps maps;
  const char* path = PathAt(reinterpret_cast<std::uintptr_t>(info->si_addr), &maps);
  constexpr char kError[] = "error: ", kNone[] = "a mapped file";
  constexpr char kProblem[] =
      ": became shorter while it was read, or its disk failed; start again when no program writes "
      "the file\n";
  Say(kError, sizeof kError - 1);
  if (path == nullptr) path = kNone;
  for (const char* c = path; *c != '\0'; ++c) {  // of control characters Linux escapes only '\n'
    const bool control = static_cast<unsigned char>(*c) < 0x20 || *c == 0x7F;
    Say(control ? "?" : c, 1);
  }
  Say(kProblem, sizeof kProblem - 1);
  ::_exit(1);
}

}  // namespace

void NameFilesThatFault() {
  struct sigaction action {};
  action.sa_sigaction = OnFault;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace fp4lab::tools
