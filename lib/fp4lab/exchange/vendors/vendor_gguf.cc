#include <cstring>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/exchange/vendors/vendor.h"

namespace fp4lab {
namespace {

constexpr std::string_view kWeight = "weight", kScale = "scale";

// A block of a GGUF type: `scales` bytes of scales, then `codes` bytes of codes in split halves.
struct BlockBytes {
  std::uint32_t type;
  FormatId scale;
  int block_cols;
  std::size_t elements, scales, codes;
};
constexpr BlockBytes kBlocks[] = {
    {kGgmlMxfp4, FormatId::kE8M0, 32, 32, 1, 16},
    {kGgmlNvfp4, FormatId::kE4M3, 16, 64, 4, 32},
};

const BlockBytes* FindBlock(std::uint32_t type) {
  for (const BlockBytes& b : kBlocks) {
    if (b.type == type) return &b;
  }
  return nullptr;
}

// The tensor-scale tensor of "x.weight": "x.scale", or "x.weight.scale", which some writers use.
const GgufTensor* FindScale(const GgufFile& file, const std::string& name) {
  const bool is_weight = std::string_view(name).ends_with(kWeight);
  const std::string stem = is_weight ? name.substr(0, name.size() - kWeight.size()) : name + ".";
  for (const std::string& candidate :
       {stem + std::string(kScale), name + "." + std::string(kScale)}) {
    const auto found = file.tensors.find(candidate);
    if (found != file.tensors.end()) return &found->second;
  }
  return nullptr;
}

void SetTensorScale(const GgufFile& file, const std::string& name, const GgufTensor& tensor,
                    const std::string& where, StoredMatrix* m) {
  const GgufTensor* scale = FindScale(file, name);
  m->layout.tensor_scale =
      scale == nullptr ? TensorScaleConvention::kNone : TensorScaleConvention::kMultiplier;
  if (scale == nullptr) return;
  if (scale->type != kGgmlF32) throw Error(where, "its tensor scale must be F32");
  std::vector<float> numbers(scale->bytes.size() / sizeof(float));
  if (!numbers.empty()) std::memcpy(numbers.data(), scale->bytes.data(), scale->bytes.size());
  const std::size_t experts = tensor.shape.size() > 2 ? tensor.shape.front() : 1;
  if (numbers.size() != 1 && (numbers.size() != experts || experts == 0)) {
    throw Error(where, "has " + std::to_string(numbers.size()) + " tensor scales; 1" +
                           (experts > 1 ? " or " + std::to_string(experts) : "") + " fit");
  }
  if (numbers.size() == 1) {
    m->tensor_scale = numbers;
    return;
  }
  for (std::size_t r = 0; r < m->rows; ++r)
    m->tensor_scale.push_back(numbers[r / (m->rows / experts)]);
}

}  // namespace

std::vector<std::string> ListGgufMatrices(const GgufFile& file) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : file.tensors) {
    if (FindBlock(tensor.type) != nullptr) names.push_back(name);
  }
  return names;
}

StoredMatrix ReadGgufMatrix(const GgufFile& file, const std::string& name,
                            std::string_view where_view) {
  const IeeeArithmetic ieee;
  const std::string where = std::string(where_view) + "#" + name;
  const auto found = file.tensors.find(name);
  if (found == file.tensors.end()) throw Error(where_view, "has no tensor " + name);
  const GgufTensor& tensor = found->second;
  const BlockBytes* block = FindBlock(tensor.type);
  if (block == nullptr)
    throw Error(where, "its type has no 4-bit floats: only MXFP4 and NVFP4 can be read");
  StoredMatrix m;
  m.scale = block->scale;
  m.block_cols = block->block_cols;
  m.cols = tensor.shape.back();
  m.layout.codes = CodeOrder::kSplitHalves;
  const std::size_t size = block->scales + block->codes;
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(tensor.bytes.data());
  for (std::size_t at = 0; at < tensor.bytes.size(); at += size) {
    m.scales.insert(m.scales.end(), bytes + at, bytes + at + block->scales);
    m.codes.insert(m.codes.end(), bytes + at + block->scales, bytes + at + size);
  }
  m.rows = m.cols == 0 ? 0 : m.codes.size() * 2 / m.cols;
  SetTensorScale(file, name, tensor, where, &m);
  return m;
}

void AddGgufMatrix(const StoredMatrix& stored, const std::string& name, float scale_max,
                   GgufFile* file) {
  const IeeeArithmetic ieee;
  const std::string where = "gguf";
  const BlockBytes* block = nullptr;
  for (const BlockBytes& b : kBlocks) {
    const bool bytes = stored.layout.scale_type == ScaleType::kByte && stored.scale == b.scale;
    if (bytes && stored.block_cols == b.block_cols) block = &b;
  }
  if (block == nullptr || stored.element != FormatId::kE2M1) {
    throw Error(where,
                "holds 4-bit floats in 1x16 blocks with E4M3 or 1x32 blocks with E8M0 scales");
  }
  if (stored.cols % block->elements != 0 || stored.cols == 0) {
    throw Error(where, "rows of " + std::to_string(stored.cols) + " elements; multiples of " +
                           std::to_string(block->elements) + " can be written");
  }
  const StorageLayout layout{.codes = CodeOrder::kSplitHalves,
                             .tensor_scale = stored.tensor_scale.empty()
                                                 ? TensorScaleConvention::kNone
                                                 : TensorScaleConvention::kMultiplier};
  const StoredMatrix m = Convert(WithRowBlocks(stored, scale_max, where), layout, scale_max, where);
  if (m.tensor_scale.size() > 1)
    throw Error(where, "holds one tensor scale per tensor, not one per row");
  std::vector<std::byte> bytes;
  const auto scales = std::as_bytes(std::span(m.scales)), codes = std::as_bytes(std::span(m.codes));
  for (std::size_t i = 0; i < m.codes.size() / block->codes; ++i) {
    const auto s = scales.subspan(i * block->scales, block->scales);
    const auto c = codes.subspan(i * block->codes, block->codes);
    bytes.insert(bytes.end(), s.begin(), s.end());
    bytes.insert(bytes.end(), c.begin(), c.end());
  }
  const std::string stem = name.empty() ? "" : name + ".";
  file->tensors[stem + std::string(kWeight)] = {block->type, {m.rows, m.cols}, std::move(bytes)};
  if (m.tensor_scale.empty()) return;
  const auto number = std::as_bytes(std::span(m.tensor_scale));
  file->tensors[stem + std::string(kScale)] = {kGgmlF32, {1}, {number.begin(), number.end()}};
}

}  // namespace fp4lab
