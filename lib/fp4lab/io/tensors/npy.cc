#include "fp4lab/io/tensors/npy.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <limits>
#include <optional>
#include <utility>

#include "fp4lab/io/file.h"
#include "fp4lab/io/memory.h"

namespace fp4lab {
namespace {

static_assert(std::endian::native == std::endian::little, "arrays are little-endian in memory");

constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr std::size_t kAlignment = 64;  // of the data in a file, as in files that NumPy writes

struct ElementType {
  char kind;  // b, i, u, f, V
  std::size_t size;
};

// "<f4" -> {f, 4}; nullopt for types that are not read (big-endian, objects, strings, structures).
std::optional<ElementType> ParseDtype(std::string_view dtype) {
  if (dtype.size() != 3 || !std::isdigit(static_cast<unsigned char>(dtype[2]))) return {};
  const ElementType type{dtype[1], static_cast<std::size_t>(dtype[2] - '0')};
  if (dtype[0] != '<' && !(dtype[0] == '|' && (type.size == 1 || type.kind == 'V'))) return {};
  const std::string_view sizes = type.kind == 'b'                       ? "1"
                                 : type.kind == 'f'                     ? "248"
                                 : type.kind == 'i' || type.kind == 'u' ? "1248"
                                 : type.kind == 'V'                     ? "1248"
                                                                        : "";
  if (sizes.find(dtype[2]) == std::string_view::npos) return {};
  return type;
}

struct Header {
  std::string descr;
  bool fortran_order = false;
  std::vector<std::size_t> shape;
};

// Parses a header, which is one Python literal:
// {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  Header Parse() {
    Header header;
    bool descr = false, order = false, shape = false;
    Take('{');
    while (!TakeIf('}')) {
      const std::string key = String();
      Take(':');
      if (key == "descr" && !descr) {
        header.descr = Descr();
        descr = true;
      } else if (key == "fortran_order" && !order) {
        header.fortran_order = Boolean();
        order = true;
      } else if (key == "shape" && !shape) {
        header.shape = Shape();
        shape = true;
      } else {
        Fail();
      }
      if (!TakeIf(',')) {
        Take('}');
        break;
      }
    }
    if (!descr || !order || !shape || Next() != '\0') Fail();
    return header;
  }

 private:
  [[noreturn]] void Fail() const { throw Error(where_, "has a malformed .npy header"); }

  char Next() {
    while (!text_.empty() && std::isspace(static_cast<unsigned char>(text_.front()))) {
      text_.remove_prefix(1);
    }
    return text_.empty() ? '\0' : text_.front();
  }
  bool TakeIf(char c) {
    if (Next() != c || text_.empty()) return false;
    text_.remove_prefix(1);
    return true;
  }
  void Take(char c) {
    if (!TakeIf(c)) Fail();
  }
  std::string String() {
    const char quote = Next();
    if (quote != '\'' && quote != '"') Fail();
    text_.remove_prefix(1);
    const std::size_t end = text_.find(quote);
    if (end == std::string_view::npos) Fail();
    std::string value(text_.substr(0, end));
    text_.remove_prefix(end + 1);
    const auto printable = [](unsigned char c) { return std::isprint(c) != 0; };
    if (!std::all_of(value.begin(), value.end(), printable)) Fail();
    return value;
  }
  std::string Descr() {
    if (Next() == '[') throw Error(where_, "holds a structured array; save its fields one by one");
    return String();
  }
  bool Boolean() {
    Next();
    for (const std::string_view word : {"True", "False"}) {
      if (text_.substr(0, word.size()) != word) continue;
      text_.remove_prefix(word.size());
      return word == "True";
    }
    Fail();
  }
  std::vector<std::size_t> Shape() {
    std::vector<std::size_t> shape;
    if (std::isdigit(static_cast<unsigned char>(Next()))) FailAsNumber(Length());
    Take('(');
    while (!TakeIf(')')) {
      if (shape.size() == kMostNpyAxes) {
        throw Error(where_,
                    "has more than " + std::to_string(kMostNpyAxes) + " axes, the limit of NumPy");
      }
      shape.push_back(Length());
      if (!TakeIf(',')) {
        if (shape.size() == 1 && Next() == ')') FailAsNumber(shape[0]);  // "(256)" in Python
        Take(')');
        break;
      }
    }
    return shape;
  }
  [[noreturn]] void FailAsNumber(std::size_t number) const {
    const std::string n = std::to_string(number);
    throw Error(where_, "states the shape " + n + ", a number; NumPy writes the tuple (" + n +
                            ",) for an array of one dimension");
  }
  std::size_t Length() {
    if (!std::isdigit(static_cast<unsigned char>(Next()))) Fail();
    std::size_t value = 0;
    while (!text_.empty() && std::isdigit(static_cast<unsigned char>(text_.front()))) {
      const auto digit = static_cast<std::size_t>(text_.front() - '0');
      if (value > (std::numeric_limits<std::size_t>::max() - digit) / 10) Fail();
      value = value * 10 + digit;
      text_.remove_prefix(1);
    }
    return value;
  }

  std::string_view text_;
  const std::string& where_;
};

// Bytes that an array of this shape takes; nullopt if the number overflows.
std::optional<std::size_t> ByteCount(const std::vector<std::size_t>& shape, std::size_t size) {
  std::size_t bytes = size;
  for (const std::size_t n : shape) {
    if (n == 0) return 0;
    if (bytes > std::numeric_limits<std::size_t>::max() / n) return {};
    bytes *= n;
  }
  return bytes;
}

// Copies column-major elements to row-major order.
std::vector<std::byte> RowMajor(std::span<const std::byte> data,
                                const std::vector<std::size_t>& shape, std::size_t size) {
  std::vector<std::byte> out(data.size());
  std::vector<std::size_t> index(shape.size(), 0);
  for (std::size_t from = 0; from < data.size(); from += size) {
    std::size_t to = 0;
    for (std::size_t axis = 0; axis < shape.size(); ++axis) to = to * shape[axis] + index[axis];
    std::copy_n(data.data() + from, size, out.data() + to * size);
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {  // the first axis runs fastest
      if (++index[axis] < shape[axis]) break;
      index[axis] = 0;
    }
  }
  return out;
}

// Splits a file into its header text and its data.
std::pair<std::string_view, std::span<const std::byte>> SplitNpy(std::span<const std::byte> file,
                                                                 const std::string& where) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (text.substr(0, kNpyMagic.size()) != kNpyMagic) throw Error(where, "is not a .npy file");
  const auto byte = [&](std::size_t i) -> std::size_t {
    if (i >= file.size()) throw Error(where, "ends inside its .npy header");
    return std::to_integer<std::size_t>(file[i]);
  };
  const std::size_t major = byte(6), minor = byte(7);
  if (major < 1 || major > 3 || minor != 0) {
    throw Error(where, "is .npy version " + std::to_string(major) + "." + std::to_string(minor) +
                           "; 1.0, 2.0 and 3.0 can be read");
  }
  const std::size_t begin = major == 1 ? 10 : 12;
  std::size_t length = byte(8) | byte(9) << 8;
  if (major > 1) length |= byte(10) << 16 | byte(11) << 24;
  if (begin + length > kMostNpyHeader) {
    throw Error(where, "states a .npy header of " + std::to_string(length) + " bytes; at most " +
                           std::to_string(kMostNpyHeader) + " are read");
  }
  if (file.size() < begin + length) throw Error(where, "ends inside its .npy header");
  return {text.substr(begin, length), file.subspan(begin + length)};
}

std::string ShapeText(const std::vector<std::size_t>& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  }
  return text + (shape.size() == 1 ? ",)" : ")");
}

ElementType RequireType(const Header& header, const std::string& where) {
  if (const std::optional<ElementType> type = ParseDtype(header.descr)) return *type;
  throw Error(where, "holds elements of type '" + header.descr +
                         "'; little-endian b, i, u, f and V of 1 to 8 bytes can be read");
}

[[noreturn]] void RefuseSize(const Header& header, std::size_t size, const std::string& where) {
  throw Error(where, "the header states shape " + ShapeText(header.shape) + " of " + header.descr +
                         ", but the file has " + std::to_string(size) + " bytes of data");
}

}  // namespace

void NpyArray::RequireElements(char kind, std::size_t size) const {
  const std::optional<ElementType> type = ParseDtype(dtype);
  const bool kinds_agree =
      type && (type->kind == kind || (kind == 'u' && (type->kind == 'V' || type->kind == 'b' ||
                                                      (type->kind == 'f' && type->size == 2))));
  if (!kinds_agree || type->size != size) {
    throw Error(where.empty() ? "array" : where, "holds elements of type " + dtype + " where " +
                                                     kind + std::to_string(size) + " is needed");
  }
}

std::string_view NpyArray::Text() const {
  RequireElements('u', 1);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

NpyArray ViewNpy(std::span<const std::byte> file, std::string where) {
  const auto [text, data] = SplitNpy(file, where);
  Header header = HeaderParser(text, where).Parse();
  const ElementType type = RequireType(header, where);
  if (ByteCount(header.shape, type.size) != data.size()) {
    RefuseSize(header, data.size(), where);
  }
  const auto address = reinterpret_cast<std::uintptr_t>(data.data());
  ByteArray bytes;
  if (header.fortran_order && header.shape.size() > 1) {
    RequireMemory(data.size(), where);
    bytes = RowMajor(data, header.shape, type.size);
  } else if (address % type.size != 0) {  // not aligned for the element type
    bytes = ByteArray(data.begin(), data.end());
  } else {
    bytes = ByteArray::ViewOf(data);
  }
  return {std::move(header.descr), std::move(header.shape), std::move(bytes), std::move(where)};
}

NpyArray ParseNpy(std::span<const std::byte> file, std::string where) {
  NpyArray array = ViewNpy(file, std::move(where));
  array.bytes.Own();
  return array;
}

NpyHeader ParseNpyHeader(std::span<const std::byte> front, std::string where) {
  const auto [text, data] = SplitNpy(front, where);
  Header header = HeaderParser(text, where).Parse();
  const std::optional<std::size_t> size = ByteCount(header.shape, RequireType(header, where).size);
  if (!size) RefuseSize(header, data.size(), where);
  const std::size_t begin = front.size() - data.size();
  return {{std::move(header.descr), std::move(header.shape), {}, std::move(where)}, begin + *size};
}

std::vector<std::byte> FormatNpy(const NpyArray& array) {
  const std::optional<ElementType> type = ParseDtype(array.dtype);
  Expects(type.has_value(), "a dtype that .npy files of ours can hold");
  Expects(ByteCount(array.shape, type->size) == array.bytes.size(), "bytes that fill the shape");
  std::string header = "{'descr': '" + array.dtype +
                       "', 'fortran_order': False, 'shape': " + ShapeText(array.shape) + ", }";
  const std::size_t begin = kNpyMagic.size() + 4;
  header.resize((begin + header.size() + kAlignment) / kAlignment * kAlignment - begin, ' ');
  header.back() = '\n';
  Expects(header.size() <= 0xFFFF, "a shape that fits a version 1.0 header");
  std::string text(kNpyMagic);
  text += {'\x01', '\x00', static_cast<char>(header.size() & 0xFF),
           static_cast<char>(header.size() >> 8)};
  text += header;
  std::vector<std::byte> file(text.size() + array.bytes.size());
  std::copy_n(reinterpret_cast<const std::byte*>(text.data()), text.size(), file.begin());
  std::copy(array.bytes.begin(), array.bytes.end(),
            file.begin() + static_cast<std::ptrdiff_t>(text.size()));
  return file;
}

NpyArray ReadNpy(const std::filesystem::path& path) {
  const FileContent file(path);
  return ParseNpy(file.bytes(), path.string());
}

void WriteNpy(const std::filesystem::path& path, const NpyArray& array) {
  WriteFileAtomically(path, FormatNpy(array));
}

}  // namespace fp4lab
