#include "fp4lab/study/run/checkpoint.h"

#include <cstdint>
#include <string_view>

#include "fp4lab/base/error.h"
#include "fp4lab/base/hash.h"

namespace fp4lab::study {
namespace {

constexpr std::string_view kMagic = "fp4lab.run/1\n";
constexpr std::size_t kHashDigits = 64;

void Append(std::span<const std::byte> part, std::vector<std::byte>* out) {
  for (int shift = 0; shift < 64; shift += 8) {
    out->push_back(static_cast<std::byte>(std::uint64_t{part.size()} >> shift));
  }
  out->insert(out->end(), part.begin(), part.end());
}

void AppendText(std::string_view text, std::vector<std::byte>* out) {
  const auto bytes = std::as_bytes(std::span(text));
  out->insert(out->end(), bytes.begin(), bytes.end());
}

std::string_view AsText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Takes one part from the front of `rest`.
std::span<const std::byte> Take(std::span<const std::byte>* rest, const std::string& where) {
  std::uint64_t size = 0;
  if (rest->size() < 8) throw Error(where, "is truncated");
  for (int i = 0; i < 8; ++i) size |= std::to_integer<std::uint64_t>((*rest)[i]) << (8 * i);
  *rest = rest->subspan(8);
  if (size > rest->size()) throw Error(where, "is truncated");
  const auto part = rest->first(size);
  *rest = rest->subspan(size);
  return part;
}

}  // namespace

std::vector<std::byte> PackCheckpoint(const Checkpoint& checkpoint) {
  const Json head = {
      {"record", ToJson(checkpoint.record)},
      {"branch",
       {checkpoint.branch.tokens, checkpoint.branch.branch_step, checkpoint.branch.total_steps}}};
  const std::string text = head.dump();
  std::vector<std::byte> bytes;
  bytes.reserve(text.size() + checkpoint.state.size() + checkpoint.trunk_state.size() + 128);
  AppendText(kMagic, &bytes);
  Append(std::as_bytes(std::span(text)), &bytes);
  Append(checkpoint.state, &bytes);
  Append(checkpoint.trunk_state, &bytes);
  AppendText(Sha256(bytes), &bytes);
  return bytes;
}

Checkpoint UnpackCheckpoint(std::span<const std::byte> bytes, const std::string& where) {
  if (bytes.size() < kMagic.size() + kHashDigits || AsText(bytes.first(kMagic.size())) != kMagic) {
    throw Error(where, "is not a checkpoint of a study run");
  }
  const auto body = bytes.first(bytes.size() - kHashDigits);
  if (Sha256(body) != AsText(bytes.last(kHashDigits))) {
    throw Error(where, "is damaged or truncated");
  }
  auto rest = body.subspan(kMagic.size());
  const Json json = ParseJson(AsText(Take(&rest, where)), where);
  JsonObject head(json, where);
  const Json* record = head.Member("record");
  std::vector<std::int64_t> branch;
  head.Require("branch", &branch);
  if (record == nullptr || branch.size() != 3) {
    throw Error(where, "is not a checkpoint of a study run");
  }
  Checkpoint checkpoint;
  checkpoint.record = ReadRunRecord(*record, where);
  checkpoint.branch = {branch[0], branch[1], branch[2]};
  const auto state = Take(&rest, where), trunk_state = Take(&rest, where);
  checkpoint.state.assign(state.begin(), state.end());
  checkpoint.trunk_state.assign(trunk_state.begin(), trunk_state.end());
  return checkpoint;
}

}  // namespace fp4lab::study
