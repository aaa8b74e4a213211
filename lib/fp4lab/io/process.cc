#include "fp4lab/io/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string_view>
#include <thread>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"

namespace fp4lab {
namespace {

using Clock = std::chrono::steady_clock;

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { Close(); }

  int value() const { return value_; }
  bool IsOpen() const { return value_ >= 0; }
  void Reset(int value) {
    Close();
    value_ = value;
  }
  void Close() {
    if (value_ >= 0) ::close(value_);
    value_ = -1;
  }

 private:
  int value_ = -1;
};

struct Pipe {
  Descriptor read, write;
  Pipe() {
    std::array<int, 2> ends;
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw Error("pipe", std::strerror(errno));
    read.Reset(ends[0]);
    write.Reset(ends[1]);
  }
};

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

// The child's standard input is an unnamed file, so that writing never waits for a slow reader.
File InputFile(const std::string& input) {
  File file(input.empty() ? std::fopen("/dev/null", "re") : std::tmpfile(), &std::fclose);
  if (!file || std::fwrite(input.data(), 1, input.size(), file.get()) != input.size() ||
      std::fflush(file.get()) != 0 || ::lseek(::fileno(file.get()), 0, SEEK_SET) == -1) {
    throw Error("temporary file", std::strerror(errno));
  }
  return file;
}

std::vector<std::string> Environment(const ProcessOptions& options) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    bool replaced = false;
    for (const auto& [key, value] : options.environment) replaced |= key == name;
    if (!replaced) all.emplace_back(text);
  }
  for (const auto& [key, value] : options.environment) all.push_back(key + "=" + value);
  return all;
}

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

pid_t Spawn(const std::vector<std::string>& arguments, const ProcessOptions& options, int in,
            int out, int error) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in, 0);
  posix_spawn_file_actions_adddup2(&actions, out, 1);
  posix_spawn_file_actions_adddup2(&actions, error, 2);
  if (!options.folder.empty()) {
    posix_spawn_file_actions_addchdir_np(&actions, options.folder.c_str());
  }
  pid_t process = -1;
  const std::vector<std::string> environment = Environment(options);
  const int status = ::posix_spawnp(&process, arguments[0].c_str(), &actions, nullptr,
                                    Pointers(arguments).data(), Pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  if (status != 0) {
    throw Error(arguments[0], std::string("cannot be started: ") + std::strerror(status));
  }
  return process;
}

// Reads the bytes that are available; closes the descriptor at end of file.
void Drain(Descriptor& descriptor, std::string* text) {
  std::array<char, 1 << 16> buffer;
  const ssize_t count = ::read(descriptor.value(), buffer.data(), buffer.size());
  if (count > 0) text->append(buffer.data(), static_cast<std::size_t>(count));
  if (count == 0 || (count < 0 && errno != EINTR && errno != EAGAIN)) descriptor.Close();
}

// Ends the child on timeout or on a stop request: SIGTERM, 2 s later SIGKILL.
class Watch {
 public:
  Watch(pid_t process, const ProcessOptions& options)
      : process_(process), options_(options), start_(Clock::now()) {}

  // Returns false once the child got SIGKILL: the caller then does not wait for other processes
  // that still hold the child's pipes.
  bool GoOn(ProcessResult* result) {
    const auto now = Clock::now();
    if (!ended_) {
      result->stopped = options_.stop != nullptr && *options_.stop;
      result->timed_out = options_.timeout_seconds > 0 &&
                          now - start_ > std::chrono::duration<double>(options_.timeout_seconds);
      if (!result->stopped && !result->timed_out) return true;
      ended_ = true;
      end_ = now;
      ::kill(process_, SIGTERM);
    }
    if (now - end_ < std::chrono::seconds(2)) return true;
    ::kill(process_, SIGKILL);
    return false;
  }

 private:
  pid_t process_;
  const ProcessOptions& options_;
  Clock::time_point start_, end_;
  bool ended_ = false;
};

int ExitCode(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

ProcessResult RunProcess(const std::vector<std::string>& arguments, const ProcessOptions& options) {
  const IeeeArithmetic ieee;
  Expects(!arguments.empty(), "a program is named");
  ProcessResult result;
  Pipe out, error;
  const File in = InputFile(options.input);
  const pid_t process =
      Spawn(arguments, options, ::fileno(in.get()), out.write.value(), error.write.value());
  out.write.Close();
  error.write.Close();
  Watch watch(process, options);
  int status = 0;
  bool go_on = true, running = true;
  while (running) {
    if (go_on && (out.read.IsOpen() || error.read.IsOpen())) {
      std::array<pollfd, 2> ends{{{out.read.value(), POLLIN, 0}, {error.read.value(), POLLIN, 0}}};
      ::poll(ends.data(), ends.size(), 50);
      if (ends[0].revents != 0) Drain(out.read, &result.output);
      if (ends[1].revents != 0) Drain(error.read, &result.error);
      go_on = watch.GoOn(&result);
      continue;
    }
    const pid_t ended = ::waitpid(process, &status, WNOHANG);
    running = ended == 0 || (ended < 0 && errno == EINTR);
    go_on = go_on && watch.GoOn(&result);
    if (running) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  result.exit_code = ExitCode(status);
  return result;
}

}  // namespace fp4lab
