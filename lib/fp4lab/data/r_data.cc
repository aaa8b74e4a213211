#include "fp4lab/data/r_data.h"

#include <zlib.h>

#include <cstdint>

#include "fp4lab/base/error.h"

namespace fp4lab {
namespace {

// Both limit the memory for a corrupt length: a record's bytes, and how many bytes a compressed one
// gives (zlib's limit is 1032).
constexpr std::uint32_t kLongestRecord = 1u << 28, kMostInflation = 1040;

// Reads big-endian numbers and bytes, never past the end.
class XdrReader {
 public:
  XdrReader(std::string_view bytes, const std::string& where) : rest_(bytes), where_(where) {}

  bool AtEnd() const { return rest_.empty(); }

  std::string_view Bytes(std::size_t count) {
    if (count > rest_.size()) throw Error(where_, "is truncated");
    const std::string_view bytes = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return bytes;
  }

  std::uint32_t Word() {
    std::uint32_t word = 0;
    for (const char c : Bytes(4)) word = word << 8 | static_cast<unsigned char>(c);
    return word;
  }

  // A count: from 0 to 2^31 - 1.
  std::size_t Count(std::string_view of) {
    const std::uint32_t word = Word();
    if (word >> 31 != 0) throw Error(where_, "has an impossible number of " + std::string(of));
    return word;
  }

 private:
  std::string_view rest_;
  const std::string& where_;
};

struct Inflated {
  std::string bytes;
  std::size_t used = 0;  // compressed bytes consumed
};

// Inflates the zlib stream at the start of `compressed`, which must give exactly `length` bytes.
Inflated Inflate(std::string_view compressed, std::size_t length, const std::string& where) {
  Inflated result{.bytes = std::string(length, '\0')};
  z_stream stream{};
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(compressed.data()));
  stream.avail_in = static_cast<uInt>(std::min<std::size_t>(compressed.size(), kLongestRecord));
  stream.next_out = reinterpret_cast<Bytef*>(result.bytes.data());
  stream.avail_out = static_cast<uInt>(length);
  if (::inflateInit(&stream) != Z_OK) throw Error(where, "zlib cannot start");
  const int status = ::inflate(&stream, Z_FINISH);
  const std::size_t made = stream.total_out;
  result.used = stream.total_in;
  ::inflateEnd(&stream);
  if (status != Z_STREAM_END || made != length) {
    throw Error(where, "is corrupt or truncated: its zlib stream does not give " +
                           std::to_string(length) + " bytes");
  }
  return result;
}

}  // namespace

std::vector<std::string> ReadLazyLoadRecords(std::string_view bytes, const std::string& where) {
  std::vector<std::string> records;
  while (!bytes.empty()) {
    const std::string record = where + ", record " + std::to_string(records.size());
    XdrReader reader(bytes, record);
    const std::uint32_t length = reader.Word();
    if (length > kLongestRecord) throw Error(record, "has an impossible length");
    bytes.remove_prefix(4);
    if (length / kMostInflation > bytes.size()) throw Error(record, "has an impossible length");
    Inflated inflated = Inflate(bytes, length, record);
    bytes.remove_prefix(inflated.used);
    records.push_back(std::move(inflated.bytes));
  }
  return records;
}

std::string LinesOfCharacterVector(std::string_view object, const std::string& where) {
  constexpr std::uint32_t kCharacterVector = 16, kString = 9, kHasAttributes = 1 << 9;
  constexpr std::uint32_t kBytesMark = 1 << 13, kLatin1Mark = 1 << 14;  // gp bits 1 and 2
  XdrReader reader(object, where);
  if (object.substr(0, 2) != "X\n") throw Error(where, "is not an R object in XDR format");
  reader.Bytes(2);
  const std::uint32_t version = reader.Word();
  if (version != 2 && version != 3) {
    throw Error(where, "has serialization version " + std::to_string(version) + ", not 2 or 3");
  }
  reader.Bytes(8);  // R versions: of the writer, and the oldest that can read it
  if (version == 3) reader.Bytes(reader.Count("bytes in the encoding's name"));
  const std::uint32_t flags = reader.Word();
  if ((flags & 255) != kCharacterVector) throw Error(where, "is not a character vector");
  std::string lines;
  for (std::size_t left = reader.Count("strings"); left > 0; --left) {
    const std::uint32_t string_flags = reader.Word();
    if ((string_flags & 255) != kString)
      throw Error(where, "contains an element that is not a string");
    if ((string_flags & (kBytesMark | kLatin1Mark)) != 0) {
      throw Error(where, "holds a string that is not UTF-8");
    }
    lines += reader.Bytes(reader.Count("bytes in a string (or NA)"));
    lines += '\n';
  }
  if ((flags & kHasAttributes) == 0 && !reader.AtEnd()) {
    throw Error(where, "has data after its last string");
  }
  return lines;
}

}  // namespace fp4lab
