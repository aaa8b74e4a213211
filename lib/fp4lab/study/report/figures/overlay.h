// A reader's own loss curve, which a report lays over the training curves of a study.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fp4lab::study {

struct Overlay {
  std::string label;           // the figure adds that the curve is the reader's own
  std::vector<double> tokens;  // training tokens, ascending
  std::vector<double> loss;    // nats per token, finite; as many
  std::string note = {};       // what the reader should know of the file; or empty
};

// Reads "FILE" or "LABEL=FILE"; without a label it is the file's name. The file is
//   CSV with a header, as TensorBoard exports it (Wall time, Step, Value), or
//   JSON Lines, an object a line, as MaxText and Megatron-LM's loggers write metrics; objects
//   without a loss are passed over.
// OverlayNames says which columns or members are read. Points are sorted by tokens, with a note
// where the file's go back, as after a restart. Where the file has steps but no tokens, step s
// counts as s * tokens_per_step tokens. A step that is there twice, after a restart, has its last
// loss; losses that are not finite are left out. Throws Error with the file, the line and the
// remedy.
Overlay ReadOverlay(const std::string& argument, std::int64_t tokens_per_step = 0);

// "tokens: tokens, consumed_tokens, ...; steps: ...; losses: ...", upper or lower case.
std::string OverlayNames();

}  // namespace fp4lab::study
