// A model of transformers as a checkpoint.
#include <algorithm>
#include <cstring>
#include <map>
#include <span>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/printable.h"
#include "fp4lab/checkpoint/checkpoint.h"
#include "fp4lab/formats/encode.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/memory.h"
#include "fp4lab/io/near_files.h"
#include "fp4lab/models/family.h"
#include "fp4lab/models/published.h"
#include "fp4lab/models/tensor_names.h"
#include "fp4lab/train/checkpoint.h"
#include "fp4lab/train/model/shapes.h"

namespace fp4lab {
namespace {

namespace fs = std::filesystem;

std::string ShapeText(const std::vector<std::size_t>& shape) {
  std::string text;
  for (const std::size_t n : shape) text += (text.empty() ? "(" : ", ") + std::to_string(n);
  return text + ")";
}

// The numbers of a tensor of a dtype in which all of them are binary32 numbers.
void ReadNumbers(const SafetensorsTensor& tensor, const std::string& where,
                 std::span<float> numbers) {
  const std::byte* const bytes = tensor.bytes.data();
  if (tensor.dtype == "F32") {
    std::memcpy(numbers.data(), bytes, numbers.size_bytes());
    return;
  }
  if (tensor.dtype != "BF16" && tensor.dtype != "F16") {
    throw Error(where, "has the dtype " + tensor.dtype + "; weights are read in BF16, F16 and F32");
  }
  std::vector<std::uint16_t> codes(numbers.size());  // mapped tensors may lie at odd addresses
  std::memcpy(codes.data(), bytes, codes.size() * sizeof codes[0]);
  Decode(tensor.dtype == "BF16" ? FormatId::kBF16 : FormatId::kFP16, codes, numbers);
}

class Importer {
 public:
  explicit Importer(const ImportOptions& options) : options_(options) {
    files_ = OpenCheckpoint(options.from, [](const fs::path& path) -> SafetensorsFile {
      throw Error(path.string(), "is no .safetensors file");
    });
    for (const Shard& shard : files_.shards) {
      if (shard.name.ends_with(".safetensors")) continue;
      throw Error(shard.name, "is no .safetensors file; fp4lab import reads these alone");
    }
    const fs::path folder =
        fs::is_directory(options.from) ? options.from : options.from.parent_path();
    const fs::path path = folder / "config.json";
    if (!Exists(path)) {
      throw Error(path.string(),
                  "is not there; the model's shape stands in it" + NearFilesText(path));
    }
    config_ = ReadJsonFile(path);
    config_path_ = path.string();
    family_ = &FamilyOf(config_, config_path_);
    model_ = ReadPublishedConfig(*family_, config_, config_path_, options.sequence);
    layout_ = MakeLayout(model_);
  }

  Imported Import() {
    RequireMemory(layout_.total * sizeof(float), options_.from.string());
    std::vector<float> weights(layout_.total);
    for (const ParameterSlice& slice : layout_.slices) ReadSlice(slice, weights);
    CheckOthers(weights);
    Imported done{std::string(family_->architecture), DtypeOfAll(),
                  static_cast<std::int64_t>(layout_.total)};
    const Json configuration = {
        {"model", ToJson(model_)},
        {"imported",
         {{"architecture", done.architecture}, {"dtype", done.dtype}, {"config", config_}}}};
    const std::span<const float> payload = weights;
    WriteFileAtomically(options_.to, [&](const ByteSink& sink) {
      WriteCheckpoint({configuration, 0}, {&payload, 1}, sink);
    });
    return done;
  }

 private:
  std::string Where(const std::string& tensor) const {
    return files_.path + ": " + std::string(Printable(tensor));
  }

  void ReadSlice(const ParameterSlice& slice, std::span<float> weights) {
    std::size_t at = slice.offset;
    for (const TensorPart& part : TensorPartsOf(*family_, slice)) {
      const auto found = files_.tensors.tensors.find(part.name);
      if (found == files_.tensors.tensors.end()) {
        throw Error(Where(part.name), "is missing; config.json states it");
      }
      const SafetensorsTensor& tensor = found->second;
      if (tensor.shape != part.shape) {
        throw Error(Where(part.name), "has the shape " + ShapeText(tensor.shape) +
                                          "; config.json states " + ShapeText(part.shape));
      }
      const std::size_t size = part.rows * slice.cols;
      ReadNumbers(tensor, Where(part.name), weights.subspan(at, size));
      dtypes_[tensor.dtype] += 1;
      read_.insert({part.name, at});
      at += size;
    }
  }

  // Throws Error for the first tensor that has no place in the model: a bias, but for one of zeros
  // where every model of the family has it, or a head that is not the embedding it is tied to.
  void CheckOthers(std::span<const float> weights) const {
    for (const auto& [name, tensor] : files_.tensors.tensors) {
      if (read_.contains(name) || name.ends_with("rotary_emb.inv_freq")) continue;
      const bool head = name == "lm_head.weight" && model_.tied_head;
      const bool bias =
          family_->zero_biases && name.ends_with("_proj.bias") && tensor.shape.size() == 1;
      if (!head && !bias) throw Error(Where(name), "has no place in fp4lab's model");
      std::vector<float> numbers(head ? layout_.embedding.size() : tensor.shape[0]);
      if (head && tensor.shape != std::vector{layout_.embedding.rows, layout_.embedding.cols}) {
        throw Error(Where(name), "has not the shape of the embedding to which it is tied");
      }
      ReadNumbers(tensor, Where(name), numbers);
      if (bias && std::any_of(numbers.begin(), numbers.end(), [](float x) { return x != 0; })) {
        throw Error(Where(name), "is not 0; fp4lab's linears have no biases");
      }
      const std::span<const float> embedding =
          weights.subspan(layout_.embedding.offset, layout_.embedding.size());
      if (head && std::memcmp(numbers.data(), embedding.data(), embedding.size_bytes()) != 0) {
        throw Error(Where(name), "is not the embedding to which config.json ties it");
      }
    }
  }

  std::string DtypeOfAll() const { return dtypes_.size() == 1 ? dtypes_.begin()->first : "mixed"; }

  ImportOptions options_;
  ModelFiles files_;
  Json config_;
  std::string config_path_;
  const Family* family_ = nullptr;
  ModelConfig model_;
  ParameterLayout layout_;
  std::map<std::string, std::size_t> read_;    // where each tensor's numbers stand
  std::map<std::string, std::size_t> dtypes_;  // tensors of each
};

}  // namespace

Imported ImportModel(const ImportOptions& options) {
  const IeeeArithmetic ieee;
  return Importer(options).Import();
}

}  // namespace fp4lab
