// Large vectors in huge pages: their first use then costs the system one fault for 2 MiB.
#pragma once

#include <cstddef>
#include <vector>

namespace fp4lab {

inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Asks the system for huge pages where whole ones fit: the rest of a last one would be resident
// too. A refusal changes nothing.
void AskForHugePages(void* memory, std::size_t bytes);

// As vector->reserve(size), of memory that is asked about before anything is written to it.
template <class T>
void ReserveHugePages(std::vector<T>* vector, std::size_t size) {
  if (vector->capacity() >= size) return;
  vector->reserve(size);
  AskForHugePages(vector->data(), size * sizeof(T));
}

}  // namespace fp4lab
