// Quantized matrices under the names and in the layouts of those who write them, as data.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/exchange/stored.h"
#include "fp4lab/io/gguf.h"
#include "fp4lab/io/safetensors.h"

namespace fp4lab {

// One way to name the tensors of a matrix: prefix + codes, prefix + scales, prefix + level_two.
// Codes lie low-first where they have 4 bits; the rows of all vendors are 1xN blocks, so 16x16
// tiles are written with their scales repeated.
struct Vendor {
  std::string_view name;
  std::string_view source;  // where the names and layouts are defined
  std::string_view codes, scales;
  std::array<std::string_view, 3> level_two;  // the first is written, the others are read as well
  LevelTwoConvention convention;
  ScaleOrder scale_order;  // as written; linear scales are always read
  bool scales_as_bytes;    // U8 instead of F8_E4M3 (F8_E8M0 is U8 with everyone)
  bool columnwise;         // the matrix is the transposed one
};
inline constexpr std::array kVendors = {
    Vendor{"te",
           "TransformerEngine transformer_engine/pytorch/tensor/storage/nvfp4_tensor_storage.py",
           "_rowwise_data",
           "_rowwise_scale_inv",
           {"_amax_rowwise", "_rowwise_amax", "_amax"},
           LevelTwoConvention::kAmax,
           ScaleOrder::kPadded,
           true,
           false},
    Vendor{"te-columnwise",
           "the same file; the quantization of the transposed matrix",
           "_columnwise_data",
           "_columnwise_scale_inv",
           {"_amax_columnwise", "_columnwise_amax", "_amax"},
           LevelTwoConvention::kAmax,
           ScaleOrder::kPadded,
           true,
           true},
    Vendor{"modelopt",
           "Model-Optimizer modelopt/torch/quantization/qtensor/nvfp4_tensor.py",
           "weight",
           "weight_scale",
           {"weight_scale_2", "", ""},
           LevelTwoConvention::kMultiplier,
           ScaleOrder::kLinear,
           false,
           false},
    Vendor{"compressed-tensors",
           "compressed-tensors src/compressed_tensors/compressors/nvfp4/base.py",
           "weight_packed",
           "weight_scale",
           {"weight_global_scale", "", ""},
           LevelTwoConvention::kDivisor,
           ScaleOrder::kLinear,
           false,
           false},
};
const Vendor* FindVendor(std::string_view name);

// The layout in which the code base of a dialect stores its matrices: ModelOpt's for
// "nvfp4.modelopt" and "nvfp4.modelopt.static", GGUF's for "mxfp4.ggml". nullopt for a code base
// that is no row of the table.
std::optional<StorageLayout> OwnLayout(const Dialect& dialect);

// What a reader knows beyond the file. The blocks and formats are those of `dialect` where it is
// given; else E4M3 scales are of 1x16, E8M0 scales of 1x32 blocks.
struct ReadStoredOptions {
  const Dialect* dialect = nullptr;
  std::optional<CodeOrder> codes = {};
  std::optional<ScaleOrder> scales = {};
  std::optional<LevelTwoConvention> level_two = {};  // kNone: the file need not hold a number
  bool transposed = false, expanded_scales = false;
};

// A matrix that a file holds under a vendor's names.
struct VendorEntry {
  std::string name;  // the prefix without its last dot; may be empty
  const Vendor* vendor;
  friend bool operator==(const VendorEntry&, const VendorEntry&) = default;
};
std::vector<VendorEntry> ListVendorMatrices(const SafetensorsFile& file);

// Leading dimensions are flattened into rows. Error(where, ...) names the tensor that is missing,
// of the wrong type, or of a size that does not fit, with what would fit. A number of level 2 must
// be there where NeedsLevelTwo says so, unless the options say that there is none.
StoredMatrix ReadVendorMatrix(const SafetensorsFile& file, const VendorEntry& entry,
                              const ReadStoredOptions& options, std::string_view where);

// Adds the tensors of a matrix, converted to the vendor's layout; scale_max is the dialect's.
void AddVendorMatrix(const StoredMatrix& stored, const VendorEntry& entry, float scale_max,
                     SafetensorsFile* file);

// Error(where, ...) for a file that lacks the tensor `name`, the number of level 2 of `codes`.
[[noreturn]] void RefuseMissingLevelTwo(std::string_view where, const std::string& name,
                                        const std::string& codes);

// GGUF: tensors of the types MXFP4 (one E8M0 byte, 16 bytes of codes) and NVFP4 (four E4M3 bytes,
// 32 bytes of codes), nibbles in split halves; level 2 is a multiplier in an F32 tensor `scale`
// beside `weight`, 1 where there is none (ggml-org/llama.cpp ggml/src/ggml-common.h, pull requests
// 19769 and 21095). ggml itself reads the scale byte 0x7F as 0 and ignores the sign; here it is
// E4M3.
std::vector<std::string> ListGgufMatrices(const GgufFile& file);
StoredMatrix ReadGgufMatrix(const GgufFile& file, const std::string& name, std::string_view where);
void AddGgufMatrix(const StoredMatrix& stored, const std::string& name, float scale_max,
                   GgufFile* file);

// Blocks of several rows as 1xN blocks: the same bytes as with expanded scales.
StoredMatrix WithRowBlocks(const StoredMatrix& stored, float scale_max, std::string_view where);

}  // namespace fp4lab
