// .safetensors files: named tensors of all dtypes of the format, FP4 included, and a string map.
// Format: huggingface/safetensors README: 8-byte little-endian header length, JSON header, data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/io/byte_array.h"

namespace fp4lab {

// dtype names as files spell them, with the bits of an element. The shape of a sub-byte tensor
// counts elements, not bytes; its elements are packed without gaps, the first element in the lowest
// bits.
struct SafetensorsDtype {
  std::string_view name;
  int bits;
};
inline constexpr std::array kSafetensorsDtypes = {
    SafetensorsDtype{"BOOL", 8},        SafetensorsDtype{"U8", 8},
    SafetensorsDtype{"I8", 8},          SafetensorsDtype{"F4", 4},
    SafetensorsDtype{"F6_E2M3", 6},     SafetensorsDtype{"F6_E3M2", 6},
    SafetensorsDtype{"F8_E4M3", 8},     SafetensorsDtype{"F8_E5M2", 8},
    SafetensorsDtype{"F8_E8M0", 8},     SafetensorsDtype{"U16", 16},
    SafetensorsDtype{"I16", 16},        SafetensorsDtype{"F16", 16},
    SafetensorsDtype{"BF16", 16},       SafetensorsDtype{"U32", 32},
    SafetensorsDtype{"I32", 32},        SafetensorsDtype{"F32", 32},
    SafetensorsDtype{"U64", 64},        SafetensorsDtype{"I64", 64},
    SafetensorsDtype{"F64", 64},        SafetensorsDtype{"C64", 64},
    SafetensorsDtype{"F8_E4M3FNUZ", 8}, SafetensorsDtype{"F8_E5M2FNUZ", 8},
};

struct SafetensorsTensor {
  std::string dtype;
  std::vector<std::size_t> shape;  // in elements
  ByteArray bytes;
  friend bool operator==(const SafetensorsTensor&, const SafetensorsTensor&) = default;
};

struct SafetensorsFile {
  std::map<std::string, SafetensorsTensor> tensors;
  std::map<std::string, std::string> metadata;  // "__metadata__"
  friend bool operator==(const SafetensorsFile&, const SafetensorsFile&) = default;
};

// Bytes that a tensor of this dtype and shape takes. Throws Error(where, ...) for an unknown dtype,
// a shape whose size overflows, and elements that do not fill whole bytes.
std::size_t SafetensorsBytes(std::string_view dtype, std::span<const std::size_t> shape,
                             std::string_view where);

// Parses the content of a .safetensors file, which `where` names in errors. Throws a one-line Error
// that names the tensor for truncated or oversized files, headers that are over 100 MB or violate
// the format, offsets that overlap, leave gaps, run backwards or disagree with dtype and shape, and
// duplicate or unknown keys.
SafetensorsFile ParseSafetensors(std::span<const std::byte> file, const std::string& where);
// ParseSafetensors without a copy of the tensors: `file` must outlive the result.
SafetensorsFile ViewSafetensors(std::span<const std::byte> file, const std::string& where);
SafetensorsFile ReadSafetensors(const std::filesystem::path& path);

// Formats a file: tensors in order of their names; the header is padded with spaces to a multiple
// of 8 bytes.
std::vector<std::byte> FormatSafetensors(const SafetensorsFile& file);
void WriteSafetensors(const std::filesystem::path& path, const SafetensorsFile& file);

}  // namespace fp4lab
