// Cases and answers as files in a folder.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <span>
#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/exchange/matrix_file.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/file_content.h"
#include "fp4lab/io/renamed_key.h"
#include "fp4lab/io/tensors/npy.h"
#include "fp4lab/io/tensors/safetensors.h"
#include "fp4lab/judge/cases/bf16_bits.h"
#include "fp4lab/judge/cases/case_stream.h"

namespace fp4lab {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kInputSuffix = ".x.npy";
constexpr std::string_view kKept = "kept.json";
constexpr std::string_view kRandomSuffix = ".random.npy";
constexpr std::string_view kCodesSuffix = ".codes.npy", kScalesSuffix = ".scales.npy",
                           kTensorScaleSuffix = ".tensor_scale.npy",
                           kOldTensorScaleSuffix = ".level_two.npy";

std::string Numbered(std::size_t index, std::string_view suffix) {
  char digits[24];
  std::snprintf(digits, sizeof digits, "%04zu", index);
  return digits + std::string(suffix);
}

void WriteAsSafetensors(const Case& c, std::size_t index, bool bf16, const fs::path& folder) {
  const std::vector<std::size_t> shape = {c.x.rows, c.x.cols};
  SafetensorsFile file;
  file.tensors["x"] = bf16 ? SafetensorsTensor{"BF16", shape, BytesOf(Bf16Bits(c.x))}
                           : SafetensorsTensor{"F32", shape, BytesOf(c.x.values)};
  if (!c.random.empty()) file.tensors["random"] = {"U16", shape, BytesOf(c.random)};
  file.metadata = {{"name", c.name}};
  WriteSafetensors(folder / Numbered(index, ".safetensors"), file);
}

void WriteAsNpy(const Case& c, std::size_t index, bool bf16, const fs::path& folder) {
  const std::vector<std::size_t> shape = {c.x.rows, c.x.cols};
  const fs::path path = folder / Numbered(index, kInputSuffix);
  if (bf16) {
    WriteNpy(path, MakeNpyArray<std::uint16_t>(shape, Bf16Bits(c.x)));
  } else {
    WriteNpy(path, MakeNpyArray<float>(shape, c.x.values));
  }
  if (c.random.empty()) return;
  WriteNpy(folder / Numbered(index, kRandomSuffix), MakeNpyArray<std::uint16_t>(shape, c.random));
}

std::vector<std::uint8_t> TensorBytes(const SafetensorsFile& file, const char* name) {
  const auto at = file.tensors.find(name);
  if (at == file.tensors.end()) return {};
  std::vector<std::uint8_t> bytes(at->second.bytes.size());
  std::memcpy(bytes.data(), at->second.bytes.data(), bytes.size());
  return bytes;
}

std::vector<std::size_t> TensorShape(const SafetensorsFile& file, const char* name) {
  const auto at = file.tensors.find(name);
  return at == file.tensors.end() ? std::vector<std::size_t>{} : at->second.shape;
}

std::vector<float> Floats(const SafetensorsFile& file, const std::string& name,
                          const std::string& where) {
  const auto at = file.tensors.find(name);
  if (at == file.tensors.end()) return {};
  if (at->second.dtype != "F32") {
    throw Error(where + "#" + name, "is " + at->second.dtype + "; tensor scales are F32");
  }
  std::vector<float> values(at->second.bytes.size() / sizeof(float));
  std::memcpy(values.data(), at->second.bytes.data(), values.size() * sizeof(float));
  return values;
}

std::optional<NpyArray> NpyIfThere(const fs::path& path) {
  if (!Exists(path)) return std::nullopt;
  return ReadNpy(path);
}

}  // namespace

void WriteCaseFolder(const Dialect& dialect, const CaseOptions& options,
                     const std::vector<Case>& cases, const fs::path& folder, bool safetensors) {
  const IeeeArithmetic ieee;
  Json list = Json::array();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Case& c = cases[i];
    safetensors ? WriteAsSafetensors(c, i, options.bf16_only, folder)
                : WriteAsNpy(c, i, options.bf16_only, folder);
    list.push_back({{"index", i},
                    {"name", c.name},
                    {"family", c.family},
                    {"rows", c.x.rows},
                    {"cols", c.x.cols}});
  }
  const Json index = {{"dialect", dialect.name},
                      {"level", options.level == CaseLevel::kQuick ? "quick" : "thorough"},
                      {"seed", options.seed},
                      {"dtype", options.bf16_only ? "bf16" : "fp32"},
                      {"cases", std::move(list)}};
  WriteFileAtomically(folder / "cases.json", index.dump(1) + "\n");
}

std::optional<CaseAnswer> ReadCaseAnswer(const fs::path& folder, std::size_t index) {
  const IeeeArithmetic ieee;
  CaseAnswer answer{.index = static_cast<std::uint32_t>(index)};
  const fs::path whole = folder / Numbered(index, ".safetensors");
  if (Exists(whole)) {
    const FileContent content(whole);
    const SafetensorsFile file = ViewSafetensors(content.bytes(), whole.string());
    answer.codes = TensorBytes(file, "codes");
    answer.scales = TensorBytes(file, "scales");
    answer.codes_shape = TensorShape(file, "codes");
    answer.scales_shape = TensorShape(file, "scales");
    const std::string old_name(kOldTensorScale);
    answer.tensor_scale =
        Floats(file, file.tensors.contains(old_name) ? old_name : "tensor_scale", whole.string());
    return answer;
  }
  const std::optional<NpyArray> codes = NpyIfThere(folder / Numbered(index, kCodesSuffix));
  const std::optional<NpyArray> scales = NpyIfThere(folder / Numbered(index, kScalesSuffix));
  std::optional<NpyArray> numbers = NpyIfThere(folder / Numbered(index, kTensorScaleSuffix));
  if (!numbers) numbers = NpyIfThere(folder / Numbered(index, kOldTensorScaleSuffix));
  if (!codes && !scales && !numbers) return std::nullopt;
  const auto take = [](const std::optional<NpyArray>& from, auto* to) {
    using T = typename std::remove_pointer_t<decltype(to)>::value_type;
    if (!from) return;
    const std::span<const T> values = from->As<T>();
    to->assign(values.begin(), values.end());
  };
  take(codes, &answer.codes);
  if (scales) {  // bytes, or numbers of any type
    answer.scales.resize(scales->bytes.size());
    std::memcpy(answer.scales.data(), scales->bytes.data(), answer.scales.size());
  }
  if (codes) answer.codes_shape = codes->shape;
  if (scales) answer.scales_shape = scales->shape;
  take(numbers, &answer.tensor_scale);
  return answer;
}

StoredMatrix StoredAnswer(StoredMatrix shape, const CaseAnswer& answer) {
  const IeeeArithmetic ieee;
  shape.codes = answer.codes;
  shape.scales = answer.scales;
  shape.tensor_scale = answer.tensor_scale;
  return shape;
}

void WriteAnsweredCase(const Case& c, const CaseAnswer& answer, const fs::path& folder) {
  const IeeeArithmetic ieee;
  WriteAsNpy(c, answer.index, /*bf16=*/false, folder);
  const auto write = [&](std::string_view suffix, const auto& values) {
    using T = typename std::remove_cvref_t<decltype(values)>::value_type;
    WriteNpy(folder / Numbered(answer.index, suffix),
             MakeNpyArray<T>({values.size()}, std::span<const T>(values)));
  };
  write(kCodesSuffix, answer.codes);
  write(kScalesSuffix, answer.scales);
  write(kTensorScaleSuffix, answer.tensor_scale);
}

namespace {

// The numbers of the files NNNN.x.npy in a folder, in no order.
std::vector<std::size_t> NumberedInputs(const fs::path& folder, std::error_code* error) {
  std::vector<std::size_t> indices;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, *error)) {
    const std::string name = entry.path().filename().string();
    std::size_t index = 0;
    std::from_chars(name.data(), name.data() + name.size(), index);
    if (name == Numbered(index, kInputSuffix)) indices.push_back(index);
  }
  return indices;
}

}  // namespace

KeptCases::KeptCases(fs::path folder, const Dialect& dialect, const StorageLayout& layout,
                     std::span<const float> amax)
    : folder_(std::move(folder)),
      kept_({{"dialect", dialect.name},
             {"codes_order", Name(layout.codes)},
             {"scales_order", Named(layout.scales).name},
             {"transposed", layout.transposed},
             {"expanded_scales", layout.expanded_scales},
             {"scales_type", Named(layout.scale_type).name},
             {"tensor_scale_is", Name(layout.tensor_scale)}}) {
  const IeeeArithmetic ieee;
  if (!amax.empty()) kept_["amax"] = std::vector<double>(amax.begin(), amax.end());
  if (folder_.empty() || !Exists(folder_)) return;
  std::error_code error;
  const std::vector<std::size_t> old = NumberedInputs(folder_, &error);
  const bool is_ours = Exists(folder_ / kKept);
  if (!error && !old.empty() && !is_ours) {
    throw Error(folder_.string(),
                "holds cases that no verdict kept (there is no kept.json): keep cases in a folder "
                "of their own");
  }
  for (const std::size_t index : old) {
    for (const std::string_view suffix : {kCodesSuffix, kScalesSuffix, kTensorScaleSuffix,
                                          kOldTensorScaleSuffix, kRandomSuffix, kInputSuffix}) {
      if (!error) fs::remove(folder_ / Numbered(index, suffix), error);
    }
  }
  if (!error && is_ours) fs::remove(folder_ / kKept, error);
  if (error) throw Error(folder_.string(), "its old cases cannot be removed: " + error.message());
}

void KeptCases::Keep(const Case& c, const CaseAnswer& answer) {
  if (folder_.empty()) return;
  if (!is_marked_) WriteFileAtomically(folder_ / kKept, kept_.dump(1) + "\n");
  is_marked_ = true;
  WriteAnsweredCase(c, answer, folder_);
}

namespace {

// The value that a member of kept.json names; `find` is the table's look-up.
template <class Find>
auto NamedMember(JsonObject* kept, std::string_view key, Find find) {
  std::string name;
  kept->Require(key, &name);
  const auto found = find(name);
  if (!found) {
    throw Error(kept->Where(key),
                "\"" + name + "\" is not known; keep the cases again (fp4lab verify --keep)");
  }
  return *found;
}

}  // namespace

std::optional<KeptKind> ReadKeptKind(const fs::path& folder) {
  const IeeeArithmetic ieee;
  const fs::path path = folder / kKept;
  if (!Exists(path)) return std::nullopt;
  const Json json = ReadJsonFile(path);
  JsonObject o(json, path.string() + "#");
  KeptKind kind;
  o.Require("dialect", &kind.dialect);
  kind.layout.codes = NamedMember(&o, "codes_order", FindCodeOrder);
  kind.layout.scales = NamedMember(&o, "scales_order", FindScaleOrder);
  kind.layout.tensor_scale =
      NamedMember(&o, RenamedKey(o, "tensor_scale_is", "level_two_is"), FindTensorScaleConvention);
  if (o.Has("scales_type")) {
    kind.layout.scale_type = NamedMember(&o, "scales_type", FindScaleType);
  }
  o.Require("transposed", &kind.layout.transposed);
  o.Require("expanded_scales", &kind.layout.expanded_scales);
  std::vector<double> amax;
  o.Read("amax", &amax);
  for (const double number : amax) kind.amax.push_back(static_cast<float>(number));
  o.Finish();
  return kind;
}

std::vector<std::size_t> AnsweredCases(const fs::path& folder) {
  const IeeeArithmetic ieee;
  std::error_code error;
  std::vector<std::size_t> indices = NumberedInputs(folder, &error);
  if (error) throw Error(folder.string(), "cannot be read: " + error.message());
  if (indices.empty()) {
    throw Error(folder.string(), "holds no NNNN.x.npy; `fp4lab verify --keep` writes them");
  }
  std::sort(indices.begin(), indices.end());
  return indices;
}

AnsweredCase ReadAnsweredCase(const fs::path& folder, std::size_t index) {
  const IeeeArithmetic ieee;
  const fs::path input = folder / Numbered(index, kInputSuffix);
  AnsweredCase c{.x = ReadMatrix(input.string(), {}).values};
  if (const std::optional<NpyArray> random = NpyIfThere(folder / Numbered(index, kRandomSuffix))) {
    const auto bits = random->As<std::uint16_t>();
    c.random.assign(bits.begin(), bits.end());
  }
  std::optional<CaseAnswer> answer = ReadCaseAnswer(folder, index);
  if (!answer) throw Error(input.string(), "no answer was found next to the input");
  c.answer = std::move(*answer);
  return c;
}

}  // namespace fp4lab
