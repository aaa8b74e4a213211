#include "fp4lab/study/parity/event_file.h"

#include <bit>
#include <boost/crc.hpp>
#include <cstring>
#include <optional>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/formats/format.h"

namespace fp4lab::study {
namespace {

constexpr std::size_t kHeader = 12, kFooter = 4;

template <class Number>
Number LittleEndian(std::string_view bytes) {
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < sizeof(Number); ++i) {
    bits |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  }
  if constexpr (sizeof(Number) == 8) {
    return std::bit_cast<Number>(bits);
  } else {
    return std::bit_cast<Number>(static_cast<std::uint32_t>(bits));
  }
}

// A field of a message. Of a varint the number; else the bytes.
struct Field {
  std::uint32_t number = 0, wire = 0;
  std::uint64_t varint = 0;
  std::string_view bytes = {};
};

// The fields of a message, one after another. Fails at the byte of the file.
class Message {
 public:
  Message(std::string_view bytes, std::size_t at, const std::string& where)
      : bytes_(bytes), start_(at), where_(where) {}

  std::optional<Field> Next() {
    if (at_ == bytes_.size()) return std::nullopt;
    const std::uint64_t key = Varint();
    Field field{.number = static_cast<std::uint32_t>(key >> 3),
                .wire = static_cast<std::uint32_t>(key & 7)};
    if (key >> 3 > 0x1FFFFFFF || field.number == 0) Fail("has no field of this number");
    switch (field.wire) {
      case 0:
        field.varint = Varint();
        break;
      case 1:
        field.bytes = Take(8);
        break;
      case 2:
        field.bytes = Take(Varint());
        break;
      case 5:
        field.bytes = Take(4);
        break;
      default:
        Fail("has a field of wire type " + std::to_string(field.wire));
    }
    return field;
  }

  // The message in the bytes of a field that Next() returned.
  Message Inside(const Field& field) const {
    return {field.bytes, start_ + static_cast<std::size_t>(field.bytes.data() - bytes_.data()),
            where_};
  }

  [[noreturn]] void Fail(const std::string& what) const {
    throw Error(where_, "byte " + std::to_string(start_ + at_) + ": the event " + what +
                            "; the file is damaged or holds other records");
  }

  std::uint64_t Varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ == bytes_.size()) Fail("ends within a number");
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      value |= std::uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    Fail("has a number of more than 64 bits");
  }
  bool AtEnd() const { return at_ == bytes_.size(); }

 private:
  std::string_view Take(std::uint64_t count) {
    if (count > bytes_.size() - at_) Fail("ends within a field");
    const std::string_view taken = bytes_.substr(at_, static_cast<std::size_t>(count));
    at_ += taken.size();
    return taken;
  }

  std::string_view bytes_;
  std::size_t at_ = 0, start_;
  const std::string& where_;
};

enum TensorType : std::uint64_t { kFloat = 1, kDouble = 2, kInt32 = 3, kInt64 = 9, kHalf = 19 };

// The only element of packed or single numbers of a field; nullopt: there are more.
std::optional<double> OnlyNumber(const Message& message, const Field& field, std::uint64_t type) {
  if (field.wire == 0) {
    if (type == kHalf) return Decode(FormatId::kFP16, static_cast<std::uint32_t>(field.varint));
    return static_cast<double>(static_cast<std::int64_t>(field.varint));
  }
  if (type == kFloat && field.bytes.size() == 4) return LittleEndian<float>(field.bytes);
  if (type == kDouble && field.bytes.size() == 8) return LittleEndian<double>(field.bytes);
  if (type == kFloat || type == kDouble || field.wire != 2) return std::nullopt;
  Message packed = message.Inside(field);
  if (packed.AtEnd()) return std::nullopt;
  const std::uint64_t varint = packed.Varint();
  if (!packed.AtEnd()) return std::nullopt;
  return OnlyNumber(message, {.number = field.number, .wire = 0, .varint = varint}, type);
}

// The bytes of a tensor's content as its only element.
std::optional<double> OnlyContent(std::string_view bytes, std::uint64_t type) {
  if (type == kFloat && bytes.size() == 4) return LittleEndian<float>(bytes);
  if (type == kDouble && bytes.size() == 8) return LittleEndian<double>(bytes);
  if (type == kInt32 && bytes.size() == 4) return LittleEndian<std::int32_t>(bytes);
  if (type == kInt64 && bytes.size() == 8) {
    return static_cast<double>(LittleEndian<std::int64_t>(bytes));
  }
  if (type == kHalf && bytes.size() == 2) {
    return Decode(FormatId::kFP16,
                  static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[0]) |
                                             static_cast<unsigned char>(bytes[1]) << 8));
  }
  return std::nullopt;
}

// A scalar tensor's value; nullopt: it is none, or of another type.
std::optional<double> ScalarOf(Message tensor) {
  struct Numbers {
    std::uint64_t type;
    std::uint32_t field;
  };
  constexpr Numbers kNumbers[] = {
      {kFloat, 5}, {kDouble, 6}, {kInt32, 7}, {kInt64, 10}, {kHalf, 13}};
  std::uint64_t type = 0;
  std::optional<double> value;
  std::size_t found = 0;
  while (const std::optional<Field> field = tensor.Next()) {
    if (field->number == 1 && field->wire == 0) type = field->varint;
    if (field->number == 4 && field->wire == 2 && !field->bytes.empty()) {
      value = OnlyContent(field->bytes, type);
      ++found;
    }
    for (const Numbers& numbers : kNumbers) {
      if (numbers.field != field->number || numbers.type != type) continue;
      value = OnlyNumber(tensor, *field, type);
      ++found;
    }
  }
  return found == 1 ? value : std::nullopt;
}

void ReadSummary(Message summary, std::int64_t step, const ScalarVisitor& visit) {
  while (const std::optional<Field> field = summary.Next()) {
    if (field->number != 1 || field->wire != 2) continue;
    Message value = summary.Inside(*field);
    std::string tag;
    std::optional<double> number;
    while (const std::optional<Field> part = value.Next()) {
      if (part->number == 1 && part->wire == 2) tag = std::string(part->bytes);
      if (part->number == 2 && part->wire == 5) number = LittleEndian<float>(part->bytes);
      if (part->number == 8 && part->wire == 2) number = ScalarOf(value.Inside(*part));
    }
    if (number) visit(step, tag, *number);
  }
}

void ReadEvent(Message event, const ScalarVisitor& visit) {
  std::int64_t step = 0;
  std::optional<Message> summary;
  while (const std::optional<Field> field = event.Next()) {
    if (field->number == 2 && field->wire == 0) step = static_cast<std::int64_t>(field->varint);
    if (field->number == 5 && field->wire == 2) summary.emplace(event.Inside(*field));
  }
  if (summary) ReadSummary(*summary, step, visit);
}

}  // namespace

std::uint32_t MaskedCrc(std::string_view bytes) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;
  crc.process_bytes(bytes.data(), bytes.size());
  return std::rotr(static_cast<std::uint32_t>(crc.checksum()), 15) + 0xA282EAD8u;
}

std::size_t ReadEventFile(std::string_view bytes, const std::string& where,
                          const ScalarVisitor& visit) {
  const IeeeArithmetic ieee;
  std::size_t at = 0;
  const auto check = [&](std::size_t from, std::size_t count, const char* what) {
    if (LittleEndian<std::uint32_t>(bytes.substr(from + count, 4)) ==
        MaskedCrc(bytes.substr(from, count))) {
      return;
    }
    throw Error(where, "byte " + std::to_string(from) + ": the CRC-32C of the record's " + what +
                           " does not fit; the file is damaged or is no TensorBoard event file");
  };
  while (bytes.size() - at >= kHeader) {
    check(at, 8, "length");
    const auto length = LittleEndian<std::uint64_t>(bytes.substr(at, 8));
    const std::size_t left = bytes.size() - at - kHeader;
    if (left < kFooter || length > left - kFooter) break;
    const std::size_t data = at + kHeader, count = static_cast<std::size_t>(length);
    check(data, count, "data");
    ReadEvent(Message(bytes.substr(data, count), data, where), visit);
    at = data + count + kFooter;
  }
  return at;
}

}  // namespace fp4lab::study
