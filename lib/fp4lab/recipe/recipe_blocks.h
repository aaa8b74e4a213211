// A number of blocks at one end of a model: by itself, or in percent of the model's.
#pragma once

#include <string_view>

#include "fp4lab/io/json.h"

namespace fp4lab {

// Reads the member `key`, a number of blocks (3) or a share of them ("15%"), into the one of
// *blocks and *percent that it is; the other becomes 0. Both stay as they are if the member is
// absent.
void ReadBlocks(JsonObject* o, std::string_view key, int* blocks, double* percent);
Json BlocksJson(int blocks, double percent);
// The number of blocks of `all`; a share is rounded up.
int KeptBlocks(int blocks, double percent, int all);

}  // namespace fp4lab
