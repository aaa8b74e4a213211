#include "fp4lab/io/tensors/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/file_content.h"
#include "fp4lab/io/json.h"

namespace fp4lab {
namespace {

constexpr std::size_t kMaxHeader = 100'000'000;  // the reference implementation's limit
constexpr std::string_view kMetadata = "__metadata__";

// The byte range of a tensor in the data part of the file.
struct Extent {
  std::size_t begin, end;
  std::string name;
};

// Parses the header and refuses a repeated key, of which nlohmann/json would keep the last.
Json ParseWithoutDuplicates(std::string_view text, const std::string& where) {
  WalkJson(text, where, [&where](const std::string& key, bool repeated, const JsonPlace&) {
    RefuseControlCharacters(key, where);
    if (repeated) throw Error(where, "the header has the key \"" + key + "\" twice");
  });
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const Json::exception&) {
    throw Error(where, "the header is not JSON");
  }
}

std::size_t ReadLength(std::span<const std::byte> file, const std::string& where) {
  std::uint64_t length = 0;
  if (file.size() < sizeof length) {
    throw Error(where, "is not a safetensors file: " + std::to_string(file.size()) + " bytes");
  }
  std::memcpy(&length, file.data(), sizeof length);
  if (length > kMaxHeader || length > file.size() - sizeof length) {
    throw Error(where, "states a header of " + std::to_string(length) + " bytes in a file of " +
                           std::to_string(file.size()) + ": truncated, or not a safetensors file");
  }
  return static_cast<std::size_t>(length);
}

Extent ReadEntry(const Json& entry, const std::string& name, const std::string& where,
                 std::size_t data_size, SafetensorsTensor* tensor) {
  const std::string place = where + "#" + name;
  JsonObject o(entry, place);
  std::vector<std::uint64_t> shape, offsets;
  o.Require("dtype", &tensor->dtype);
  o.Require("shape", &shape);
  o.Require("data_offsets", &offsets);
  o.Finish();
  tensor->shape.assign(shape.begin(), shape.end());
  if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > data_size) {
    throw Error(place, "data_offsets do not lie in the file's " + std::to_string(data_size) +
                           " bytes of data: truncated or damaged");
  }
  const std::size_t needed = SafetensorsBytes(tensor->dtype, tensor->shape, place);
  if (offsets[1] - offsets[0] != needed) {
    throw Error(place, "dtype and shape need " + std::to_string(needed) +
                           " bytes, data_offsets give " + std::to_string(offsets[1] - offsets[0]));
  }
  return {offsets[0], offsets[1], name};
}

void CheckThatExtentsTile(std::vector<Extent> extents, std::size_t size, const std::string& where) {
  std::sort(extents.begin(), extents.end(), [](const Extent& x, const Extent& y) {
    return std::pair(x.begin, x.end) < std::pair(y.begin, y.end);
  });
  std::size_t at = 0;
  for (const Extent& extent : extents) {
    if (extent.begin != at) {
      throw Error(where + "#" + extent.name,
                  extent.begin < at ? "overlaps another tensor" : "leaves a gap before it");
    }
    at = extent.end;
  }
  if (at != size) {
    throw Error(where, std::to_string(size - at) + " bytes after the last tensor");
  }
}

// The JSON text of the header, padded to a multiple of 8 bytes.
std::string HeaderOf(const SafetensorsFile& file) {
  Json header = Json::object();
  if (!file.metadata.empty()) header[std::string(kMetadata)] = file.metadata;
  std::size_t at = 0;
  for (const auto& [name, tensor] : file.tensors) {
    Expects(tensor.bytes.size() == SafetensorsBytes(tensor.dtype, tensor.shape, name),
            "a tensor holds the bytes that its dtype and shape need");
    header[name] = {{"dtype", tensor.dtype},
                    {"shape", tensor.shape},
                    {"data_offsets", {at, at + tensor.bytes.size()}}};
    at += tensor.bytes.size();
  }
  std::string text = header.dump();
  text.resize(RoundUp(text.size(), 8), ' ');
  return text;
}

void Write(const SafetensorsFile& file, const std::string& header, const ByteSink& sink) {
  const std::uint64_t length = header.size();
  sink(std::as_bytes(std::span(&length, 1)));
  sink(std::as_bytes(std::span(header)));
  for (const auto& [name, tensor] : file.tensors) {
    sink({tensor.bytes.data(), tensor.bytes.size()});
  }
}

}  // namespace

std::size_t SafetensorsBytes(std::string_view dtype, std::span<const std::size_t> shape,
                             std::string_view where) {
  const auto found = std::find_if(kSafetensorsDtypes.begin(), kSafetensorsDtypes.end(),
                                  [dtype](const SafetensorsDtype& d) { return d.name == dtype; });
  if (found == kSafetensorsDtypes.end()) {
    throw Error(where, "unknown dtype \"" + std::string(dtype) + "\"; " +
                           DidYouMean(dtype, NamesOf(kSafetensorsDtypes)));
  }
  constexpr std::size_t kMaxBits = std::numeric_limits<std::size_t>::max();
  std::size_t bits = static_cast<std::size_t>(found->bits);
  const bool empty = std::find(shape.begin(), shape.end(), 0u) != shape.end();
  for (const std::size_t n : shape) {
    if (empty) return 0;
    if (bits > kMaxBits / n) throw Error(where, "a shape whose size overflows");
    bits *= n;
  }
  if (bits % 8 != 0) {
    throw Error(where, "elements of " + std::to_string(found->bits) +
                           " bits that do not fill whole bytes: pad the last dimension");
  }
  return bits / 8;
}

SafetensorsFile ViewSafetensors(std::span<const std::byte> file, const std::string& where) {
  const std::size_t header_size = ReadLength(file, where);
  const std::string_view header(reinterpret_cast<const char*>(file.data()) + 8, header_size);
  const std::span<const std::byte> data = file.subspan(8 + header_size);
  const Json json = ParseWithoutDuplicates(header, where);
  if (!json.is_object()) throw Error(where, "the header is not a JSON object");
  SafetensorsFile result;
  std::vector<Extent> extents;
  for (const auto& [name, entry] : json.items()) {
    if (name == kMetadata) {
      if (!entry.is_object()) throw Error(where, "__metadata__ is not an object");
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string()) throw Error(where, "__metadata__." + key + " is not a string");
        result.metadata[key] = value.get<std::string>();
      }
      continue;
    }
    SafetensorsTensor& tensor = result.tensors[name];
    extents.push_back(ReadEntry(entry, name, where, data.size(), &tensor));
    tensor.bytes = ByteArray::ViewOf(
        data.subspan(extents.back().begin, extents.back().end - extents.back().begin));
  }
  CheckThatExtentsTile(std::move(extents), data.size(), where);
  return result;
}

SafetensorsFile ParseSafetensors(std::span<const std::byte> file, const std::string& where) {
  SafetensorsFile result = ViewSafetensors(file, where);
  for (auto& [name, tensor] : result.tensors) tensor.bytes.Own();
  return result;
}

SafetensorsFile ReadSafetensors(const std::filesystem::path& path) {
  const FileContent file(path);
  return ParseSafetensors(file.bytes(), path.string());
}

std::vector<std::byte> FormatSafetensors(const SafetensorsFile& file) {
  std::vector<std::byte> bytes;
  Write(file, HeaderOf(file), [&bytes](std::span<const std::byte> part) {
    bytes.insert(bytes.end(), part.begin(), part.end());
  });
  return bytes;
}

void WriteSafetensors(const std::filesystem::path& path, const SafetensorsFile& file) {
  std::string header;
  try {
    header = HeaderOf(file);
  } catch (const Json::exception&) {
    throw Error(path.string(), "cannot hold a tensor whose name is not UTF-8: give another #NAME");
  }
  WriteFileAtomically(path, [&](const ByteSink& sink) { Write(file, header, sink); });
}

}  // namespace fp4lab
