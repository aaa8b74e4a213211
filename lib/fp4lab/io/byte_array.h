// The bytes of an array or tensor: its own, or those of a file that somebody else holds.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

namespace fp4lab {

// A copy has bytes of its own; only ViewOf and moving leave them where they are.
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

  // `bytes` must outlive the result and what is moved from it.
  static ByteArray ViewOf(std::span<const std::byte> bytes) {
    ByteArray view;
    view.view_ = bytes;
    return view;
  }

  // Gives a view bytes of its own.
  void Own() {
    if (own_.empty()) *this = ByteArray(begin(), end());
  }
  // Its own bytes, to be changed.
  std::span<std::byte> Change() {
    Own();
    return {const_cast<std::byte*>(view_.data()), view_.size()};  // they lie in own_
  }
  // Takes what a view lies in, so that it may be moved about with it.
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

}  // namespace fp4lab
