#include "fp4lab/train/checkpoint.h"

#include <bit>
#include <cstring>
#include <string_view>

#include "fp4lab/base/error.h"
#include "fp4lab/base/hash.h"

namespace fp4lab {
namespace {

static_assert(std::endian::native == std::endian::little, "checkpoints are little-endian");

constexpr std::string_view kMagic = "fp4labck";
constexpr std::size_t kFront = 8 + 4 + 8;  // magic, version, size of the header
constexpr std::size_t kHash = 64;

void Append(std::vector<std::byte>* out, const void* from, std::size_t size) {
  const std::size_t old = out->size();
  out->resize(old + size);
  if (size > 0) std::memcpy(out->data() + old, from, size);
}

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

}  // namespace

std::vector<std::byte> WriteCheckpoint(const CheckpointHeader& header,
                                       std::span<const std::span<const float>> payload) {
  std::uint64_t floats = 0;
  for (const std::span<const float> part : payload) floats += part.size();
  const std::string json = Json{
      {"configuration", header.configuration},
      {"step", header.step},
      {"payload_floats",
       floats}}.dump();
  const std::uint64_t json_size = json.size();
  std::vector<std::byte> out;
  out.reserve(kFront + json.size() + floats * sizeof(float) + kHash);
  Append(&out, kMagic.data(), kMagic.size());
  Append(&out, &kCheckpointVersion, sizeof kCheckpointVersion);
  Append(&out, &json_size, sizeof json_size);
  Append(&out, json.data(), json.size());
  for (const std::span<const float> part : payload) {
    Append(&out, part.data(), part.size_bytes());
  }
  const std::string hash = Sha256(std::span<const std::byte>(out));
  Append(&out, hash.data(), hash.size());
  return out;
}

Checkpoint ReadCheckpoint(std::span<const std::byte> bytes, const std::string& where) {
  if (bytes.size() < kMagic.size() || Text(bytes.first(kMagic.size())) != kMagic) {
    throw Error(where, "is no fp4lab checkpoint");
  }
  if (bytes.size() < kFront + kHash) throw Error(where, "checkpoint is cut short");
  const auto version = Load<std::uint32_t>(bytes, 8);
  if (version != kCheckpointVersion) {
    throw Error(where, "checkpoint version " + std::to_string(version) + ", this program reads " +
                           std::to_string(kCheckpointVersion));
  }
  const std::span<const std::byte> content = bytes.first(bytes.size() - kHash);
  if (Sha256(content) != Text(bytes.last(kHash))) {
    throw Error(where, "checkpoint is cut short or damaged: its SHA-256 does not match");
  }
  const auto json_size = Load<std::uint64_t>(bytes, 12);
  if (json_size > content.size() - kFront) throw Error(where, "checkpoint header is malformed");
  const Json json = ParseJson(Text(content.subspan(kFront, json_size)), where);
  Checkpoint checkpoint;
  JsonObject o(json, where);
  const Json* configuration = o.Member("configuration");
  std::uint64_t floats = 0;
  o.Require("step", &checkpoint.header.step);
  o.Require("payload_floats", &floats);
  o.Finish();
  const std::span<const std::byte> payload = content.subspan(kFront + json_size);
  if (configuration == nullptr || payload.size() % sizeof(float) != 0 ||
      payload.size() / sizeof(float) != floats) {
    throw Error(where, "checkpoint header does not fit its payload");
  }
  checkpoint.header.configuration = *configuration;
  checkpoint.payload.resize(floats);
  if (floats > 0) std::memcpy(checkpoint.payload.data(), payload.data(), payload.size());
  return checkpoint;
}

std::string FirstDifference(const Json& here, const Json& there) {
  return Difference(here, there, "");
}

}  // namespace fp4lab
