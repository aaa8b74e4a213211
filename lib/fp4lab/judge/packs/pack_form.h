// Golden packs as text, for test benches of hardware and for programs without a file system.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/io/tensors/safetensors.h"

namespace fp4lab {

// The forms that a pack (judge/packs/pack.h) is written in.
enum class PackForm : std::uint8_t { kSafetensors, kReadmemh, kCoe, kMif, kCHeader };
struct NamedPackForm {
  PackForm form;
  std::string_view name;
  std::string_view ending;  // of its files
  bool one_file;            // of all tensors; else a folder with a file for each tensor
  std::string_view text;
};
inline constexpr std::array kPackForms = {
    NamedPackForm{PackForm::kSafetensors, "safetensors", ".safetensors", true,
                  "the file that `fp4lab verify --pack` reads"},
    NamedPackForm{PackForm::kReadmemh, "readmemh", ".hex", false,
                  "a hex file for each tensor, which Verilog's $readmemh and VHDL benches read"},
    NamedPackForm{PackForm::kCoe, "coe", ".coe", false, "Vivado's memory initialization"},
    NamedPackForm{PackForm::kMif, "mif", ".mif", false, "Quartus' memory initialization"},
    NamedPackForm{PackForm::kCHeader, "c-header", ".h", true, "arrays of a C or C++ program"},
};
constexpr const NamedPackForm& Named(PackForm form) {
  return kPackForms[static_cast<std::size_t>(form)];
}

// A file's name and its text.
struct TextFile {
  std::string name;
  std::string text;
};

// The pack's tensors as text files of a form other than kSafetensors. A word is an element: a byte
// of codes or scales, or the bits of a number (BF16, U16: 16; F32: 32), most significant digit
// first. Words follow each other row by row, a row of the tensor in a line. Each file starts with a
// comment that states the tensor, its shape, its words and the facts of the pack.
//   kReadmemh, kCoe, kMif  TENSOR.hex, .coe or .mif; dots of the tensor's name become "_"
//   kCHeader               `name`.h; NAME_TENSOR are its arrays, NAME_TENSOR_SIZE their lengths.
//                          uint8_t, uint16_t and uint32_t; the arrays of F32 hold its bits.
// `name` is an identifier of C (IsIdentifier).
std::vector<TextFile> PackTexts(const SafetensorsFile& pack, PackForm form, std::string_view name);

// Whether `name` can name something in C and Verilog: letters, digits and "_", no digit first.
bool IsIdentifier(std::string_view name);

}  // namespace fp4lab
