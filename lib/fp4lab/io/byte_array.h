// The bytes of an array or tensor: owned, or a view of bytes held elsewhere (a mapped file).
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

namespace fp4lab {

// A copy of a ByteArray owns its bytes; ViewOf and moves copy no bytes.
class ByteArray {
 public:
  ByteArray() = default;
  ByteArray(std::vector<std::byte> own) : own_(std::move(own)), view_(own_) {}
  template <std::input_iterator Iterator>
  ByteArray(Iterator begin, Iterator end) : ByteArray(std::vector<std::byte>(begin, end)) {}
  ByteArray(const ByteArray& other) : ByteArray(other.begin(), other.end()) {}
  ByteArray(ByteArray&& other) noexcept
      : own_(std::move(other.own_)), view_(std::exchange(other.view_, {})) {}
  ByteArray& operator=(ByteArray other) noexcept {
    own_ = std::move(other.own_);
    view_ = std::exchange(other.view_, {});
    return *this;
  }
  ~ByteArray() = default;

  // A view of `bytes`, which must outlive the result and every ByteArray moved from it.
  static ByteArray ViewOf(std::span<const std::byte> bytes) {
    ByteArray view;
    view.view_ = bytes;
    return view;
  }

  // Copies the bytes of a view, so that the array owns its bytes.
  void Own() {
    if (own_.empty()) *this = ByteArray(begin(), end());
  }
  // Mutable access to the bytes; a view is copied first.
  std::span<std::byte> Change() {
    Own();
    return {const_cast<std::byte*>(view_.data()), view_.size()};  // in own_
  }
  // Takes ownership of the buffer that this view refers to, so that the two move together.
  void Keep(std::vector<std::byte> viewed) {
    if (own_.empty()) own_ = std::move(viewed);
  }

  const std::byte* data() const { return view_.data(); }
  std::size_t size() const { return view_.size(); }
  bool empty() const { return view_.empty(); }
  const std::byte* begin() const { return view_.data(); }
  const std::byte* end() const { return view_.data() + view_.size(); }
  const std::byte& operator[](std::size_t i) const { return view_[i]; }

  friend bool operator==(const ByteArray& a, const ByteArray& b) {
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin());
  }

 private:
  std::vector<std::byte> own_;
  std::span<const std::byte> view_;
};

// A copy of the bytes of `values`, in the order of memory.
template <class T>
std::vector<std::byte> BytesOf(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

}  // namespace fp4lab
