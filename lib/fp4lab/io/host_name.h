// The name of this machine, as messages and locks give it.
#pragma once

#include <unistd.h>

#include <array>
#include <string>

namespace fp4lab {

inline std::string HostName() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace fp4lab
