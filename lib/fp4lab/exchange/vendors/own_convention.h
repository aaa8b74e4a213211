// The writer of fp4lab's own convention of names (stored_file.h).
#pragma once

#include <string>
#include <string_view>

#include "fp4lab/exchange/stored.h"
#include "fp4lab/io/tensors/safetensors.h"

namespace fp4lab {

inline constexpr std::string_view kOwnConvention = "fp4lab";

// The beginning of the names of a matrix's tensors, and the key of its description.
std::string OwnPrefix(const std::string& name);
std::string OwnMetadataKey(const std::string& name);

// The .safetensors dtype of the block scales.
std::string_view ScalesDtype(const StoredMatrix& m);

// AddStored with tensors that are views of `stored`, which must outlive them.
void AddViews(const StoredMatrix& stored, std::string_view dialect, const std::string& name,
              SafetensorsFile* file);

}  // namespace fp4lab
