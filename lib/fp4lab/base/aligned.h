// Memory for kernels: vectors that start on a cache line, large ones on a huge page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

namespace fp4lab {

inline constexpr std::size_t kCacheLine = 64;

// Memory that starts on a cache line. From 2 MiB on, the system is asked for huge pages: a pass
// over a tensor then waits less for page tables, and prefetching does not end every 4 KiB.
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

// Room for `size` elements, whose old values do not matter; never shrinks.
template <class T>
void Reserve(std::vector<T, CacheLineAllocator<T>>* buffer, std::size_t size) {
  if (buffer->size() >= size) return;
  std::vector<T, CacheLineAllocator<T>>().swap(*buffer);  // the old values go first
  buffer->resize(size);
}

}  // namespace fp4lab
