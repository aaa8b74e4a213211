// Scratch memory that a thread keeps from call to call, so that small products do not allocate.
#pragma once

#include <cstddef>
#include <new>

namespace fp4lab {

class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { Free(); }

  // Memory for at least `count` elements, aligned to 128 bytes. A call invalidates the memory that
  // earlier calls returned.
  template <class T>
  T* Get(std::size_t count) {
    if (count * sizeof(T) > size_) {
      Free();
      data_ = ::operator new(count * sizeof(T), kAlignment);
      size_ = count * sizeof(T);
    }
    return static_cast<T*>(data_);
  }

 private:
  static constexpr std::align_val_t kAlignment{128};

  void Free() {
    ::operator delete(data_, kAlignment);
    data_ = nullptr;
    size_ = 0;
  }

  void* data_ = nullptr;
  std::size_t size_ = 0;
};

// A thread's memory for the packed panels of b, and for a tile of c. All GEMMs share the two,
// because a thread runs only one product at a time.
inline thread_local Scratch packed_scratch;
inline thread_local Scratch tile_scratch;

}  // namespace fp4lab
