#include "fp4lab/judge/attention/attention_file.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/exchange/matrix_file.h"
#include "fp4lab/exchange/number_type.h"
#include "fp4lab/io/tensors/safetensors.h"
#include "fp4lab/judge/products/gemm_file.h"
#include "fp4lab/judge/products/product_folder.h"

namespace fp4lab {
namespace {

// One of Q, K and V as its file has it.
struct AttentionSource {
  Matrix<float> numbers = {};  // empty if `stored`
  std::optional<GemmOperandFile> stored = {};
  std::size_t heads = 1;  // by its shape
  std::size_t rows = 0, cols = 0;

  // Takes the scales, row by row in the file, for scales in `order`.
  void ReadScalesAs(const ByteOrder& order, const std::string& place) {
    if (!stored || !stored->operand.IsScaled()) {
      throw Error(place, "has no block scales, whose order of bytes is stated");
    }
    MmaOperand& x = stored->operand;
    x.scales = FromByteOrder(x.scales, order, x.rows, x.ScaleCols(), place);
  }
};

AttentionSource ReadSource(const std::string& place) {
  AttentionSource source;
  if (HoldsStored(place)) {
    source.stored = ReadGemmOperand(place);
    source.rows = source.stored->operand.rows;
    source.cols = source.stored->operand.cols;
    return source;
  }
  NumberFile file = ReadMatrix(place);
  source.numbers = std::move(file.values);
  source.rows = source.numbers.rows;
  source.cols = source.numbers.cols;
  for (std::size_t i = 0; i + 2 < file.shape.size(); ++i) source.heads *= file.shape[i];
  return source;
}

// The rows of a quantized matrix as an operand a head.
std::vector<AttentionOperand> HeadsOfStored(const GemmOperandFile& file, std::size_t heads) {
  const MmaOperand& all = file.operand;
  const std::size_t rows = all.rows / heads;
  // A file with a single tensor scale: amax / C.
  const double most = MaxFinite(FormatId::kE4M3);
  const double constant = all.IsScaled() ? most * 6.0 : most;
  std::vector<AttentionOperand> operands;
  for (std::size_t h = 0; h < heads; ++h) {
    AttentionOperand x;
    x.codes = all;
    x.codes.rows = rows;
    const auto part = [&](auto& values, std::size_t cols) {
      const auto first = values.begin() + static_cast<std::ptrdiff_t>(h * rows * cols);
      values = {first, first + static_cast<std::ptrdiff_t>(rows * cols)};
    };
    part(x.codes.codes, all.cols);
    part(x.codes.scales, all.ScaleCols());
    if (file.amax) x.decode.assign(rows, *file.amax / constant);
    operands.push_back(std::move(x));
  }
  return operands;
}

void RefuseMean(bool subtracts, const AttentionSource& source, const std::string& place,
                const AttentionScheme& scheme) {
  if (!subtracts || !source.stored) return;
  throw Error(place, "is quantized, but " + std::string(scheme.name) +
                         " subtracts a mean before: give plain numbers");
}

Matrix<float> NumbersOrZeros(AttentionSource& source, std::size_t rows, std::size_t cols) {
  return source.stored ? Matrix<float>(rows, cols) : std::move(source.numbers);
}

void AddHeads(const std::vector<AttentionOperand>& heads, const std::string& name,
              SafetensorsFile* file) {
  std::vector<float> decode;
  for (std::size_t h = 0; h < heads.size(); ++h) {
    AddOperand(heads[h].codes, name + "." + std::to_string(h), file);
    for (std::size_t r = 0; r < heads[h].codes.rows; ++r) {
      decode.push_back(heads[h].decode.empty() ? 1.0f : static_cast<float>(heads[h].decode[r]));
    }
  }
  file->tensors["decode." + name] = FloatTensor({heads.size(), heads[0].codes.rows}, decode);
}

SafetensorsTensor Bf16Tensor(const Matrix<float>& x, std::size_t heads) {
  const NumberType type{NumberType::Kind::kFormat, FormatId::kBF16};
  return {std::string(SafetensorsName(type)),
          {heads, x.rows / heads, x.cols},
          EncodeNumbers(type, x.values)};
}

}  // namespace

AttentionPlan ReadAttention(const AttentionFiles& files, const AttentionScheme& scheme) {
  const IeeeArithmetic ieee;
  AttentionSource q = ReadSource(files.q), k = ReadSource(files.k), v = ReadSource(files.v);
  if (files.v_scales) v.ReadScalesAs(*files.v_scales, files.v);
  RefuseMean(scheme.q_mean_rows > 0, q, files.q, scheme);
  RefuseMean(scheme.k_mean, k, files.k, scheme);
  AttentionInputs in{.heads = files.heads.value_or(q.heads),
                     .kv_heads = files.kv_heads.value_or(std::max(k.heads, v.heads)),
                     .scale = files.scale,
                     .causal = files.causal,
                     .output = files.output};
  const bool v_turned = v.stored && scheme.v_along_keys;
  std::size_t v_rows = v.rows, v_cols = v.cols;
  if (v_turned) {
    if (in.kv_heads == 0 || v.rows % in.kv_heads != 0) {
      throw Error(files.v, "has " + std::to_string(v.rows) + " rows for " +
                               std::to_string(in.kv_heads) +
                               " heads: V along the keys is (heads * channels, keys)");
    }
    v_rows = v.cols * in.kv_heads;
    v_cols = v.rows / in.kv_heads;
  }
  in.q = NumbersOrZeros(q, q.rows, q.cols);
  in.k = NumbersOrZeros(k, k.rows, k.cols);
  in.v = NumbersOrZeros(v, v_rows, v_cols);
  CheckAttention(in, scheme, files.q);
  AttentionPlan plan = PlanOf(in, scheme);
  if (q.stored) plan.q = HeadsOfStored(*q.stored, in.heads);
  if (k.stored) plan.k = HeadsOfStored(*k.stored, in.kv_heads);
  if (v.stored) plan.v = HeadsOfStored(*v.stored, in.kv_heads);
  plan.operands_given = q.stored || k.stored || v.stored;
  return plan;
}

Json DescriptionOf(const AttentionPlan& plan) {
  const IeeeArithmetic ieee;
  return {{"scheme", plan.scheme.name},   {"heads", plan.in.heads},
          {"kv_heads", plan.in.kv_heads}, {"queries", plan.in.Queries()},
          {"keys", plan.in.Keys()},       {"channels", plan.in.q.cols},
          {"scale", plan.scale},          {"causal", plan.causal},
          {"output", Name(plan.output)},  {"operands_given", plan.operands_given}};
}

void WriteDirectedCases(std::span<const AttentionCase> cases, const std::filesystem::path& folder) {
  const IeeeArithmetic ieee;
  for (const AttentionCase& c : cases) {
    SafetensorsFile file;
    if (c.plan.operands_given) {
      AddHeads(c.plan.q, "q", &file);
      AddHeads(c.plan.k, "k", &file);
      AddHeads(c.plan.v, "v", &file);
    } else {
      file.tensors["q"] = Bf16Tensor(c.plan.in.q, c.plan.in.heads);
      file.tensors["k"] = Bf16Tensor(c.plan.in.k, c.plan.in.kv_heads);
      file.tensors["v"] = Bf16Tensor(c.plan.in.v, c.plan.in.kv_heads);
    }
    file.metadata["case"] = c.name;
    file.metadata["attention"] = DescriptionOf(c.plan).dump();
    WriteSafetensors(folder / (std::string(c.name) + ".safetensors"), file);
  }
}

}  // namespace fp4lab
