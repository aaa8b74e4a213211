#include "fp4lab/base/memory/aligned.h"

#include <algorithm>
#include <cstdlib>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/memory/huge_pages.h"

namespace fp4lab {

void* AllocateLines(std::size_t bytes) {
  if (bytes > static_cast<std::size_t>(-1) - kCacheLine) throw std::bad_alloc();
  const std::size_t lines = std::max<std::size_t>(DivideUp(bytes, kCacheLine), 1);
  const bool huge = bytes >= kHugePage;
  void* memory = nullptr;
  if (posix_memalign(&memory, huge ? kHugePage : kCacheLine, lines * kCacheLine) != 0) {
    throw std::bad_alloc();
  }
  AskForHugePages(memory, bytes);
  return memory;
}

void FreeLines(void* memory) { std::free(memory); }

}  // namespace fp4lab
