// Models of transformers (Hugging Face) as checkpoints of fp4lab, and back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace fp4lab {

struct ImportOptions {
  std::filesystem::path from;  // a folder with config.json and .safetensors, an index or one file
  std::filesystem::path to;    // the checkpoint to write
  int sequence = 0;            // tokens of a sequence; 0: the model's, at most kImportedSequence
};

inline constexpr int kImportedSequence = 512;

struct Imported {
  std::string architecture;  // "LlamaForCausalLM"
  std::string dtype;         // "BF16", "F16", "F32", or "mixed"
  std::int64_t parameters = 0;
};

// Writes a checkpoint (train/checkpoint.h) of step 0 whose payload is the weights, exactly, and
// whose configuration is {"model", "imported": {"architecture", "dtype", "config"}}. Throws Error
// at the key of config.json for an architecture or a value that fp4lab's model does not state, and
// at the tensor for one that is missing, has another shape or dtype, or has no place in the model;
// nothing is then written.
Imported ImportModel(const ImportOptions& options);

struct ExportOptions {
  std::filesystem::path from;  // a checkpoint, or its folder
  std::filesystem::path to;    // the folder to write config.json and model.safetensors into
  std::string dtype;           // "BF16", "F16" or "F32"; empty: that of the import, else F32
};

struct Exported {
  std::string architecture, dtype;
  std::int64_t parameters = 0;
};

// Writes a folder that transformers loads, of the first architecture in the table that states the
// checkpoint's model; that of the import is tried first. A weight that its dtype does not have is
// rounded to the nearest, ties to even. Throws Error if the folder has a config.json already, if no
// architecture states the model (the first difference is named), and for files that are no
// checkpoint.
Exported ExportModel(const ExportOptions& options);

}  // namespace fp4lab
