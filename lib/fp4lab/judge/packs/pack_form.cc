#include "fp4lab/judge/packs/pack_form.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>

#include "fp4lab/base/error.h"
#include "fp4lab/base/text/text.h"

namespace fp4lab {
namespace {

constexpr std::size_t kMostInLine = 16;  // words of a line of C

// The text that a form writes around the words of one tensor, and between them.
struct Style {
  std::string_view comment;  // starts a line of comment
  std::string_view prefix;   // of a word
  std::string_view between;  // the words of a row
  std::string_view row_end;  // of a row that is not the last
  std::string_view end;      // after the last word
  bool addresses;            // a word is "ADDRESS: WORD;" in a line of its own
};
constexpr Style kHex = {"// ", "", " ", "\n", "\n", false};
constexpr Style kCoe = {"; ", "", ", ", ",\n", ";\n", false};
constexpr Style kMif = {"-- ", "", "", "", "END;\n", true};
constexpr Style kC = {" * ", "0x", ", ", ",\n", "\n", false};

const Style& StyleOf(PackForm form) {
  switch (form) {
    case PackForm::kCoe:
      return kCoe;
    case PackForm::kMif:
      return kMif;
    case PackForm::kCHeader:
      return kC;
    case PackForm::kReadmemh:
    case PackForm::kSafetensors:
      break;
  }
  return kHex;
}

std::size_t WordBytes(const SafetensorsTensor& tensor) {
  const auto row = std::find_if(kSafetensorsDtypes.begin(), kSafetensorsDtypes.end(),
                                [&](const SafetensorsDtype& d) { return d.name == tensor.dtype; });
  Expects(row != kSafetensorsDtypes.end() && row->bits % 8 == 0 && row->bits <= 32,
          "a tensor of a pack has words of 8, 16 or 32 bits");
  return static_cast<std::size_t>(row->bits) / 8;
}
std::size_t Words(const SafetensorsTensor& tensor) {
  return tensor.bytes.size() / WordBytes(tensor);
}
// The words of a row of the tensor.
std::size_t RowWords(const SafetensorsTensor& tensor) {
  return std::max<std::size_t>(1, tensor.shape.size() < 2 ? Words(tensor) : tensor.shape.back());
}

void AppendHex(std::string* text, std::uint64_t number, std::size_t digits) {
  for (std::size_t i = digits; i-- > 0;) {
    *text += "0123456789abcdef"[number >> (4 * i) & 0xF];
  }
}
void AppendWord(std::string* text, const SafetensorsTensor& tensor, std::size_t index) {
  const std::size_t size = WordBytes(tensor);
  const std::span<const std::byte> bytes(tensor.bytes);
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < size; ++i) {
    word |= std::to_integer<std::uint64_t>(bytes[index * size + i]) << (8 * i);
  }
  AppendHex(text, word, 2 * size);
}

std::string ShapeText(const SafetensorsTensor& tensor) {
  std::string text;
  for (const std::size_t n : tensor.shape) text += (text.empty() ? "" : "x") + std::to_string(n);
  return text.empty() ? "1" : text;
}

// The kind of the words of a tensor of judge/packs/pack.h, by its name or, from a dot on, its
// ending.
struct Meaning {
  std::string_view name, text;
};
constexpr Meaning kMeanings[] = {
    {"input", "the matrix that the kernel is given, row by row"},
    {"transformed", "the input after the Hadamard transform"},
    {"random", "a field of random bits for each element"},
    {"amax", "the largest magnitude of the tensor (of each row)"},
    {"encode", "S, by which block scales are multiplied"},
    {"decode", "D, the tensor scale by which values are decoded"},
    {"block_amax", "b, the largest magnitude of each block, blocks row by row"},
    {"scale_before", "t, each block's scale before it is rounded"},
    {"scale_value", "s, the value of each block's scale"},
    {"factor", "e, by which the elements of each block are multiplied"},
    {"scale", "the byte of each block's scale, blocks row by row, no padding"},
    {"scaled", "v, each element times its factor"},
    {"codes", "the code of each element, one in a byte, row by row"},
    {".codes", "the bytes of codes as a kernel stores them"},
    {".scales", "the bytes of scales as a kernel stores them"},
    {".tensor_scale", "the tensor scale as a kernel stores it"},
};

std::string MeaningOf(std::string_view tensor) {
  const auto row = std::find_if(std::begin(kMeanings), std::end(kMeanings), [&](const Meaning& m) {
    return m.name.front() == '.' ? tensor.ends_with(m.name) : tensor == m.name;
  });
  Expects(row != std::end(kMeanings), "a tensor of a pack has a meaning");
  return std::string(row->text);
}

// A line for each fact of the pack that a reader of the words needs.
std::vector<std::string> FactsOf(const SafetensorsFile& pack) {
  const auto fact = [&](const char* key) {
    const auto at = pack.metadata.find(key);
    return at == pack.metadata.end() ? std::string() : at->second;
  };
  std::vector<std::string> lines = {
      "fp4lab " + fact("fp4lab") + ", " + fact("dialect") + ": elements " + fact("element") +
          ", scales " + fact("scale") + ", blocks " + fact("block") +
          (fact("hadamard") == "0"
               ? ""
               : ", Hadamard transform of " + fact("hadamard") + ", signs " + fact("sign_mask")),
      "formula: " + fact("source"),
  };
  if (!fact("layouts").empty()) {
    lines.push_back("layouts (codes.scales.tensor scale): " + fact("layouts"));
  }
  return lines;
}

std::string DescriptionOf(const std::string& name, const SafetensorsTensor& tensor) {
  const std::size_t bits = 8 * WordBytes(tensor);
  return name + ": " + MeaningOf(name) + "; " + CountText(Words(tensor), "word") + " of " +
         std::to_string(bits) + " bits (" + tensor.dtype + ", " + ShapeText(tensor) + ")";
}

std::string UnderscoredName(std::string_view name) {
  std::string identifier(name);
  for (char& c : identifier) {
    const bool kept = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!kept) c = '_';
  }
  return identifier;
}

std::string WordsText(const SafetensorsTensor& tensor, const Style& style, std::size_t row) {
  std::string text;
  const std::size_t count = Words(tensor);
  for (std::size_t i = 0; i < count; ++i) {
    if (style.addresses) {
      AppendHex(&text, i, 8);
      text += ": ";
      AppendWord(&text, tensor, i);
      text += ";\n";
      continue;
    }
    text += style.prefix;
    AppendWord(&text, tensor, i);
    if (i + 1 == count) break;
    text += (i + 1) % row == 0 ? style.row_end : style.between;
  }
  return text + std::string(style.end);
}

TextFile MemoryFile(const SafetensorsFile& pack, PackForm form, const std::string& name) {
  const SafetensorsTensor& tensor = pack.tensors.at(name);
  const Style& style = StyleOf(form);
  std::string text;
  const auto comment = [&](const std::string& line) {
    text += std::string(style.comment) + line + "\n";
  };
  const std::size_t bits = 8 * WordBytes(tensor);
  const std::string memory = UnderscoredName(name);
  const std::string file = memory + std::string(Named(form).ending);
  comment(DescriptionOf(name, tensor));
  for (const std::string& line : FactsOf(pack)) comment(line);
  comment("SHA-256 of the little-endian words: " + pack.metadata.at("sha256." + name));
  if (form == PackForm::kReadmemh) {
    comment("reg [" + std::to_string(bits - 1) + ":0] " + memory +
            " [0:" + std::to_string(std::max<std::size_t>(1, Words(tensor)) - 1) +
            "];  initial $readmemh(\"" + file + "\", " + memory + ");");
  } else if (form == PackForm::kCoe) {
    text += "memory_initialization_radix=16;\nmemory_initialization_vector=\n";
  } else {
    text += "WIDTH=" + std::to_string(bits) + ";\nDEPTH=" + std::to_string(Words(tensor)) +
            ";\nADDRESS_RADIX=HEX;\nDATA_RADIX=HEX;\nCONTENT BEGIN\n";
  }
  return {file, text + WordsText(tensor, style, RowWords(tensor))};
}

TextFile CHeader(const SafetensorsFile& pack, std::string_view name) {
  std::string guard(name);
  for (char& c : guard) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  const std::string prefix = std::string(name) + "_";
  std::string text = "/* A golden pack.\n";
  for (const std::string& line : FactsOf(pack)) text += " * " + line + "\n";
  text +=
      " * Arrays are row by row; those of F32 and BF16 hold the bits of the numbers.\n"
      " * " +
      prefix + "TENSOR_SIZE is the number of words. */\n#ifndef " + guard + "_H\n#define " + guard +
      "_H\n\n#include <stdint.h>\n\n";
  const SafetensorsTensor& input = pack.tensors.at("input");
  text += "#define " + prefix + "ROWS " + std::to_string(input.shape[0]) + "\n#define " + prefix +
          "COLS " + std::to_string(input.shape[1]) + "\n";
  for (const auto& [key, tensor] : pack.tensors) {
    if (Words(tensor) == 0) continue;  // C has no array of length 0
    const std::string array = prefix + UnderscoredName(key);
    text += "\n/* " + DescriptionOf(key, tensor) + "\n * SHA-256 " +
            pack.metadata.at("sha256." + key) + " */\n#define " + array + "_SIZE " +
            std::to_string(Words(tensor)) + "\nstatic const uint" +
            std::to_string(8 * WordBytes(tensor)) + "_t " + array + "[" + array + "_SIZE] = {\n" +
            WordsText(tensor, kC, kMostInLine) + "};\n";
  }
  return {std::string(name) + ".h", text + "\n#endif  /* " + guard + "_H */\n"};
}

}  // namespace

bool IsIdentifier(std::string_view name) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !name.empty() && letter(name[0]) && std::all_of(name.begin(), name.end(), [&](char c) {
    return letter(c) || (c >= '0' && c <= '9');
  });
}

std::vector<TextFile> PackTexts(const SafetensorsFile& pack, PackForm form, std::string_view name) {
  Expects(form != PackForm::kSafetensors, "a form of text");
  Expects(IsIdentifier(name), "the name of a pack is an identifier");
  if (form == PackForm::kCHeader) return {CHeader(pack, name)};
  std::vector<TextFile> files;
  for (const auto& [key, tensor] : pack.tensors) files.push_back(MemoryFile(pack, form, key));
  return files;
}

}  // namespace fp4lab
