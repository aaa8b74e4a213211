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

#include "fp4lab/base/hash.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/json.h"

namespace fp4lab {

inline constexpr std::uint32_t kCheckpointVersion = 1;

struct CheckpointHeader {
  Json configuration;
  std::int64_t step = 0;
  Json run = {};  // what a study keeps of its run (study/run/run.h); null: nothing
};

// Writes a checkpoint whose payload comes piece by piece.
class CheckpointWriter {
 public:
  // `floats`: the numbers of the payload.
  CheckpointWriter(const CheckpointHeader& header, std::uint64_t floats, ByteSink sink);
  void Add(std::span<const float> piece);
  // After the last piece.
  void Finish();

 private:
  void Write(std::span<const std::byte> bytes);

  ByteSink sink_;
  Sha256Stream hash_;
  std::uint64_t missing_;  // floats that are not written yet
};
void WriteCheckpoint(const CheckpointHeader& header,
                     std::span<const std::span<const float>> payload, const ByteSink& sink);
std::vector<std::byte> WriteCheckpoint(const CheckpointHeader& header,
                                       std::span<const std::span<const float>> payload);

// A checkpoint's header, and its payload in the bytes that were given.
struct CheckpointView {
  CheckpointHeader header;
  std::span<const std::byte> payload;  // binary32, at any address

  std::size_t Floats() const { return payload.size() / sizeof(float); }
  // The numbers first, first + 1, ... of the payload.
  void CopyTo(std::size_t first, std::span<float> to) const;
};
// Checks magic, version, sizes and hash. Throws Error at `where` if the bytes are cut short,
// damaged or of another version.
CheckpointView ViewCheckpoint(std::span<const std::byte> bytes, const std::string& where);

// ViewCheckpoint with a copy of the payload.
struct Checkpoint {
  CheckpointHeader header;
  std::vector<float> payload;
};
Checkpoint ReadCheckpoint(std::span<const std::byte> bytes, const std::string& where);

// The header alone, for a look at a run at work: of mapped bytes it reads the first pages, and it
// verifies no hash. Throws Error as ViewCheckpoint does.
CheckpointHeader ReadCheckpointHeader(std::span<const std::byte> bytes, const std::string& where);

// The first member, as "model/layers: 4 here, 2 there", in which two JSON values differ; "" if
// none.
std::string FirstDifference(const Json& here, const Json& there);

}  // namespace fp4lab
