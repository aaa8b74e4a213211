// The program fp4lab as a child process that a test may send signals to.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/io/file.h"

namespace fp4lab {

class Child {
 public:
  // Starts the program with `arguments`; stdout and stderr go to the file `output`.
  Child(const std::vector<std::string>& arguments, std::filesystem::path output)
      : output_(std::move(output)) {
    const char* program = std::getenv("FP4LAB_PROGRAM");
    Expects(program != nullptr, "FP4LAB_PROGRAM names the program (ctest sets it)");
    std::vector<std::string> all = {program};
    all.insert(all.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& a : all) argv.push_back(a.data());
    argv.push_back(nullptr);
    const int file = ::open(output_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    Expects(file >= 0, "the output file can be written");
    sigset_t all_signals, before;  // a signal that comes before exec is not for Catch's handlers
    ::sigfillset(&all_signals);
    ::sigprocmask(SIG_BLOCK, &all_signals, &before);
    pid_ = ::fork();
    Expects(pid_ >= 0, "fork");
    if (pid_ == 0) {
      for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
        struct sigaction action;
        ::sigaction(number, nullptr, &action);
        if (action.sa_handler != SIG_IGN) ::signal(number, SIG_DFL);
      }
      ::sigprocmask(SIG_SETMASK, &before, nullptr);
      ::dup2(file, STDOUT_FILENO);
      ::dup2(file, STDERR_FILENO);
      ::execv(program, argv.data());
      ::_exit(127);
    }
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    ::close(file);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (!IsRunning()) return;
    ::kill(pid_, SIGKILL);
    Wait();
  }

  bool IsRunning() {
    if (!ended_) ended_ = ::waitpid(pid_, &status_, WNOHANG) == pid_;
    return !ended_;
  }
  void Signal(int signal) {
    if (IsRunning()) ::kill(pid_, signal);
  }
  // The exit code, or minus the number of the signal that ended the process.
  int Wait() {
    if (!ended_) ended_ = ::waitpid(pid_, &status_, 0) == pid_;
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : -WTERMSIG(status_);
  }
  std::string Output() const { return ReadFile(output_); }

 private:
  std::filesystem::path output_;
  pid_t pid_ = -1;
  int status_ = 0;
  bool ended_ = false;
};

}  // namespace fp4lab
