#include "fp4lab/train/checkpoint.h"

#include <bit>
#include <cstring>
#include <string_view>
#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"

namespace fp4lab {
namespace {

static_assert(std::endian::native == std::endian::little, "checkpoints are little-endian");

constexpr std::string_view kMagic = "fp4labck";
constexpr std::size_t kFront = 8 + 4 + 8;  // magic, version, size of the header
constexpr std::size_t kHash = 64;

template <class T>
T Load(std::span<const std::byte> bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

std::string_view Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string Member(const std::string& path, const std::string& key) {
  return path.empty() ? key : path + "/" + key;
}

std::string Difference(const Json& here, const Json& there, const std::string& path) {
  if (here == there) return "";
  if (!here.is_object() || !there.is_object()) {
    return path + ": " + here.dump() + " here, " + there.dump() + " there";
  }
  for (const auto& [key, value] : here.items()) {
    const std::string name = Member(path, key);
    if (!there.contains(key)) return name + ": " + value.dump() + " here, absent there";
    const std::string found = Difference(value, there.at(key), name);
    if (!found.empty()) return found;
  }
  for (const auto& [key, value] : there.items()) {
    if (!here.contains(key)) return Member(path, key) + ": absent here, " + value.dump() + " there";
  }
  return "";
}

// Throws Error unless the bytes begin as a checkpoint of this version does.
void CheckFront(std::span<const std::byte> bytes, const std::string& where) {
  if (bytes.size() < kMagic.size() || Text(bytes.first(kMagic.size())) != kMagic) {
    throw Error(where, "is not an fp4lab checkpoint");
  }
  if (bytes.size() < kFront + kHash) throw Error(where, "checkpoint is truncated");
  const auto version = Load<std::uint32_t>(bytes, 8);
  if (version != kCheckpointVersion) {
    throw Error(where, "checkpoint version " + std::to_string(version) + ", this program reads " +
                           std::to_string(kCheckpointVersion) +
                           "; continue with the fp4lab that wrote it, or start anew elsewhere");
  }
}

// Everything before the payload.
struct Front {
  CheckpointHeader header;
  std::size_t size = 0;  // bytes before the payload
};

Front ReadFront(std::span<const std::byte> bytes, const std::string& where) {
  CheckFront(bytes, where);
  const std::size_t content = bytes.size() - kHash;
  const auto json_size = Load<std::uint64_t>(bytes, 12);
  if (json_size > content - kFront) throw Error(where, "checkpoint header is malformed");
  const Json json = ParseJson(Text(bytes.subspan(kFront, json_size)), where);
  Front front{{}, kFront + json_size};
  JsonObject o(json, where);
  const Json *configuration = o.Member("configuration"), *run = o.Member("run");
  std::uint64_t floats = 0;
  o.Require("step", &front.header.step);
  o.Require("payload_floats", &floats);
  o.Finish();
  const std::size_t payload = content - front.size;
  if (configuration == nullptr || payload % sizeof(float) != 0 ||
      payload / sizeof(float) != floats) {
    throw Error(where, "checkpoint header does not fit its payload");
  }
  front.header.configuration = *configuration;
  if (run != nullptr) front.header.run = *run;
  return front;
}

}  // namespace

CheckpointWriter::CheckpointWriter(const CheckpointHeader& header, std::uint64_t floats,
                                   ByteSink sink)
    : sink_(std::move(sink)), missing_(floats) {
  const IeeeArithmetic ieee;
  Json members = {
      {"configuration", header.configuration}, {"step", header.step}, {"payload_floats", floats}};
  if (!header.run.is_null()) members["run"] = header.run;
  const std::string json = members.dump();
  const std::uint64_t json_size = json.size();
  Write(std::as_bytes(std::span(kMagic)));
  Write(std::as_bytes(std::span(&kCheckpointVersion, 1)));
  Write(std::as_bytes(std::span(&json_size, 1)));
  Write(std::as_bytes(std::span(json)));
}

void CheckpointWriter::Add(std::span<const float> piece) {
  Expects(piece.size() <= missing_, "CheckpointWriter: as many numbers as the header says");
  missing_ -= piece.size();
  Write(std::as_bytes(piece));
}

void CheckpointWriter::Finish() {
  Expects(missing_ == 0, "CheckpointWriter: as many numbers as the header says");
  const std::string digits = hash_.Hex();
  sink_(std::as_bytes(std::span(digits)));
}

void CheckpointWriter::Write(std::span<const std::byte> bytes) {
  hash_.Add(bytes);
  sink_(bytes);
}

void WriteCheckpoint(const CheckpointHeader& header,
                     std::span<const std::span<const float>> payload, const ByteSink& sink) {
  const IeeeArithmetic ieee;
  std::uint64_t floats = 0;
  for (const std::span<const float> part : payload) floats += part.size();
  CheckpointWriter writer(header, floats, sink);
  for (const std::span<const float> part : payload) writer.Add(part);
  writer.Finish();
}

std::vector<std::byte> WriteCheckpoint(const CheckpointHeader& header,
                                       std::span<const std::span<const float>> payload) {
  const IeeeArithmetic ieee;
  std::vector<std::byte> out;
  WriteCheckpoint(header, payload, [&](std::span<const std::byte> bytes) {
    out.insert(out.end(), bytes.begin(), bytes.end());
  });
  return out;
}

CheckpointHeader ReadCheckpointHeader(std::span<const std::byte> bytes, const std::string& where) {
  const IeeeArithmetic ieee;
  return ReadFront(bytes, where).header;
}

void CheckpointView::CopyTo(std::size_t first, std::span<float> to) const {
  Expects(first + to.size() <= Floats(), "CheckpointView: numbers of the payload");
  if (!to.empty()) {
    std::memcpy(to.data(), payload.data() + first * sizeof(float), to.size_bytes());
  }
}

CheckpointView ViewCheckpoint(std::span<const std::byte> bytes, const std::string& where) {
  const IeeeArithmetic ieee;
  CheckFront(bytes, where);
  const std::span<const std::byte> content = bytes.first(bytes.size() - kHash);
  if (Sha256(content) != Text(bytes.last(kHash))) {
    throw Error(where, "checkpoint is truncated or damaged: its SHA-256 does not match");
  }
  Front front = ReadFront(bytes, where);
  return {std::move(front.header), content.subspan(front.size)};
}

Checkpoint ReadCheckpoint(std::span<const std::byte> bytes, const std::string& where) {
  const IeeeArithmetic ieee;
  CheckpointView view = ViewCheckpoint(bytes, where);
  Checkpoint checkpoint{std::move(view.header), std::vector<float>(view.Floats())};
  view.CopyTo(0, checkpoint.payload);
  return checkpoint;
}

std::string FirstDifference(const Json& here, const Json& there) {
  const IeeeArithmetic ieee;
  return Difference(here, there, "");
}

}  // namespace fp4lab
