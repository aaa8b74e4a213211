// The report of `fp4lab check`: its quantized matrices and findings.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fp4lab/checkpoint/checkpoint.h"
#include "fp4lab/checkpoint/original/original.h"
#include "fp4lab/checkpoint/original/values.h"
#include "fp4lab/exchange/stored.h"
#include "fp4lab/exchange/vendors/reading.h"

namespace fp4lab {

// A quantized matrix, or a stack of them (experts), and how it is stored.
struct CheckedMatrix {
  std::string name;
  std::string naming;   // "modelopt": a row of exchange/vendors/vendor.h, "fp4lab" or "gguf"
  std::string formula;  // "NVFP4"; empty if no reading fits
  std::string scales;   // "E4M3", "E8M0", "F32": the format of the scales' bytes
  std::string
      element;  // of codes that are no format of kFormats: "NF4", "int4"; empty: the reading's
  Reading reading;
  TensorScaleConvention convention = TensorScaleConvention::kNone;
  std::vector<float> tensor_scale = {};  // as stored: none, one, or one a part
  std::vector<float> input_scale = {};   // as stored
  std::vector<std::string> shards = {};
  std::size_t bytes = 0;    // of codes and scales
  float largest_value = 0;  // an upper bound: the largest scale times the largest element
  std::vector<FindingKind> findings = {};
  std::optional<OriginalVerdict> original = {};  // with CheckpointOptions::original
  std::optional<ValuesVerdict> values = {};      // with CheckpointOptions::values
};

struct CheckReport {
  std::string path;
  std::vector<std::string> shards;
  std::size_t tensors = 0, bytes = 0;
  QuantizationConfig config;
  std::vector<CheckedMatrix> matrices;  // in the order of names
  std::vector<Finding> findings;        // of all matrices, then of tensors and files
};

struct CheckpointOptions {
  // The checkpoint, or the .npy file, that was quantized; empty: none is compared.
  std::filesystem::path original = {};
  // Values that another program decoded, in a checkpoint or an .npy file; empty: none.
  std::filesystem::path values = {};
  NpzReader read_npz = {};
  // Called between matrices with the bytes that are done and the bytes of all.
  std::function<void(std::size_t done, std::size_t all)> progress = {};
};

// The report as one JSON object, and as a table for people: matrices whose names differ in numbers
// only stand in one row.
Json ReportJson(const CheckReport& report);
std::string ReportText(const CheckReport& report);

}  // namespace fp4lab
