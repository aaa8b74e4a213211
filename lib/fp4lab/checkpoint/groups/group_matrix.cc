#include "fp4lab/checkpoint/groups/group_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/exchange/number_type.h"
#include "fp4lab/exchange/shape.h"

namespace fp4lab {
namespace {

constexpr std::string_view kQuantState = "weight.quant_state.bitsandbytes__";
constexpr std::size_t kAwqPlace[8] = {0, 4, 1, 5, 2, 6, 3, 7};  // of row % 8 in its word

const SafetensorsTensor* Find(const SafetensorsFile& file, const std::string& name) {
  const auto found = file.tensors.find(name);
  return found == file.tensors.end() ? nullptr : &found->second;
}
bool IsWords(const SafetensorsTensor& t) { return t.dtype == "I32" || t.dtype == "U32"; }
std::size_t ElementsOf(const SafetensorsTensor& t) {
  std::size_t count = 1;
  for (const std::size_t n : t.shape) count *= n;
  return count;
}
std::span<const std::byte> BytesOf(const SafetensorsTensor& t) {
  return {t.bytes.data(), t.bytes.size()};
}
std::optional<std::vector<float>> NumbersOf(const SafetensorsTensor& t) {
  const auto type = FindNumberType(t.dtype);
  const bool number = t.dtype == "F32" || t.dtype == "F16" || t.dtype == "BF16";
  if (!type || !number) return std::nullopt;
  return DecodeNumbers(*type, BytesOf(t), ElementsOf(t));
}

std::uint32_t WordAt(std::span<const std::byte> bytes, std::size_t index) {
  std::uint32_t word = 0;
  std::memcpy(&word, bytes.data() + index * sizeof word, sizeof word);
  return word;
}

std::optional<Json> ObjectIn(const SafetensorsTensor& t) {
  try {
    Json json = ParseJson({reinterpret_cast<const char*>(t.bytes.data()), t.bytes.size()}, "state");
    if (json.is_object()) return json;
  } catch (const Error&) {  // another program's bytes
  }
  return std::nullopt;
}
// A size of a JSON object; 0 for anything else.
std::size_t SizeIn(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number_unsigned()) return 0;
  const auto size = found->get<std::uint64_t>();
  return size <= std::numeric_limits<std::uint32_t>::max() ? static_cast<std::size_t>(size) : 0;
}

// Reads the tensors of one matrix.
class Reader {
 public:
  Reader(const ModelFiles& checkpoint, const GroupEntry& entry)
      : file_(checkpoint.tensors), config_(checkpoint.config) {
    m_.name = entry.name;
    m_.naming = entry.naming;
    prefix_ = entry.name.empty() ? "" : entry.name + ".";
  }

  GroupMatrix Read() {
    const SafetensorsTensor* codes = Take(m_.naming->codes);
    const SafetensorsTensor* scales = Take(m_.naming->scales);
    m_.codes = BytesOf(*codes);
    m_.bytes = codes->bytes.size() + scales->bytes.size();
    m_.scales_dtype = scales->dtype;
    const std::string_view name = m_.naming->name;
    m_.readable = name == "bitsandbytes" ? ReadBitsandbytes(*codes, *scales)
                  : name == "gptq"       ? ReadGptq(*codes, *scales)
                  : name == "awq"        ? ReadAwq(*codes, *scales)
                  : name == "mlx-affine" ? ReadMlx(*codes, *scales)
                                         : ReadPacked(*codes, *scales);
    return std::move(m_);
  }

 private:
  const SafetensorsTensor* Take(std::string_view suffix) {
    const std::string name = prefix_ + std::string(suffix);
    const SafetensorsTensor* tensor = Find(file_, name);
    if (tensor != nullptr && std::ranges::find(m_.tensors, name) == m_.tensors.end()) {
      m_.tensors.push_back(name);
    }
    return tensor;
  }
  void Add(FindingKind kind, std::string text) {
    m_.findings.push_back({kind, "", std::move(text)});
  }
  bool Refuse(FindingKind kind, std::string text) {
    Add(kind, std::move(text));
    return false;
  }
  bool RefuseGrid(const SafetensorsTensor& t, std::string_view suffix, const std::string& right) {
    return Refuse(FindingKind::kGrid, prefix_ + std::string(suffix) + " is " + t.dtype + " " +
                                          ShapeText(t.shape) + "; " + right);
  }

  // Numbers in the order (row, group) of a tensor of (rows, groups), or (groups, rows).
  static std::vector<float> InRows(const std::vector<float>& x, std::size_t rows,
                                   std::size_t groups, bool transposed) {
    if (!transposed) return x;
    std::vector<float> y(x.size());
    for (std::size_t row = 0; row < rows; ++row) {
      for (std::size_t g = 0; g < groups; ++g) y[row * groups + g] = x[g * rows + row];
    }
    return y;
  }

  // ---- bitsandbytes

  bool ReadBitsandbytes(const SafetensorsTensor& codes, const SafetensorsTensor& scales) {
    const SafetensorsTensor* state = nullptr;
    for (const CodeTable& table : kCodeTables) {
      const SafetensorsTensor* found = Take(std::string(kQuantState) + std::string(table.marker));
      if (found == nullptr) continue;
      state = found;
      m_.table = &table;
    }
    const std::optional<Json> json = state == nullptr ? std::nullopt : ObjectIn(*state);
    if (!json) {
      return Refuse(FindingKind::kUnreadable, "has no " + prefix_ + std::string(kQuantState) +
                                                  "nf4 or fp4 with a JSON object");
    }
    m_.group = SizeIn(*json, "blocksize");
    const auto shape = json->find("shape");
    if (shape != json->end() && shape->is_array() && shape->size() == 2) {
      const Json sizes = {{"rows", (*shape)[0]}, {"cols", (*shape)[1]}};
      m_.rows = SizeIn(sizes, "rows");
      m_.cols = SizeIn(sizes, "cols");
    }
    if (m_.group == 0 || m_.rows == 0 || m_.cols == 0) {
      return Refuse(FindingKind::kUnreadable,
                    "its quant_state states no blocksize, or no shape of two sizes");
    }
    const auto type = json->find("quant_type");
    if (type != json->end() && *type != std::string(m_.table->marker)) {
      Add(FindingKind::kConfig, "its quant_state states " + type->dump() + " under the name " +
                                    std::string(m_.table->marker));
    }
    ReadTable();
    if (m_.rows > 2 * codes.bytes.size() / m_.cols) {
      return RefuseGrid(codes, "weight", ShapeText({m_.rows, m_.cols}) + " takes two codes a byte");
    }
    const std::size_t n = m_.rows * m_.cols, blocks = DivideUp(n, m_.group);
    if (ElementsOf(scales) != blocks) {
      return RefuseGrid(scales, "weight.absmax",
                        ShapeText({m_.rows, m_.cols}) + " in blocks of " +
                            std::to_string(m_.group) + " has " + std::to_string(blocks));
    }
    if (scales.dtype == "U8") return ReadNested(scales, *json);
    const auto numbers = NumbersOf(scales);
    if (!numbers) return RefuseGrid(scales, "weight.absmax", "an absmax is F32");
    m_.scales = *numbers;
    return true;
  }

  void ReadTable() {
    m_.values = m_.table->values;
    const SafetensorsTensor* map = Take("weight.quant_map");
    if (map == nullptr) return;
    const auto numbers = NumbersOf(*map);
    if (!numbers || numbers->size() != m_.values.size()) {
      Add(FindingKind::kGrid, prefix_ + "weight.quant_map is " + map->dtype + " " +
                                  ShapeText(map->shape) + "; a table has 16 numbers");
      return;
    }
    for (std::size_t code = 0; code < m_.values.size(); ++code) {
      const float stored = (*numbers)[code];
      // bitsandbytes' tables for CPUs have four digits.
      if (std::fabs(stored - m_.values[code]) > 1e-4f || std::isnan(stored)) {
        Add(FindingKind::kConfig, prefix_ + "weight.quant_map is not the table of " +
                                      std::string(m_.table->name) + ": code " +
                                      std::to_string(code) + " is " + ShortestText(stored) +
                                      ", not " + ShortestText(m_.values[code]));
        break;
      }
    }
    std::copy(numbers->begin(), numbers->end(), m_.values.begin());
  }

  // scale = nested_quant_map[byte] * nested_absmax[i / blocksize] + offset
  bool ReadNested(const SafetensorsTensor& scales, const Json& json) {
    const SafetensorsTensor* absmax = Take("weight.nested_absmax");
    const SafetensorsTensor* map = Take("weight.nested_quant_map");
    const std::size_t size = SizeIn(json, "nested_blocksize");
    const auto offset = json.find("nested_offset");
    if (absmax == nullptr || map == nullptr || size == 0 || offset == json.end() ||
        !offset->is_number()) {
      return Refuse(FindingKind::kUnreadable,
                    "its absmax is U8, but nested_absmax, nested_quant_map, nested_blocksize or "
                    "nested_offset are missing");
    }
    m_.scales_dtype = "U8 nested";
    m_.bytes += absmax->bytes.size();
    const auto outer = NumbersOf(*absmax), table = NumbersOf(*map);
    const std::size_t count = DivideUp(ElementsOf(scales), size);
    if (!outer || outer->size() != count) {
      return RefuseGrid(*absmax, "weight.nested_absmax",
                        std::to_string(ElementsOf(scales)) + " scales in blocks of " +
                            std::to_string(size) + " have " + std::to_string(count));
    }
    if (!table || table->size() != 256) {
      return RefuseGrid(*map, "weight.nested_quant_map", "a table has 256 numbers");
    }
    const float add = offset->get<float>();
    m_.scales.resize(scales.bytes.size());
    for (std::size_t i = 0; i < m_.scales.size(); ++i) {
      const auto byte = static_cast<std::uint8_t>(scales.bytes.data()[i]);
      m_.scales[i] = (*table)[byte] * (*outer)[i / size] + add;
    }
    return true;
  }

  // ---- integers

  // Zeros that are packed along the rows: (groups, rows / codes a word), at `place` in a word.
  static std::vector<float> Unpacked(std::span<const std::byte> words, std::size_t rows,
                                     std::size_t groups, int bits, bool awq) {
    const auto each = static_cast<std::size_t>(32 / bits);
    std::vector<float> zeros(rows * groups);
    for (std::size_t g = 0; g < groups; ++g) {
      for (std::size_t row = 0; row < rows; ++row) {
        const std::uint32_t word = WordAt(words, g * (rows / each) + row / each);
        const std::size_t place = awq ? kAwqPlace[row % 8] : row % each;
        zeros[row * groups + g] = static_cast<float>(
            word >> (place * static_cast<std::size_t>(bits)) & ((1u << bits) - 1));
      }
    }
    return zeros;
  }

  bool ReadGptq(const SafetensorsTensor& codes, const SafetensorsTensor& scales) {
    m_.rows = scales.shape[1];
    const std::size_t groups = scales.shape[0];
    const SafetensorsTensor& zeros = *Take("qzeros");
    m_.bytes += zeros.bytes.size();
    const std::size_t bits = m_.rows == 0              ? 0
                             : zeros.shape.size() == 2 ? zeros.shape[1] * 32 / m_.rows
                                                       : 0;
    if ((bits != 4 && bits != 8) || zeros.shape[0] != groups || !IsWords(zeros) ||
        zeros.shape[1] * 32 != m_.rows * bits) {
      return RefuseGrid(zeros, "qzeros",
                        std::to_string(groups) + " groups of " + std::to_string(m_.rows) +
                            " outputs take " + ShapeText({groups, m_.rows / 8}) +
                            " words of 4 bits");
    }
    m_.bits = static_cast<int>(bits);
    m_.cols = codes.shape[0] * (32 / bits);
    if (groups == 0 || m_.cols == 0) return RefuseGrid(scales, "scales", "there are no groups");
    m_.group = DivideUp(m_.cols, groups);
    const auto numbers = NumbersOf(scales);
    if (!numbers) return RefuseGrid(scales, "scales", "scales are F16, BF16 or F32");
    m_.scales = InRows(*numbers, m_.rows, groups, true);
    m_.zeros = Unpacked(BytesOf(zeros), m_.rows, groups, m_.bits, false);
    m_.zeros_plus_one = config_.algorithm != "gptq_v2";
    if (m_.zeros_plus_one) {
      for (float& zero : m_.zeros) zero += 1;
    }
    return ReadOrder("g_idx", groups);
  }

  // The groups of the columns.
  bool ReadOrder(std::string_view suffix, std::size_t groups) {
    const SafetensorsTensor* order = Take(suffix);
    if (order == nullptr || order->bytes.size() == 0) return true;
    if (!IsWords(*order) || ElementsOf(*order) != m_.cols) {
      return RefuseGrid(*order, suffix, std::to_string(m_.cols) + " columns have a group each");
    }
    m_.group_of.resize(m_.cols);
    for (std::size_t col = 0; col < m_.cols; ++col) {
      m_.group_of[col] = WordAt(BytesOf(*order), col);
      if (m_.group_of[col] < groups) continue;
      return Refuse(FindingKind::kGrid, prefix_ + std::string(suffix) + " names group " +
                                            std::to_string(m_.group_of[col]) + " of " +
                                            std::to_string(groups));
    }
    return true;
  }

  bool ReadAwq(const SafetensorsTensor& codes, const SafetensorsTensor& scales) {
    m_.rows = scales.shape[1];
    m_.cols = codes.shape[0];
    const std::size_t groups = scales.shape[0];
    const SafetensorsTensor& zeros = *Take("qzeros");
    m_.bytes += zeros.bytes.size();
    if (groups == 0 || m_.cols == 0) return RefuseGrid(scales, "scales", "there are no groups");
    if (!IsWords(zeros) || zeros.shape != std::vector{groups, m_.rows / 8}) {
      return RefuseGrid(zeros, "qzeros",
                        std::to_string(groups) + " groups of " + std::to_string(m_.rows) +
                            " outputs take " + ShapeText({groups, m_.rows / 8}) + " words");
    }
    m_.group = DivideUp(m_.cols, groups);
    const auto numbers = NumbersOf(scales);
    if (!numbers) return RefuseGrid(scales, "scales", "scales are F16, BF16 or F32");
    m_.scales = InRows(*numbers, m_.rows, groups, true);
    m_.zeros = Unpacked(BytesOf(zeros), m_.rows, groups, 4, true);
    return true;
  }

  // Sets bits by the words of a row, and the group by the scales of a row.
  bool ReadWords(const SafetensorsTensor& codes, const SafetensorsTensor& scales,
                 std::string_view codes_name, std::string_view scales_name) {
    const std::size_t words = codes.shape[1];
    m_.bits = 0;
    for (const int bits : {4, 8, 2}) {
      if (DivideUp(m_.cols * static_cast<std::size_t>(bits), std::size_t{32}) != words) continue;
      m_.bits = bits;
      break;
    }
    if (m_.bits == 0 || codes.shape[0] != m_.rows) {
      return RefuseGrid(codes, codes_name,
                        ShapeText({m_.rows, m_.cols}) + " of 4 bits takes " +
                            ShapeText({m_.rows, DivideUp(m_.cols, std::size_t{8})}) + " words");
    }
    const std::size_t count = ElementsOf(scales);
    if (count == 0 || m_.rows == 0 || count % m_.rows != 0 || count / m_.rows > m_.cols) {
      return RefuseGrid(scales, scales_name,
                        "a row of " + std::to_string(m_.cols) + " columns has a scale a group");
    }
    m_.group = DivideUp(m_.cols, count / m_.rows);
    const auto numbers = NumbersOf(scales);
    if (!numbers) return RefuseGrid(scales, scales_name, "scales are F16, BF16 or F32");
    m_.scales = *numbers;
    return true;
  }

  bool ReadPacked(const SafetensorsTensor& codes, const SafetensorsTensor& scales) {
    const SafetensorsTensor& shape = *Take("weight_shape");
    std::size_t sizes[2] = {};
    const bool wide = shape.dtype == "I64";
    if (ElementsOf(shape) != 2 || (!wide && shape.dtype != "I32")) {
      return RefuseGrid(shape, "weight_shape", "a shape is two numbers of I64");
    }
    for (std::size_t i = 0; i < 2; ++i) {
      std::int64_t size = 0;
      if (wide) {
        std::memcpy(&size, shape.bytes.data() + i * sizeof size, sizeof size);
      } else {
        size = static_cast<std::int32_t>(WordAt(BytesOf(shape), i));
      }
      if (size < 1 || size > std::numeric_limits<std::int32_t>::max()) {
        return Refuse(FindingKind::kGrid,
                      prefix_ + "weight_shape has the size " + std::to_string(size));
      }
      sizes[i] = static_cast<std::size_t>(size);
    }
    m_.rows = sizes[0];
    m_.cols = sizes[1];
    if (!ReadWords(codes, scales, "weight_packed", "weight_scale")) return false;
    const std::size_t groups = m_.scales.size() / m_.rows;
    m_.zeros.assign(m_.scales.size(), static_cast<float>(1 << (m_.bits - 1)));
    if (const SafetensorsTensor* zeros = Take("weight_zero_point")) {
      const auto each = static_cast<std::size_t>(32 / m_.bits);
      if (!IsWords(*zeros) || ElementsOf(*zeros) != DivideUp(m_.rows, each) * groups) {
        return RefuseGrid(*zeros, "weight_zero_point",
                          ShapeText({m_.rows, groups}) + " zeros take " +
                              ShapeText({DivideUp(m_.rows, each), groups}) + " words");
      }
      m_.bytes += zeros->bytes.size();
      for (std::size_t row = 0; row < m_.rows; ++row) {
        for (std::size_t g = 0; g < groups; ++g) {
          const std::uint32_t word = WordAt(BytesOf(*zeros), row / each * groups + g);
          m_.zeros[row * groups + g] = static_cast<float>(
              word >> (row % each * static_cast<std::size_t>(m_.bits)) & ((1u << m_.bits) - 1));
        }
      }
    }
    return ReadOrder("weight_g_idx", groups);
  }

  bool ReadMlx(const SafetensorsTensor& codes, const SafetensorsTensor& scales) {
    const SafetensorsTensor& biases = *Take("biases");
    m_.bytes += biases.bytes.size();
    if (scales.shape.size() != 2 || biases.shape != scales.shape || scales.shape[1] == 0) {
      return RefuseGrid(biases, "biases", "the scales are " + ShapeText(scales.shape));
    }
    m_.rows = codes.shape[0];
    // Bits and the group are in the configuration; 4 bits where it does not say.
    const auto group = static_cast<std::size_t>(config_.group_size);
    m_.cols = group > 0 ? group * scales.shape[1] : codes.shape[1] * 8;
    if (!ReadWords(codes, scales, "weight", "scales")) return false;
    const auto numbers = NumbersOf(biases);
    if (!numbers) return RefuseGrid(biases, "biases", "biases are F16, BF16 or F32");
    m_.biases = *numbers;
    return true;
  }

  const SafetensorsFile& file_;
  const QuantizationConfig& config_;
  std::string prefix_;
  GroupMatrix m_;
};

// Whether the tensors of a prefix are a matrix of this naming.
bool Fits(const SafetensorsFile& file, const std::string& prefix, const GroupNaming& naming) {
  const SafetensorsTensor* codes = Find(file, prefix + std::string(naming.codes));
  const SafetensorsTensor* scales = Find(file, prefix + std::string(naming.scales));
  if (codes == nullptr || scales == nullptr) return false;
  if (Find(file, prefix + std::string(naming.marker)) == nullptr) return false;
  if (naming.packing == GroupPacking::kNibbles) return true;
  if (!IsWords(*codes) || codes->shape.size() != 2) return false;
  if (naming.packing == GroupPacking::kWords) return true;
  if (scales->shape.size() != 2) return false;
  const std::size_t codes_cols = codes->shape[1], outputs = scales->shape[1];
  return naming.packing == GroupPacking::kDown ? codes_cols == outputs : codes_cols * 8 == outputs;
}

}  // namespace

std::size_t GroupMatrix::Groups() const {
  return naming->packing == GroupPacking::kNibbles || rows == 0 ? scales.size()
                                                                : scales.size() / rows;
}

std::uint32_t GroupMatrix::Code(std::size_t row, std::size_t col) const {
  const auto each = static_cast<std::size_t>(32 / bits);
  const auto size = static_cast<std::size_t>(bits);
  const std::uint32_t mask = (1u << bits) - 1;
  switch (naming->packing) {
    case GroupPacking::kNibbles: {
      const std::size_t at = row * cols + col;
      const auto byte = static_cast<std::uint32_t>(codes[at / 2]);
      return at % 2 == 0 ? byte >> 4 : byte & 15u;
    }
    case GroupPacking::kWords:
      return WordAt(codes, row * DivideUp(cols * size, std::size_t{32}) + col / each) >>
                 (col % each * size) &
             mask;
    case GroupPacking::kDown:
      return WordAt(codes, col / each * rows + row) >> (col % each * size) & mask;
    case GroupPacking::kAwq:
      return WordAt(codes, col * (rows / 8) + row / 8) >> (kAwqPlace[row % 8] * 4) & mask;
  }
  return 0;
}

std::size_t GroupMatrix::GroupAt(std::size_t row, std::size_t col) const {
  if (naming->packing == GroupPacking::kNibbles) return (row * cols + col) / group;
  return row * Groups() + (group_of.empty() ? col / group : group_of[col]);
}

float GroupMatrix::Value(std::uint32_t code, std::size_t group_at, float zero_shift) const {
  const IeeeArithmetic ieee;
  if (table != nullptr) return values[code & 15u] * scales[group_at];
  const auto number = static_cast<float>(code);
  if (!biases.empty()) return number * scales[group_at] + biases[group_at];
  return (number - (zeros[group_at] + zero_shift)) * scales[group_at];
}

std::vector<GroupEntry> ListGroupMatrices(const ModelFiles& checkpoint) {
  std::vector<GroupEntry> entries;
  for (const auto& [name, tensor] : checkpoint.tensors.tensors) {
    for (const GroupNaming& naming : kGroupNamings) {
      if (!name.ends_with(naming.codes)) continue;
      const std::string prefix = name.substr(0, name.size() - naming.codes.size());
      if (!prefix.empty() && prefix.back() != '.') continue;
      if (!Fits(checkpoint.tensors, prefix, naming)) continue;
      entries.push_back({prefix.empty() ? "" : prefix.substr(0, prefix.size() - 1), &naming});
      break;
    }
  }
  return entries;
}

GroupMatrix ReadGroupMatrix(const ModelFiles& checkpoint, const GroupEntry& entry) {
  const IeeeArithmetic ieee;
  return Reader(checkpoint, entry).Read();
}

}  // namespace fp4lab
