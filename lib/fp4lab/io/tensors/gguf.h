// .gguf files, the model format of llama.cpp: named tensors in ggml's types. Metadata is checked
// and skipped.
// Format: ggml's docs/gguf.md, versions 2 and 3, little-endian; types and their block sizes as in
// gguf-py/gguf/constants.py of ggml-org/llama.cpp.
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

// A tensor type. The rows of a tensor are divided into blocks of `elements` elements in `bytes`
// bytes.
struct GgmlType {
  std::uint32_t id;
  std::string_view name;
  std::size_t elements, bytes;
};
inline constexpr std::array kGgmlTypes = {
    GgmlType{0, "F32", 1, 4},         GgmlType{1, "F16", 1, 2},
    GgmlType{2, "Q4_0", 32, 18},      GgmlType{3, "Q4_1", 32, 20},
    GgmlType{6, "Q5_0", 32, 22},      GgmlType{7, "Q5_1", 32, 24},
    GgmlType{8, "Q8_0", 32, 34},      GgmlType{9, "Q8_1", 32, 36},
    GgmlType{10, "Q2_K", 256, 84},    GgmlType{11, "Q3_K", 256, 110},
    GgmlType{12, "Q4_K", 256, 144},   GgmlType{13, "Q5_K", 256, 176},
    GgmlType{14, "Q6_K", 256, 210},   GgmlType{15, "Q8_K", 256, 292},
    GgmlType{16, "IQ2_XXS", 256, 66}, GgmlType{17, "IQ2_XS", 256, 74},
    GgmlType{18, "IQ3_XXS", 256, 98}, GgmlType{19, "IQ1_S", 256, 50},
    GgmlType{20, "IQ4_NL", 32, 18},   GgmlType{21, "IQ3_S", 256, 110},
    GgmlType{22, "IQ2_S", 256, 82},   GgmlType{23, "IQ4_XS", 256, 136},
    GgmlType{24, "I8", 1, 1},         GgmlType{25, "I16", 1, 2},
    GgmlType{26, "I32", 1, 4},        GgmlType{27, "I64", 1, 8},
    GgmlType{28, "F64", 1, 8},        GgmlType{29, "IQ1_M", 256, 56},
    GgmlType{30, "BF16", 1, 2},       GgmlType{34, "TQ1_0", 256, 54},
    GgmlType{35, "TQ2_0", 256, 66},   GgmlType{39, "MXFP4", 32, 17},
    GgmlType{40, "NVFP4", 64, 36},
};
inline constexpr std::uint32_t kGgmlF32 = 0, kGgmlF16 = 1, kGgmlBf16 = 30, kGgmlMxfp4 = 39,
                               kGgmlNvfp4 = 40;

struct GgufTensor {
  std::uint32_t type = kGgmlF32;
  std::vector<std::size_t> shape;  // outermost first: the file's dimensions in reverse order
  ByteArray bytes;
  friend bool operator==(const GgufTensor&, const GgufTensor&) = default;
};

struct GgufFile {
  std::map<std::string, GgufTensor> tensors;
  friend bool operator==(const GgufFile&, const GgufFile&) = default;
};

// Parses the content of a .gguf file, which `where` names in errors. Throws a one-line Error for
// truncated files, lengths beyond the file, unknown or removed types, duplicate names, and offsets
// that are not aligned, overlap, leave gaps or disagree with the sizes.
GgufFile ParseGguf(std::span<const std::byte> file, const std::string& where);
// ParseGguf without a copy of the tensors: `file` must outlive the result.
GgufFile ViewGguf(std::span<const std::byte> file, const std::string& where);
GgufFile ReadGguf(const std::filesystem::path& path);

// Formats a file: version 3, alignment 32, tensors in order of their names, no metadata except
// general.alignment.
std::vector<std::byte> FormatGguf(const GgufFile& file);
void WriteGguf(const std::filesystem::path& path, const GgufFile& file);

}  // namespace fp4lab
