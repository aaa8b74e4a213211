// Memory for kernels: vectors that start on a cache line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

namespace fp4lab {

inline constexpr std::size_t kCacheLine = 64;

template <class T>
struct CacheLineAllocator {
  using value_type = T;
  CacheLineAllocator() = default;
  template <class U>
  CacheLineAllocator(const CacheLineAllocator<U>&) {}  // NOLINT: as std::allocator
  T* allocate(std::size_t n) {
    return static_cast<T*>(::operator new (n * sizeof(T), std::align_val_t{kCacheLine}));
  }
  void deallocate(T* p, std::size_t) { ::operator delete (p, std::align_val_t{kCacheLine}); }
  friend bool operator==(const CacheLineAllocator&, const CacheLineAllocator&) { return true; }
};

using FloatBuffer = std::vector<float, CacheLineAllocator<float>>;

using ByteBuffer = std::vector<std::uint8_t, CacheLineAllocator<std::uint8_t>>;

// Room for `size` elements, whose old values do not matter; never shrinks.
template <class T>
void Reserve(std::vector<T, CacheLineAllocator<T>>* buffer, std::size_t size) {
  if (buffer->size() >= size) return;
  std::vector<T, CacheLineAllocator<T>>().swap(*buffer);  // the old values go first
  buffer->resize(size);
}

}  // namespace fp4lab
