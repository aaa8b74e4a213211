// The 4-bit tensors of .gguf files, whose blocks hold scales and codes one after the other.
#include "fp4lab/checkpoint/gguf.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/checkpoint/judge_matrix.h"
#include "fp4lab/exchange/vendors/vendor.h"

namespace fp4lab {
namespace {

struct GgufBlock {
  std::uint32_t type;
  FormatId scale;
  std::size_t block_cols, scales, codes;  // the bytes of scales, then those of codes
};
constexpr GgufBlock kBlocks[] = {{kGgmlMxfp4, FormatId::kE8M0, 32, 1, 16},
                                 {kGgmlNvfp4, FormatId::kE4M3, 16, 4, 32}};

struct Scan {
  std::array<std::size_t, 256> scales = {};
  CodeScan codes;
  std::size_t dead = 0;
};

Scan ScanBlocks(std::span<const std::byte> bytes, const GgufBlock& b) {
  Scan scan;
  const auto* at = reinterpret_cast<const std::uint8_t*>(bytes.data());
  const std::size_t size = b.scales + b.codes, each = b.codes / b.scales;
  for (std::size_t i = 0; i + size <= bytes.size(); i += size) {
    for (std::size_t s = 0; s < b.scales; ++s) {
      const std::uint8_t scale = at[i + s];
      ++scan.scales[scale];
      std::uint8_t any = 0, all = 0xFF;
      for (std::size_t c = 0; c < each; ++c) {
        const std::uint8_t code = at[i + b.scales + s * each + c];
        any = static_cast<std::uint8_t>(any | code);
        all = static_cast<std::uint8_t>(all & code);
      }
      scan.codes.any = static_cast<std::uint8_t>(scan.codes.any | any);
      scan.codes.all = static_cast<std::uint8_t>(scan.codes.all & all);
      if (scale == 0 && (any & 0x77) != 0) ++scan.dead;
    }
  }
  return scan;
}

Scan ScanAll(const Streamed& s, const GgufBlock& b) {
  const std::size_t size = b.scales + b.codes, piece = size * 65536;
  std::vector<Scan> parts(DivideUp(s.bytes.size(), piece));
  ParallelFor(parts.size(), [&](std::size_t i) {
    const auto bytes = s.bytes.subspan(i * piece, std::min(piece, s.bytes.size() - i * piece));
    if (s.content != nullptr) s.content->Populate(bytes);
    parts[i] = ScanBlocks(bytes, b);
    if (s.content != nullptr) s.content->Forget(bytes);
  });
  Scan all;
  for (const Scan& part : parts) {
    for (std::size_t i = 0; i < 256; ++i) all.scales[i] += part.scales[i];
    all.codes.any = static_cast<std::uint8_t>(all.codes.any | part.codes.any);
    all.codes.all = static_cast<std::uint8_t>(all.codes.all & part.codes.all);
    all.dead += part.dead;
  }
  return all;
}

std::vector<float> NumbersAt(const GgufFile& file, const std::string& name) {
  const auto found = file.tensors.find(name);
  if (found == file.tensors.end() || found->second.type != kGgmlF32) return {};
  std::vector<float> numbers(found->second.bytes.size() / sizeof(float));
  if (!numbers.empty()) {
    std::memcpy(numbers.data(), found->second.bytes.data(), numbers.size() * sizeof(float));
  }
  return numbers;
}

std::size_t CountMatrices(const ModelFiles& checkpoint) {
  std::size_t count = 0;
  for (const auto& [shard, file] : checkpoint.ggufs) count += ListGgufMatrices(file).size();
  return count;
}

}  // namespace

void CheckGguf(const ModelFiles& checkpoint, const CheckpointOptions& options,
               const References& references, CheckReport* report, std::size_t* done,
               std::size_t all) {
  const IeeeArithmetic ieee;
  const bool only = report->matrices.empty() && CountMatrices(checkpoint) == 1;
  for (const auto& [shard, file] : checkpoint.ggufs) {
    for (const auto& [name, tensor] : file.tensors) {
      const auto block = std::ranges::find(kBlocks, tensor.type, &GgufBlock::type);
      if (block == std::end(kBlocks) || tensor.shape.empty() || tensor.bytes.empty()) continue;
      CheckedMatrix m;
      const bool is_weight = name.ends_with(".weight");
      m.name = is_weight ? name.substr(0, name.size() - 7) : name;
      m.naming = "gguf";
      m.shards = {checkpoint.shards[shard].name};
      m.bytes = tensor.bytes.size();
      Reading& r = m.reading;
      r.codes = CodeOrder::kSplitHalves;
      r.scale = block->scale;
      r.block_cols = block->block_cols;
      r.cols = tensor.shape.back();
      r.rows = tensor.shape.size() > 1 ? tensor.shape[tensor.shape.size() - 2] : 1;
      for (std::size_t i = 0; i + 2 < tensor.shape.size(); ++i) r.parts *= tensor.shape[i];
      r.scale_rows = r.stored_rows = r.rows;
      r.scale_cols = r.stored_cols = DivideUp(r.cols, r.block_cols);
      m.formula = FormulaName(r);
      m.scales = block->scale == FormatId::kE8M0 ? "E8M0" : "E4M3";
      for (const std::string& scale : {m.name + ".scale", name + ".scale"}) {
        if (m.tensor_scale.empty()) m.tensor_scale = NumbersAt(file, scale);
      }
      if (!m.tensor_scale.empty()) m.convention = TensorScaleConvention::kMultiplier;
      m.input_scale = NumbersAt(file, m.name + ".input_scale");
      const std::span<const std::byte> bytes(tensor.bytes.data(), tensor.bytes.size());
      const Scan scan = ScanAll({bytes, checkpoint.ContentOf(bytes)}, *block);
      JudgeCodes(scan.codes, &m, &report->findings);
      JudgeScales(JudgeBytes(scan.scales, r.scale), scan.dead, &m, &report->findings);
      // Without a number the scales of a tensor are usually far below their largest value; where
      // they reach it, they were computed for a tensor scale.
      const bool aims_at_448 = r.scale == FormatId::kE4M3 && scan.scales[0x7E] > 0;
      JudgeNumbers(aims_at_448, m.name + ".scale", &m, &report->findings);
      if (references.original != nullptr || references.values != nullptr) {
        const StoredMatrix stored = ReadGgufMatrix(file, name, checkpoint.shards[shard].name);
        JudgeReferences(
            references,
            {std::as_bytes(std::span(stored.codes)), std::as_bytes(std::span(stored.scales)), "U8"},
            only, &m, &report->findings);
      }
      *done += m.bytes;
      if (options.progress) options.progress(*done, all);
      report->matrices.push_back(std::move(m));
    }
  }
}

}  // namespace fp4lab
