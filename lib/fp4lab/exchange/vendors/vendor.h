// Quantized matrices under the tensor names and in the layouts of other code bases (vendors), as a
// table.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/exchange/stored.h"
#include "fp4lab/io/tensors/gguf.h"
#include "fp4lab/io/tensors/safetensors.h"

namespace fp4lab {

struct ReadingHints;  // exchange/vendors/reading.h

// One way to name the tensors of a matrix: prefix + codes, prefix + scales, prefix + tensor_scale.
// The prefix is the matrix's name, and a dot if the codes' suffix starts with a letter or is empty.
// All vendors store scales of 1xN blocks, so that scales of 16x16
// blocks are written repeated.
struct Vendor {
  std::string_view name;
  std::string_view source;  // where the names and layouts are defined
  std::string_view codes, scales;
  std::array<std::string_view, 3> tensor_scale;  // the first is written, all are read
  TensorScaleConvention convention;
  // As written; linear scales are read, too, unless the vendor has a marker.
  ScaleOrder scale_order = ScaleOrder::kLinear;
  bool scales_as_bytes = false;  // U8 instead of F8_E4M3 (all vendors write E8M0 as U8)
  CodeOrder codes_order = CodeOrder::kLowFirst;  // of 4-bit codes
  std::string_view marker = {};  // prefix + marker: a tensor that tells the vendor from others
  std::string_view input = {};   // prefix + input: the number of the activations
  bool read_only = false;        // the names are read, never written
  // Codes are (..., blocks, bytes of a block).
  bool grouped_codes = false;
  // Under these names a number is a scale a tensor, or the codes are FP8 (weight_scale_inv).
  bool blocks_first = false;
};
// Makes a row of names that are read and never written.
constexpr Vendor ReadOnly(Vendor row) {
  row.read_only = true;
  return row;
}
inline constexpr std::array kVendors = {
    Vendor{"te",
           "TransformerEngine transformer_engine/pytorch/tensor/storage/nvfp4_tensor_storage.py",
           "_rowwise_data",
           "_rowwise_scale_inv",
           {"_amax_rowwise", "_rowwise_amax", "_amax"},
           TensorScaleConvention::kAmax,
           ScaleOrder::kPadded,
           true},
    Vendor{"te-columnwise",
           "the same file; the quantization of the transposed matrix",
           "_columnwise_data",
           "_columnwise_scale_inv",
           {"_amax_columnwise", "_columnwise_amax", "_amax"},
           TensorScaleConvention::kAmax,
           ScaleOrder::kPadded,
           true},
    Vendor{"modelopt",
           "Model-Optimizer modelopt/torch/quantization/qtensor/nvfp4_tensor.py",
           "weight",
           "weight_scale",
           {"weight_scale_2", "", ""},
           TensorScaleConvention::kMultiplier,
           ScaleOrder::kLinear,
           false,
           CodeOrder::kLowFirst,
           "",
           "input_scale"},
    Vendor{"compressed-tensors",
           "compressed-tensors src/compressed_tensors/compressors/nvfp4/base.py",
           "weight_packed",
           "weight_scale",
           {"weight_global_scale", "", ""},
           TensorScaleConvention::kDivisor,
           ScaleOrder::kLinear,
           false,
           CodeOrder::kLowFirst,
           "",
           "input_global_scale"},
    Vendor{"comfyui",
           "ComfyUI comfy/ops.py, comfy/float.py; comfy-kitchen comfy_kitchen/tensor/nvfp4.py",
           "weight",
           "weight_scale",
           {"weight_scale_2", "", ""},
           TensorScaleConvention::kMultiplier,
           ScaleOrder::k128x4,
           false,
           CodeOrder::kHighFirst,
           "comfy_quant",
           "input_scale"},
    ReadOnly({.name = "modelopt-experts",
              .source = "Model-Optimizer modelopt/torch/export: weights that are 3-D parameters",
              .codes = "",
              .scales = "_weight_scale",
              .tensor_scale = {"_weight_scale_2", "", ""},
              .convention = TensorScaleConvention::kMultiplier,
              .input = "_input_scale"}),
    ReadOnly(
        {.name = "torchao",
         .source = "torchao torchao/prototype/safetensors: the attributes of a tensor subclass",
         .codes = "._weight_qdata",
         .scales = "._weight_scale",
         .tensor_scale = {"._weight_per_tensor_scale", "", ""},
         .convention = TensorScaleConvention::kMultiplier,
         .input = "._weight_act_per_tensor_scale"}),
    ReadOnly({.name = "torchao-colon",
              .source = "the same folder until 0.14",
              .codes = ":qdata",
              .scales = ":scale",
              .tensor_scale = {":per_tensor_scale", "", ""},
              .convention = TensorScaleConvention::kMultiplier,
              .input = ":act_per_tensor_scale"}),
    ReadOnly({.name = "torchao-attributes",
              .source = "NVFP4Tensor and MXTensor, saved attribute by attribute",
              .codes = "qdata",
              .scales = "scale",
              .tensor_scale = {"per_tensor_scale", "", ""},
              .convention = TensorScaleConvention::kMultiplier,
              .input = "act_per_tensor_scale"}),
    ReadOnly({.name = "gpt-oss",
              .source = "transformers src/transformers/integrations/mxfp4.py",
              .codes = "_blocks",
              .scales = "_scales",
              .tensor_scale = {"", "", ""},
              .convention = TensorScaleConvention::kNone,
              .grouped_codes = true}),
    ReadOnly({.name = "gpt-oss-original",
              .source = "gpt-oss gpt_oss/torch/weights.py",
              .codes = "blocks",
              .scales = "scales",
              .tensor_scale = {"", "", ""},
              .convention = TensorScaleConvention::kNone,
              .grouped_codes = true}),
    ReadOnly({.name = "deepseek-v3",
              .source = "DeepSeek-V3 inference/fp8_cast_bf16.py; transformers finegrained_fp8.py",
              .codes = "weight",
              .scales = "weight_scale_inv",
              .tensor_scale = {"", "", ""},
              .convention = TensorScaleConvention::kNone,
              .input = "input_scale",
              .blocks_first = true}),
    ReadOnly({.name = "deepseek-v4",
              .source = "DeepSeek-V4 inference/convert.py",
              .codes = "weight",
              .scales = "scale",
              .tensor_scale = {"", "", ""},
              .convention = TensorScaleConvention::kNone,
              .blocks_first = true}),
    ReadOnly({.name = "mlx",
              .source = "mlx mlx/ops.cpp quantize; mlx-lm utils.py",
              .codes = "weight",
              .scales = "scales",
              .tensor_scale = {"global_scale", "", ""},
              .convention = TensorScaleConvention::kMultiplier}),
    ReadOnly({.name = "comfyui-scaled",
              .source = "ComfyUI comfy/ops.py scaled_fp8_ops",
              .codes = "weight",
              .scales = "scale_weight",
              .tensor_scale = {"", "", ""},
              .convention = TensorScaleConvention::kNone,
              .input = "scale_input"}),
};
const Vendor* FindVendor(std::string_view name);

// The layout in which the code base of a dialect stores its matrices: ModelOpt's for
// "nvfp4.modelopt" and "nvfp4.modelopt.static", GGUF's for "mxfp4.ggml". nullopt for a code base
// that is no row of the table.
std::optional<StorageLayout> OwnLayout(const Dialect& dialect);

// The caller's facts about a matrix beyond the file. Blocks and formats are those of `dialect`
// if it is given; else E4M3 scales are of 1x16 blocks, E8M0 scales of 1x32 blocks.
struct ReadStoredOptions {
  const Dialect* dialect = nullptr;
  std::optional<CodeOrder> codes = {};
  std::optional<ScaleOrder> scales = {};
  std::optional<TensorScaleConvention> tensor_scale = {};  // kNone: the file need not hold a number
  bool transposed = false, expanded_scales = false;
};

// A matrix that a file holds under a vendor's names.
struct VendorEntry {
  std::string name;  // the prefix without its last dot; may be empty
  const Vendor* vendor;
  friend bool operator==(const VendorEntry&, const VendorEntry&) = default;
};
// The matrices of a file under vendors' names. A matrix is ComfyUI's, not ModelOpt's, if its marker
// or the layers of the metadata "_quantization_metadata" name it.
std::vector<VendorEntry> ListVendorMatrices(const SafetensorsFile& file);

// The names of the matrix's tensors are this and a suffix of the vendor.
std::string PrefixOf(const VendorEntry& entry);

// The reading of a matrix that names, ComfyUI's marker and torchao's metadata state.
ReadingHints HintsOf(const SafetensorsFile& file, const VendorEntry& entry);

// Reads a matrix; leading dimensions are flattened into rows. Throws Error(where, ...) for a tensor
// that is missing, of the wrong type, or of a size that does not fit (the error states the right
// size), and for a missing tensor scale if NeedsTensorScale, unless options.tensor_scale is kNone.
StoredMatrix ReadVendorMatrix(const SafetensorsFile& file, const VendorEntry& entry,
                              const ReadStoredOptions& options, std::string_view where);

// Adds the tensors of a matrix, converted to the vendor's layout; scale_max is the dialect's.
// Throws Error for a format that the vendor cannot name.
void AddVendorMatrix(const StoredMatrix& stored, const VendorEntry& entry, float scale_max,
                     SafetensorsFile* file);

// Throws Error(where, ...) for a file that lacks the tensor `name`, the tensor scale of `codes`.
[[noreturn]] void RefuseMissingTensorScale(std::string_view where, const std::string& name,
                                           const std::string& codes);

// GGUF: tensors of the types MXFP4 (blocks of one E8M0 byte and 16 bytes of codes) and NVFP4
// (blocks of four E4M3 bytes and 32 bytes of codes), nibbles in split halves. The tensor scale is a
// multiplier in an F32 tensor `scale` beside `weight`, 1 if there is none (ggml-org/llama.cpp
// ggml/src/ggml-common.h, pull requests 19769 and 21095). ggml itself reads the scale byte 0x7F as
// 0 and ignores the sign; fp4lab reads the byte as E4M3.
std::vector<std::string> ListGgufMatrices(const GgufFile& file);
StoredMatrix ReadGgufMatrix(const GgufFile& file, const std::string& name, std::string_view where);
void AddGgufMatrix(const StoredMatrix& stored, const std::string& name, float scale_max,
                   GgufFile* file);

// The matrix with its blocks of several rows as 1xN blocks: the same bytes as with expanded scales.
StoredMatrix WithRowBlocks(const StoredMatrix& stored, float scale_max, std::string_view where);

}  // namespace fp4lab
