// NumPy's array files: reading and writing of .npy and .npz.
// Format: numpy.lib.format, versions 1.0 to 3.0; little-endian numbers and raw bytes ("V", which is
// how NumPy stores ml_dtypes' bfloat16 and float8). Files are not trusted: a truncated, damaged or
// inconsistent file gives a one-line Error that names the file and, in an .npz, the array.
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

  // The elements as T. Size and kind must agree, except that raw bytes ("V") are read as unsigned
  // integers, booleans as std::uint8_t and half floats ("<f2") as std::uint16_t. Throws Error.
  template <NpyNumber T>
  std::span<const T> As() const {
    RequireElements(KindOf<T>(), sizeof(T));
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }

  // The bytes as UTF-8 text, for an array of bytes that holds a document.
  std::string_view Text() const;

  template <NpyNumber T>
  static constexpr char KindOf() {
    return std::floating_point<T> ? 'f' : std::is_unsigned_v<T> ? 'u' : 'i';
  }
  void RequireElements(char kind, std::size_t size) const;
};

// Makes an array, for writing, from a copy of the elements. The shape must have values.size()
// elements.
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

inline constexpr std::size_t kMostNpyAxes = 64;                      // NumPy 2 has the same limit
inline constexpr std::size_t kMostNpyHeader = std::size_t{1} << 20;  // bytes; NumPy's limit: 10,000

// Parses the content of a .npy file, which `where` names in errors.
NpyArray ParseNpy(std::span<const std::byte> file, std::string where);
// ParseNpy without a copy if the elements are aligned and in row-major order in the file; `file`
// must outlive the array.
NpyArray ViewNpy(std::span<const std::byte> file, std::string where);
// An array without its elements, and the length that the file must have according to its header.
// `front`: the first kMostNpyHeader bytes of the file, or all of a shorter file.
struct NpyHeader {
  NpyArray array;
  std::size_t file_bytes = 0;
};
NpyHeader ParseNpyHeader(std::span<const std::byte> front, std::string where);
std::vector<std::byte> FormatNpy(const NpyArray& array);

NpyArray ReadNpy(const std::filesystem::path& path);
void WriteNpy(const std::filesystem::path& path, const NpyArray& array);

// An .npz file, open for reading. Read unpacks one array and checks its CRC. An array must not be
// larger than its .npy header states, and the stated size must not exceed what deflate can produce
// from the packed bytes, nor what memory can hold.
class NpzFile {
 public:
  explicit NpzFile(const std::filesystem::path& path);
  // Opens the content of a file, which must outlive this object; `where` names the file in errors.
  NpzFile(std::span<const std::byte> content, std::string where);

  bool Has(std::string_view name) const;
  // The names of the arrays in the order of the file, without ".npy".
  std::vector<std::string> Names() const;
  // Reads an array. Throws Error for an unknown name.
  NpyArray Read(std::string_view name) const;
  // Reads an array without its elements. Throws Error for an unknown name.
  NpyArray ReadHeader(std::string_view name) const;

 private:
  struct Close {
    void operator()(zip* archive) const noexcept;
  };
  void Open(std::span<const std::byte> content);
  std::string Where(std::string_view name) const;  // "path#name"; throws Error for an unknown name

  std::string path_;
  std::optional<FileContent> file_;
  std::unique_ptr<zip, Close> archive_;
};

// Formats the content of an .npz file: arrays in order of their names, stored or deflated. The
// bytes depend on the arrays alone, not on the clock or the file system.
std::vector<std::byte> FormatNpz(const std::map<std::string, NpyArray>& arrays,
                                 bool deflate = false);
void WriteNpz(const std::filesystem::path& path, const std::map<std::string, NpyArray>& arrays,
              bool deflate = false);

}  // namespace fp4lab
