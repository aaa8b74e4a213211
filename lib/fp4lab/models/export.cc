// A checkpoint as a folder that transformers loads.
#include <cstring>
#include <span>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/formats/encode.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/file_content.h"
#include "fp4lab/io/tensors/safetensors.h"
#include "fp4lab/models/family.h"
#include "fp4lab/models/published.h"
#include "fp4lab/models/tensor_names.h"
#include "fp4lab/train/checkpoint.h"
#include "fp4lab/train/model/shapes.h"
#include "fp4lab/train/start/checkpoint_model.h"

namespace fp4lab {
namespace {

struct Dtype {
  std::string_view name;   // of .safetensors
  std::string_view torch;  // of config.json
};
constexpr Dtype kDtypes[] = {{"BF16", "bfloat16"}, {"F16", "float16"}, {"F32", "float32"}};

const Dtype& DtypeNamed(std::string_view name) {
  for (const Dtype& dtype : kDtypes) {
    if (dtype.name == name) return dtype;
  }
  throw Error("--dtype", "must be BF16, F16 or F32, not \"" + std::string(name) + "\"");
}

// The architecture that states a model, and its config.json.
struct Statement {
  const Family* family = nullptr;
  Json config;
};

// The statement by the family, if its config.json gives the model back; else the first difference.
std::string StateBy(const Family& family, const ModelConfig& model, Statement* found) {
  const bool experts = !family.experts.module.empty();
  const std::vector<std::string> parts = experts ? std::vector<std::string>{"attention", "moe"}
                                                 : std::vector<std::string>{"attention", "mlp"};
  if (model.parts != parts) return "parts: " + Json(model.parts).dump();
  const Json config = PublishedConfig(family, model);
  ModelConfig back;
  try {
    back = ReadPublishedConfig(family, config, "config.json", model.sequence);
  } catch (const Error& e) {
    return e.what();
  }
  if (Comparable(back) == Comparable(model)) {
    *found = {&family, config};
    return "";
  }
  const std::string difference =
      FirstDifference(ToJson(Comparable(model)), ToJson(Comparable(back)));
  return difference.empty() ? "a model with other numbers" : difference;
}

// config.json of the import, if the model is still the one that it states.
Statement StateAsImported(const Json& imported, const ModelConfig& model) {
  if (!imported.is_object() || !imported.contains("config")) return {};
  const Json& config = imported.at("config");
  const Family& family = FamilyOf(config, "config.json");
  const ModelConfig there = ReadPublishedConfig(family, config, "config.json", model.sequence);
  if (family.zero_biases || !(Comparable(there) == Comparable(model))) return {};
  return {&family, config};
}

Statement StatementOf(const Json& imported, const ModelConfig& model, const std::string& where) {
  Statement found = StateAsImported(imported, model);
  if (found.family != nullptr) return found;
  std::string reasons;
  for (const Family& family : Families()) {
    if (family.zero_biases) continue;  // its code adds biases
    const std::string reason = StateBy(family, model, &found);
    if (reason.empty()) return found;
    reasons +=
        (reasons.empty() ? "" : "; ") + std::string(family.architecture) + " differs in " + reason;
  }
  throw Error(where,
              "no architecture of transformers that fp4lab knows states this model: " + reasons);
}

ByteArray Encoded(std::span<const float> numbers, std::string_view dtype) {
  if (dtype == "F32") {
    const auto bytes = std::as_bytes(numbers);
    return ByteArray(bytes.begin(), bytes.end());
  }
  std::vector<std::uint16_t> codes(numbers.size());
  Encode(dtype == "BF16" ? FormatId::kBF16 : FormatId::kFP16, numbers, codes,
         {.overflow = Overflow::kSpecial});
  const auto bytes = std::as_bytes(std::span<const std::uint16_t>(codes));
  return ByteArray(bytes.begin(), bytes.end());
}

}  // namespace

Exported ExportModel(const ExportOptions& options) {
  const IeeeArithmetic ieee;
  const std::filesystem::path path = CheckpointFile(options.from);
  const std::string where = path.string();
  if (Exists(options.to / "config.json")) {
    throw Error((options.to / "config.json").string(), "is there already; give another folder");
  }
  const FileContent content(path);
  const Checkpoint checkpoint = ReadCheckpoint(content.bytes(), where);
  const Json& configuration = checkpoint.header.configuration;
  if (!configuration.is_object() || !configuration.contains("model")) {
    throw Error(where, "has no configuration of a model");
  }
  const ModelConfig model =
      ReadModelConfig(configuration.at("model"), where + "#/configuration/model");
  const ParameterLayout layout = MakeLayout(model);
  if (checkpoint.payload.size() < layout.total) {
    throw Error(where, "does not hold its model's numbers");
  }
  const Json imported = configuration.value("imported", Json());
  Statement statement = StatementOf(imported, model, where);
  const std::string kept = imported.is_object() ? imported.value("dtype", "F32") : "F32";
  const Dtype& dtype = DtypeNamed(!options.dtype.empty() ? options.dtype
                                  : kept == "mixed"      ? "F32"
                                                         : kept);
  SafetensorsFile file;
  file.metadata["format"] = "pt";
  for (const ParameterSlice& slice : layout.slices) {
    std::size_t at = slice.offset;
    for (const TensorPart& part : TensorPartsOf(*statement.family, slice)) {
      const std::size_t size = part.rows * slice.cols;
      file.tensors[part.name] = {
          std::string(dtype.name), part.shape,
          Encoded(std::span(checkpoint.payload).subspan(at, size), dtype.name)};
      at += size;
    }
  }
  statement.config.erase("dtype");
  statement.config["torch_dtype"] = dtype.torch;
  WriteSafetensors(options.to / "model.safetensors", file);
  WriteFileAtomically(options.to / "config.json", statement.config.dump(2) + "\n");
  return {std::string(statement.family->architecture), std::string(dtype.name),
          static_cast<std::int64_t>(layout.total)};
}

}  // namespace fp4lab
