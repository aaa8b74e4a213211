#include "fp4lab/base/memory/huge_pages.h"

#include <sys/mman.h>

#include <cstdint>

#include "fp4lab/base/divide_up.h"

namespace fp4lab {

void AskForHugePages(void* memory, std::size_t bytes) {
#ifdef MADV_HUGEPAGE
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  const std::uintptr_t begin = RoundUp(address, kHugePage);
  const std::uintptr_t end = (address + bytes) / kHugePage * kHugePage;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#else
  static_cast<void>(memory);
  static_cast<void>(bytes);
#endif
}

}  // namespace fp4lab
