// A number of blocks at one end of a model, or of a tensor's channels: by itself, or in percent of
// all.
#pragma once

#include <string_view>

#include "fp4lab/io/json.h"

namespace fp4lab {

// Reads the member `key`, a number of blocks (3) or a share of them ("15%"), into the one of
// *blocks and *percent that it is; the other becomes 0. Both stay as they are if the member is
// absent. `what`: what is counted, for messages.
void ReadBlocks(JsonObject* o, std::string_view key, int* blocks, double* percent,
                std::string_view what = "blocks");
Json BlocksJson(int blocks, double percent);
// The number of blocks of `all`; a share is rounded up.
int KeptBlocks(int blocks, double percent, int all);

}  // namespace fp4lab
