// The rows of the table, by code base. Each function appends the rows of its code base to `rows`.
#pragma once

#include <vector>

#include "fp4lab/dialect/dialect.h"

namespace fp4lab {

void AddTransformerEngine(std::vector<Dialect>* rows);
void AddFourOverSix(std::vector<Dialect>* rows);
void AddOtherNvfp4(std::vector<Dialect>* rows);
void AddInference(std::vector<Dialect>* rows);  // of FlashInfer after 014327a, MLX, ComfyUI, ...
void AddMicroscaling(std::vector<Dialect>* rows);
void AddFp8(std::vector<Dialect>* rows);
void AddFp8Blocks(std::vector<Dialect>* rows);  // of Transformer Engine and DeepGEMM

// The snapshot of Transformer Engine that its rows state.
inline constexpr std::string_view kTransformerEngine =
    "NVIDIA/TransformerEngine d0067d0 (2026-08-22)";

// A copy of a row under another name and source, of the same version.
constexpr Dialect Renamed(Dialect row, std::string_view name, std::string_view source,
                          std::string_view note = {}) {
  row.name = name;
  row.source = source;
  row.note = note;
  return row;
}

// A copy of a row at another version.
constexpr Dialect At(Dialect row, std::string_view version) {
  row.version = version;
  return row;
}

// A copy of a row in square blocks: a tile and its transpose have the same scale.
constexpr Dialect Square(Dialect row) {
  row.block_rows = row.block_cols;
  return row;
}

}  // namespace fp4lab
