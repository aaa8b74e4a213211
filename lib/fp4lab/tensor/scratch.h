// Memory that a thread keeps from call to call, so that small products allocate nothing.
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

  // At least `count` elements, aligned for any vector; what an earlier call gave is gone.
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

// A thread's memory for b in panels, and for a tile of c. All products share them: none runs while
// another one of the same thread has something there.
inline thread_local Scratch packed_scratch;
inline thread_local Scratch tile_scratch;

}  // namespace fp4lab
