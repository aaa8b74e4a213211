// The state of a run as bytes: the configuration that identifies the run, and the numbers that
// continue it bit for bit. Every run has this one format. In this order:
//
//   "fp4labck"
//   version, uint32
//   size of the header, uint64
//   header, JSON {"configuration", "step", "payload_floats"}, and "run" in a run of a study
//   payload, binary32: the numbers of that step and, in a branch of a study's run, of its trunk
//   SHA-256 of everything before, 64 hexadecimal digits
//
// Integers and floats are little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fp4lab/io/file.h"
#include "fp4lab/io/json.h"

namespace fp4lab {

inline constexpr std::uint32_t kCheckpointVersion = 1;

struct CheckpointHeader {
  Json configuration;
  std::int64_t step = 0;
  Json run = {};  // what a study keeps of its run (study/run/run.h); null: nothing
};

void WriteCheckpoint(const CheckpointHeader& header,
                     std::span<const std::span<const float>> payload, const ByteSink& sink);
std::vector<std::byte> WriteCheckpoint(const CheckpointHeader& header,
                                       std::span<const std::span<const float>> payload);

// ReadCheckpoint checks magic, version, sizes and hash, and copies the payload. Throws Error at
// `where` if the bytes are cut short, damaged or of another version.
struct Checkpoint {
  CheckpointHeader header;
  std::vector<float> payload;
};
Checkpoint ReadCheckpoint(std::span<const std::byte> bytes, const std::string& where);

// The header alone, for a look at a run at work: of mapped bytes it reads the first pages, and it
// verifies no hash. Throws Error as ReadCheckpoint does.
CheckpointHeader ReadCheckpointHeader(std::span<const std::byte> bytes, const std::string& where);

// The first member, as "model/layers: 4 here, 2 there", in which two JSON values differ; "" if
// none.
std::string FirstDifference(const Json& here, const Json& there);

}  // namespace fp4lab
