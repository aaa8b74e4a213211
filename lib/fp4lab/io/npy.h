// NumPy's array files: .npy and .npz, read and written.
// Format: numpy.lib.format, versions 1.0 to 3.0; little-endian numbers and raw bytes ("V", which is
// how NumPy stores ml_dtypes' bfloat16 and float8). Files are not trusted: a truncated, damaged or
// lying one gives an Error of one line that names the file and, in an .npz, the array.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/io/byte_array.h"
#include "fp4lab/io/file_content.h"

struct zip;  // libzip's archive

namespace fp4lab {

template <class T>
concept NpyNumber = std::integral<T> || std::floating_point<T>;

struct NpyArray {
  std::string dtype;               // NumPy's: "<u2", "|u1", "<f4", "|V2"
  std::vector<std::size_t> shape;  // {} is a scalar
  ByteArray bytes;                 // elements in row-major order
  std::string where;               // "file.npy" or "file.npz#array": for errors

  // The elements as T: the sizes must agree, and the kinds, except that raw bytes ("V") read as
  // unsigned integers, booleans as std::uint8_t and half floats ("<f2") as std::uint16_t.
  template <NpyNumber T>
  std::span<const T> As() const {
    RequireElements(KindOf<T>(), sizeof(T));
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }

  // The bytes as UTF-8 text (an array of bytes that holds a document).
  std::string_view Text() const;

  template <NpyNumber T>
  static constexpr char KindOf() {
    return std::floating_point<T> ? 'f' : std::is_unsigned_v<T> ? 'u' : 'i';
  }
  void RequireElements(char kind, std::size_t size) const;
};

// An array to write, with its elements copied in. The shape must hold values.size() elements.
template <NpyNumber T>
NpyArray MakeNpyArray(std::vector<std::size_t> shape, std::span<const T> values) {
  std::size_t count = 1;
  for (const std::size_t n : shape) count *= n;
  Expects(count == values.size(), "the shape holds as many elements as are given");
  const auto bytes = std::as_bytes(values);
  const std::string order = sizeof(T) == 1 ? "|" : "<";
  return {order + NpyArray::KindOf<T>() + std::to_string(sizeof(T)), std::move(shape),
          ByteArray(bytes.begin(), bytes.end()), ""};
}

inline constexpr std::size_t kMostNpyAxes = 64;                      // as NumPy 2
inline constexpr std::size_t kMostNpyHeader = std::size_t{1} << 20;  // bytes; NumPy reads 10,000

// The content of a .npy file. `where` names it in errors.
NpyArray ParseNpy(std::span<const std::byte> file, std::string where);
// The same without a copy where the elements lie in the file as they are needed: `file` must
// outlive the array.
NpyArray ViewNpy(std::span<const std::byte> file, std::string where);
// An array without its elements, and the length of its file as it says itself: from the first
// kMostNpyHeader bytes of that.
struct NpyHeader {
  NpyArray array;
  std::size_t file_bytes = 0;
};
NpyHeader ParseNpyHeader(std::span<const std::byte> front, std::string where);
std::vector<std::byte> FormatNpy(const NpyArray& array);

NpyArray ReadNpy(const std::filesystem::path& path);
void WriteNpy(const std::filesystem::path& path, const NpyArray& array);

// An .npz file, open for reading. Arrays are read when asked for, and their CRC is checked. An
// array may not be larger than its .npy header says, and that not more than deflate can make of the
// bytes in the archive, and memory hold.
class NpzFile {
 public:
  explicit NpzFile(const std::filesystem::path& path);
  // The content of a file, which must outlive this object; `where` names it in errors.
  NpzFile(std::span<const std::byte> content, std::string where);

  bool Has(std::string_view name) const;
  // In the file's order, without ".npy".
  std::vector<std::string> Names() const;
  // Throws Error for a name that is not there.
  NpyArray Read(std::string_view name) const;
  // The same without its elements.
  NpyArray ReadHeader(std::string_view name) const;

 private:
  struct Close {
    void operator()(zip* archive) const noexcept;
  };
  void Open(std::span<const std::byte> content);
  std::string Where(std::string_view name) const;  // Error for a name that is not there

  std::string path_;
  std::optional<FileContent> file_;
  std::unique_ptr<zip, Close> archive_;
};

// The content of an .npz file: arrays in order of their names, stored or deflated. The same bytes
// for the same arrays, always: no clock, no file system.
std::vector<std::byte> FormatNpz(const std::map<std::string, NpyArray>& arrays,
                                 bool deflate = false);
void WriteNpz(const std::filesystem::path& path, const std::map<std::string, NpyArray>& arrays,
              bool deflate = false);

}  // namespace fp4lab
