// Memory for kernels: vectors aligned to a cache line, large vectors to a huge page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

namespace fp4lab {

inline constexpr std::size_t kCacheLine = 64;

// Allocates memory aligned to a cache line; throws std::bad_alloc. An allocation of 2 MiB or more
// is aligned to a huge page and asks the system for huge pages: a pass over a tensor then waits
// less for page tables, and prefetching does not stop every 4 KiB.
void* AllocateLines(std::size_t bytes);
void FreeLines(void* memory);

template <class T>
struct CacheLineAllocator {
  using value_type = T;
  CacheLineAllocator() = default;
  template <class U>
  CacheLineAllocator(const CacheLineAllocator<U>&) {}  // NOLINT: as std::allocator
  T* allocate(std::size_t n) {
    if (n > static_cast<std::size_t>(-1) / sizeof(T)) throw std::bad_array_new_length();
    return static_cast<T*>(AllocateLines(n * sizeof(T)));
  }
  void deallocate(T* p, std::size_t) { FreeLines(p); }
  friend bool operator==(const CacheLineAllocator&, const CacheLineAllocator&) { return true; }
};

using FloatBuffer = std::vector<float, CacheLineAllocator<float>>;

using ByteBuffer = std::vector<std::uint8_t, CacheLineAllocator<std::uint8_t>>;

using WordBuffer = std::vector<std::uint32_t, CacheLineAllocator<std::uint32_t>>;

// Grows the buffer to at least `size` elements. Growing discards the old values; the buffer never
// shrinks.
template <class T>
void Reserve(std::vector<T, CacheLineAllocator<T>>* buffer, std::size_t size) {
  if (buffer->size() >= size) return;
  std::vector<T, CacheLineAllocator<T>>().swap(*buffer);  // frees the old memory first
  buffer->resize(size);
}

}  // namespace fp4lab
