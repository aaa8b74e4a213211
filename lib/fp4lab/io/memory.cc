#include "fp4lab/io/memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "fp4lab/base/error.h"

namespace fp4lab {
namespace {

std::uintmax_t Available() {
  const long pages = ::sysconf(_SC_PHYS_PAGES), page = ::sysconf(_SC_PAGE_SIZE);
  std::uintmax_t bytes = UINTMAX_MAX;
  if (pages > 0 && page > 0) {
    bytes = static_cast<std::uintmax_t>(pages) * static_cast<std::uintmax_t>(page);
  }
  rlimit limit;  // `ulimit -v`
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    bytes = std::min<std::uintmax_t>(bytes, limit.rlim_cur);
  }
  return bytes;
}

std::string Gibibytes(std::uintmax_t bytes) {
  char text[48];
  std::snprintf(text, sizeof text, "%.1f GiB", static_cast<double>(bytes) / 0x1p30);
  return text;
}

}  // namespace

void RequireMemory(std::uintmax_t bytes, std::string_view where) {
  const std::uintmax_t available = Available();
  if (bytes <= available) return;
  throw Error(where, "needs " + Gibibytes(bytes) + " of memory, but only " + Gibibytes(available) +
                         " are available: split the file into smaller ones");
}

}  // namespace fp4lab
