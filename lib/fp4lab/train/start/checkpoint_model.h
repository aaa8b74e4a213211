// The model that a checkpoint was made with.
#pragma once

#include <filesystem>
#include <string>

#include "fp4lab/io/file_content.h"
#include "fp4lab/io/json.h"

namespace fp4lab {

struct CheckpointHeader;

// checkpoint.fp4lab in a folder, or the file itself.
std::filesystem::path CheckpointFile(const std::filesystem::path& checkpoint);

// Throws Error at `where` if there is no such file.
FileContent OpenCheckpoint(const std::filesystem::path& checkpoint, const std::string& where);

// The model in a checkpoint's header, as ToJson(ModelConfig) has it. Throws Error at `where` if the
// header has none.
const Json& ModelIn(const CheckpointHeader& header, const std::string& where,
                    const std::filesystem::path& checkpoint);

// The model of a checkpoint. Throws Error at `where` if the file is no checkpoint of a run or of
// `fp4lab import`.
Json ModelOfCheckpoint(const std::filesystem::path& checkpoint, const std::string& where);

}  // namespace fp4lab
