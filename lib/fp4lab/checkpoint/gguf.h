// The check of .gguf files.
#pragma once

#include <cstddef>

#include "fp4lab/checkpoint/judge_matrix.h"
#include "fp4lab/checkpoint/report.h"

namespace fp4lab {

// The tensors of GGUF files.
void CheckGguf(const ModelFiles& checkpoint, const CheckpointOptions& options,
               const References& references, CheckReport* report, std::size_t* done,
               std::size_t all);

}  // namespace fp4lab
