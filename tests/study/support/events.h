// TensorBoard event files, written by the formats' definitions and not by the reader's code.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace fp4lab::study {

inline std::string LittleEndianBytes(std::uint64_t bits, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += static_cast<char>(bits >> (8 * i) & 0xFF);
  return bytes;
}

// CRC-32C bit by bit, masked.
inline std::uint32_t MaskedCrcBitwise(std::string_view bytes) {
  std::uint32_t crc = 0xFFFFFFFF;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int i = 0; i < 8; ++i) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78 : 0);
  }
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

inline std::string Record(const std::string& data) {
  const std::string length = LittleEndianBytes(data.size(), 8);
  return length + LittleEndianBytes(MaskedCrcBitwise(length), 4) + data +
         LittleEndianBytes(MaskedCrcBitwise(data), 4);
}

inline std::string VarintBytes(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7F) | 0x80);
  return bytes + static_cast<char>(value);
}
inline std::string VarintField(std::uint32_t number, std::uint64_t value) {
  return VarintBytes(number << 3) + VarintBytes(value);
}
inline std::string BytesField(std::uint32_t number, const std::string& bytes) {
  return VarintBytes(number << 3 | 2) + VarintBytes(bytes.size()) + bytes;
}
inline std::string FloatField(std::uint32_t number, float value) {
  return VarintBytes(number << 3 | 5) + LittleEndianBytes(std::bit_cast<std::uint32_t>(value), 4);
}
inline std::string DoubleField(std::uint32_t number, double value) {
  return VarintBytes(number << 3 | 1) + LittleEndianBytes(std::bit_cast<std::uint64_t>(value), 8);
}

// An event of one value of a summary: `value` has the fields behind the tag.
inline std::string EventOf(std::int64_t step, const std::string& tag, const std::string& value) {
  return Record(DoubleField(1, 1.7e9) + VarintField(2, static_cast<std::uint64_t>(step)) +
                BytesField(5, BytesField(1, BytesField(1, tag) + value)));
}
// As torch.utils.tensorboard and tensorboardX write a scalar.
inline std::string SimpleEvent(std::int64_t step, const std::string& tag, float value) {
  return EventOf(step, tag, FloatField(2, value));
}
// As TensorFlow 2 writes one: a tensor of DT_FLOAT.
inline std::string TensorEvent(std::int64_t step, const std::string& tag, float value) {
  return EventOf(step, tag,
                 BytesField(9, BytesField(1, BytesField(1, "scalars"))) +
                     BytesField(8, VarintField(1, 1) + BytesField(2, "") +
                                       BytesField(5, LittleEndianBytes(
                                                         std::bit_cast<std::uint32_t>(value), 4))));
}
inline std::string VersionEvent() {
  return Record(DoubleField(1, 1.7e9) + BytesField(3, "brain.Event:2"));
}

}  // namespace fp4lab::study
