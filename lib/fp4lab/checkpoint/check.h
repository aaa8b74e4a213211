// Checks a whole checkpoint: finds its quantized matrices, how each is stored, and what is wrong.
#pragma once

#include <filesystem>

#include "fp4lab/checkpoint/report.h"

namespace fp4lab {

// Checks a folder, an index.json or a file. Memory does not grow with the size of .safetensors and
// .gguf files: they are mapped, read once, and their pages released. Throws Error for files that
// cannot be read.
CheckReport CheckCheckpoint(const std::filesystem::path& path,
                            const CheckpointOptions& options = {});
CheckReport CheckCheckpoint(const ModelFiles& checkpoint, const CheckpointOptions& options);

}  // namespace fp4lab
