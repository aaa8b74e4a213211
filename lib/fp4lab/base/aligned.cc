#include "fp4lab/base/aligned.h"

#include <sys/mman.h>

#include <cstdlib>

namespace fp4lab {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

constexpr std::size_t RoundedUp(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

void* AllocateLines(std::size_t bytes) {
  if (bytes > static_cast<std::size_t>(-1) - kHugePage) throw std::bad_alloc();
  const bool huge = bytes >= kHugePage;
  const std::size_t unit = huge ? kHugePage : kCacheLine;
  const std::size_t size = RoundedUp(bytes, unit);
  void* memory = std::aligned_alloc(unit, size == 0 ? unit : size);
  if (memory == nullptr) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  if (huge) madvise(memory, size, MADV_HUGEPAGE);  // advice: a refusal changes nothing
#endif
  return memory;
}

void FreeLines(void* memory) { std::free(memory); }

}  // namespace fp4lab
