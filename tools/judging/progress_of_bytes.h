// The line of progress of commands that read files of known size.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>

#include "tools/options/status_line.h"

namespace fp4lab::tools {

class ProgressOfBytes {
 public:
  void Show(std::size_t done, std::size_t all) {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start_;
    const double rate = static_cast<double>(done) / std::max(passed.count(), 1e-3);
    const double left = rate > 0 ? static_cast<double>(all - std::min(all, done)) / rate : 0;
    status_.Show(std::to_string(done >> 20) + " of " + std::to_string(all >> 20) + " MiB | " +
                 std::to_string(static_cast<long>(rate / (1 << 20))) + " MiB/s | " +
                 Duration(left) + " left");
  }

 private:
  StatusLine status_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace fp4lab::tools
