#include "fp4lab/io/tensors/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <set>
#include <type_traits>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/file_content.h"

namespace fp4lab {
namespace {

constexpr std::string_view kGgufMagic = "GGUF";
constexpr std::string_view kAlignmentKey = "general.alignment";
constexpr std::size_t kDefaultAlignment = 32;
constexpr std::size_t kMaxName = 64, kMaxKey = 65535, kMaxDimensions = 4, kMaxNesting = 8;

// Bytes of a metadata value, by the number of its type in the file; 0: strings and arrays.
constexpr std::array<std::size_t, 13> kValueSizes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
constexpr std::uint32_t kUint32 = 4, kBool = 7, kString = 8, kArray = 9;

const GgmlType* FindType(std::uint32_t id) {
  const auto found = std::find_if(kGgmlTypes.begin(), kGgmlTypes.end(),
                                  [id](const GgmlType& t) { return t.id == id; });
  return found == kGgmlTypes.end() ? nullptr : &*found;
}

std::size_t Aligned(std::size_t offset, std::size_t alignment) {
  return RoundUp(offset, alignment);
}

class Reader {
 public:
  Reader(std::span<const std::byte> file, const std::string& where) : file_(file), where_(where) {}

  std::size_t at() const { return at_; }
  std::size_t left() const { return file_.size() - at_; }

  [[noreturn]] void Fail(const std::string& problem) const {
    throw Error(where_, problem + " (byte " + std::to_string(at_) + ")");
  }

  template <class T>
  T Number() {
    static_assert(std::is_trivially_copyable_v<T>);
    Need(sizeof(T));
    T value;
    std::memcpy(&value, file_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }

  std::string String(std::size_t longest, const char* what) {
    const auto length = Number<std::uint64_t>();
    if (length > left()) Fail(std::string(what) + " is longer than the rest of the file");
    if (length > longest) {
      Fail(std::string(what) + " of " + std::to_string(length) + " bytes; at most " +
           std::to_string(longest) + " are allowed");
    }
    const auto size = static_cast<std::size_t>(length);
    std::string text(reinterpret_cast<const char*>(file_.data()) + at_, size);
    at_ += size;
    return text;
  }

  void SkipValue(std::uint32_t type, std::size_t nesting = 0) {
    if (type >= kValueSizes.size()) Fail("a metadata value of unknown type");
    if (type == kString) {
      String(std::numeric_limits<std::size_t>::max(), "a string");
    } else if (type == kArray) {
      SkipArray(nesting);
    } else if (type == kBool) {
      if (Number<std::uint8_t>() > 1) Fail("a truth value that is neither 0 nor 1");
    } else {
      Need(kValueSizes[type]);
      at_ += kValueSizes[type];
    }
  }

 private:
  void Need(std::size_t size) const {
    if (left() < size) throw Error(where_, "ends inside its header: truncated, or not a GGUF file");
  }

  void SkipArray(std::size_t nesting) {
    if (nesting == kMaxNesting) Fail("arrays nested too deep");
    const auto type = Number<std::uint32_t>();
    const auto count = Number<std::uint64_t>();
    if (type >= kValueSizes.size()) Fail("an array of unknown type");
    const std::size_t least = type == kString ? 8 : type == kArray ? 12 : kValueSizes[type];
    if (count > left() / least) Fail("an array longer than the rest of the file");
    for (std::uint64_t i = 0; i < count; ++i) SkipValue(type, nesting + 1);
  }

  std::span<const std::byte> file_;
  std::size_t at_ = 0;
  const std::string& where_;
};

struct Extent {
  std::size_t begin, size;
  std::string name;
};

std::size_t ReadMetadata(Reader& reader, std::uint64_t count) {
  std::size_t alignment = kDefaultAlignment;
  std::set<std::string> keys;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string key = reader.String(kMaxKey, "a metadata key");
    if (!keys.insert(key).second) reader.Fail("duplicate metadata key");
    const auto type = reader.Number<std::uint32_t>();
    if (key == kAlignmentKey) {
      if (type != kUint32) reader.Fail("general.alignment is not a uint32");
      alignment = reader.Number<std::uint32_t>();
      if (alignment < 8 || !std::has_single_bit(alignment)) {
        reader.Fail("general.alignment is not a power of two from 8 on");
      }
      continue;
    }
    reader.SkipValue(type);
  }
  return alignment;
}

// Bytes of a tensor; `place` names the tensor in errors.
std::size_t TensorBytes(const GgufTensor& tensor, const std::string& place) {
  const GgmlType* type = FindType(tensor.type);
  if (type == nullptr) {
    throw Error(place, "has the type " + std::to_string(tensor.type) + ", which is not known");
  }
  std::size_t elements = 1;
  const bool empty = std::count(tensor.shape.begin(), tensor.shape.end(), 0u) > 0;
  for (const std::size_t n : tensor.shape) {
    if (empty) break;
    if (elements > std::numeric_limits<std::size_t>::max() / 8 / n) {
      throw Error(place, "a shape whose size overflows");
    }
    elements *= n;
  }
  if (tensor.shape.back() % type->elements != 0) {
    throw Error(place, "rows of " + std::to_string(tensor.shape.back()) + " elements, which " +
                           std::string(type->name) + " blocks of " +
                           std::to_string(type->elements) + " do not fill");
  }
  return empty ? 0 : elements / type->elements * type->bytes;
}

Extent ReadTensorInfo(Reader& reader, const std::string& where, std::size_t alignment,
                      GgufFile* file) {
  const std::string name = reader.String(kMaxName, "a tensor's name");
  RefuseControlCharacters(name, where);
  const std::string place = where + "#" + name;
  if (file->tensors.contains(name)) throw Error(place, "duplicate tensor name");
  GgufTensor& tensor = file->tensors[name];
  const auto dimensions = reader.Number<std::uint32_t>();
  if (dimensions < 1 || dimensions > kMaxDimensions) {
    throw Error(place, "has " + std::to_string(dimensions) + " dimensions; 1 to 4 are allowed");
  }
  for (std::uint32_t i = 0; i < dimensions; ++i) {
    tensor.shape.push_back(static_cast<std::size_t>(reader.Number<std::uint64_t>()));
  }
  std::reverse(tensor.shape.begin(), tensor.shape.end());
  tensor.type = reader.Number<std::uint32_t>();
  const auto offset = static_cast<std::size_t>(reader.Number<std::uint64_t>());
  if (offset % alignment != 0) {
    throw Error(place, "offset " + std::to_string(offset) + " is not a multiple of the alignment " +
                           std::to_string(alignment));
  }
  return {offset, TensorBytes(tensor, place), name};
}

// Checks that the tensors lie one after the other without gaps, each aligned; padding after the
// last one is optional.
void CheckThatExtentsTile(std::vector<Extent> extents, std::size_t alignment, std::size_t size,
                          const std::string& where) {
  std::stable_sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return std::pair(a.begin, a.size) < std::pair(b.begin, b.size);
  });
  std::size_t at = 0, end = 0;
  for (const Extent& extent : extents) {
    const std::string place = where + "#" + extent.name;
    if (extent.begin != at) {
      throw Error(place, extent.begin < at ? "overlaps another tensor" : "leaves a gap before it");
    }
    if (extent.begin > size || extent.size > size - extent.begin) {
      throw Error(place, "does not lie in the file's " + std::to_string(size) +
                             " bytes of data: truncated or damaged");
    }
    end = extent.begin + extent.size;
    at = Aligned(end, alignment);
  }
  if (size > at) throw Error(where, std::to_string(size - end) + " bytes after the last tensor");
}

}  // namespace

GgufFile ViewGguf(std::span<const std::byte> file, const std::string& where) {
  Reader reader(file, where);
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (text.substr(0, kGgufMagic.size()) != kGgufMagic) throw Error(where, "is not a GGUF file");
  reader.Number<std::uint32_t>();
  const auto version = reader.Number<std::uint32_t>();
  if (version != 2 && version != 3) {
    throw Error(where, "is GGUF version " + std::to_string(version) +
                           "; little-endian 2 and 3 can be read");
  }
  const auto tensors = reader.Number<std::uint64_t>();
  const auto pairs = reader.Number<std::uint64_t>();
  if (tensors > reader.left() / 24 || pairs > reader.left() / 13) {  // lower bounds of their sizes
    throw Error(where, "states " + std::to_string(tensors) + " tensors and " +
                           std::to_string(pairs) + " metadata pairs in a file of " +
                           std::to_string(file.size()) + " bytes");
  }
  const std::size_t alignment = ReadMetadata(reader, pairs);
  GgufFile result;
  std::vector<Extent> extents;
  for (std::uint64_t i = 0; i < tensors; ++i) {
    extents.push_back(ReadTensorInfo(reader, where, alignment, &result));
  }
  const std::size_t begin = std::min(Aligned(reader.at(), alignment), file.size());
  const std::span<const std::byte> data = file.subspan(begin);
  CheckThatExtentsTile(extents, alignment, data.size(), where);
  for (const Extent& extent : extents) {
    result.tensors[extent.name].bytes = ByteArray::ViewOf(data.subspan(extent.begin, extent.size));
  }
  return result;
}

GgufFile ParseGguf(std::span<const std::byte> file, const std::string& where) {
  GgufFile result = ViewGguf(file, where);
  for (auto& [name, tensor] : result.tensors) tensor.bytes.Own();
  return result;
}

GgufFile ReadGguf(const std::filesystem::path& path) {
  const FileContent file(path);
  return ParseGguf(file.bytes(), path.string());
}

std::vector<std::byte> FormatGguf(const GgufFile& file) {
  std::string text(kGgufMagic);
  const auto number = [&text](auto value) {
    text.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  const auto string = [&](std::string_view value) {
    number(std::uint64_t{value.size()});
    text += value;
  };
  number(std::uint32_t{3});
  number(std::uint64_t{file.tensors.size()});
  number(std::uint64_t{1});
  string(kAlignmentKey);
  number(kUint32);
  number(static_cast<std::uint32_t>(kDefaultAlignment));
  std::size_t offset = 0;
  for (const auto& [name, tensor] : file.tensors) {
    Expects(!tensor.shape.empty() && tensor.shape.size() <= kMaxDimensions, "1 to 4 dimensions");
    Expects(TensorBytes(tensor, name) == tensor.bytes.size(), "bytes that fill the shape");
    string(name);
    number(static_cast<std::uint32_t>(tensor.shape.size()));
    for (auto n = tensor.shape.rbegin(); n != tensor.shape.rend(); ++n) number(std::uint64_t{*n});
    number(tensor.type);
    number(std::uint64_t{offset});
    offset = Aligned(offset + tensor.bytes.size(), kDefaultAlignment);
  }
  text.resize(Aligned(text.size(), kDefaultAlignment), '\0');
  for (const auto& [name, tensor] : file.tensors) {
    text.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
    text.resize(Aligned(text.size(), kDefaultAlignment), '\0');
  }
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

void WriteGguf(const std::filesystem::path& path, const GgufFile& file) {
  WriteFileAtomically(path, FormatGguf(file));
}

}  // namespace fp4lab
