#include "fp4lab/base/aligned.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

namespace fp4lab {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

}  // namespace

void* AllocateLines(std::size_t bytes) {
  if (bytes > static_cast<std::size_t>(-1) - kCacheLine) throw std::bad_alloc();
  const std::size_t lines = std::max<std::size_t>((bytes + kCacheLine - 1) / kCacheLine, 1);
  const bool huge = bytes >= kHugePage;
  void* memory = nullptr;
  if (posix_memalign(&memory, huge ? kHugePage : kCacheLine, lines * kCacheLine) != 0) {
    throw std::bad_alloc();
  }
#ifdef MADV_HUGEPAGE
  // Whole pages only: the rest of a last one would be resident too. A refusal changes nothing.
  if (huge) madvise(memory, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
#endif
  return memory;
}

void FreeLines(void* memory) { std::free(memory); }

}  // namespace fp4lab
