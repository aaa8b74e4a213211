// Huge pages for large vectors: first use then takes one page fault per 2 MiB.
#pragma once

#include <cstddef>
#include <vector>

namespace fp4lab {

inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Asks the system to back the whole huge pages inside [memory, memory + bytes) with huge pages.
// Partial pages at the ends are left out, because all of such a page would become resident. A
// refusal by the system is ignored.
void AskForHugePages(void* memory, std::size_t bytes);

// vector->reserve(size), then AskForHugePages on new memory before anything is written to it.
template <class T>
void ReserveHugePages(std::vector<T>* vector, std::size_t size) {
  if (vector->capacity() >= size) return;
  vector->reserve(size);
  AskForHugePages(vector->data(), size * sizeof(T));
}

}  // namespace fp4lab
