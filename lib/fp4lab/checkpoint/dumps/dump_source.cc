#include "fp4lab/checkpoint/dumps/dump_source.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/exchange/number_type.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/tensors/npy.h"

namespace fp4lab {
namespace {

namespace fs = std::filesystem;

bool IsNpy(const fs::path& path) { return LowerCase(path.extension().string()) == ".npy"; }

struct NpyType {
  std::string_view npy, dtype;
};
constexpr NpyType kNpyTypes[] = {{"<f4", "F32"},  {"<f8", "F64"}, {"<f2", "F16"}, {"<u2", "BF16"},
                                 {"|V2", "BF16"}, {"|u1", "U8"},  {"|i1", "I8"},  {"<i2", "I16"},
                                 {"<i4", "I32"},  {"<u4", "U32"}, {"<i8", "I64"}, {"<u8", "U64"},
                                 {"|b1", "BOOL"}};

// A type that DecodeNumbers does not read, element by element.
template <class T>
void DecodeAs(std::span<const std::byte> bytes, std::span<double> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    T number;
    std::memcpy(&number, bytes.data() + i * sizeof(T), sizeof(T));
    values[i] = static_cast<double>(number);
  }
}
using DecodeFunction = void (*)(std::span<const std::byte> bytes, std::span<double> values);
struct WideType {
  std::string_view dtype;
  std::size_t bytes;
  DecodeFunction decode;
};
constexpr WideType kWideTypes[] = {
    {"F64", 8, DecodeAs<double>},       {"BOOL", 1, DecodeAs<std::uint8_t>},
    {"I8", 1, DecodeAs<std::int8_t>},   {"I16", 2, DecodeAs<std::int16_t>},
    {"I32", 4, DecodeAs<std::int32_t>}, {"U32", 4, DecodeAs<std::uint32_t>},
    {"I64", 8, DecodeAs<std::int64_t>}, {"U64", 8, DecodeAs<std::uint64_t>}};

const WideType* FindWideType(std::string_view dtype) {
  const auto* const row = std::find_if(std::begin(kWideTypes), std::end(kWideTypes),
                                       [&](const WideType& t) { return t.dtype == dtype; });
  return row == std::end(kWideTypes) ? nullptr : row;
}

std::string_view NumberName(std::string_view dtype) { return dtype == "U16" ? "BF16" : dtype; }

}  // namespace

DumpSource::DumpSource(const fs::path& path, const NpzReader& read_npz) {
  if (!fs::is_directory(path)) {
    if (!IsNpy(path) || !Exists(path)) {
      checkpoint_ = OpenCheckpoint(path, read_npz);
    } else {
      checkpoint_.path = path.string();
      AddNpy(path);
    }
    return;
  }
  std::vector<fs::path> npys;
  bool others = false;
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    const std::string ending = LowerCase(entry.path().extension().string());
    if (IsNpy(entry.path())) npys.push_back(entry.path());
    others = others || ending == ".safetensors" || ending == ".npz" || ending == ".gguf";
  }
  if (npys.empty() && !others) {
    throw Error(path.string(),
                "holds no .safetensors, .npz or .npy file; torch's .pt files are not "
                "read: write them with safetensors.torch.save_file");
  }
  checkpoint_.path = path.string();
  if (others) checkpoint_ = OpenCheckpoint(path, read_npz);
  std::sort(npys.begin(), npys.end());
  for (const fs::path& npy : npys) AddNpy(npy);
}

void DumpSource::AddNpy(const fs::path& path) {
  npys_.push_back(std::make_unique<FileContent>(path));
  NpyArray array = ViewNpy(npys_.back()->bytes(), path.string());
  SafetensorsTensor tensor{array.dtype, std::move(array.shape), std::move(array.bytes)};
  for (const NpyType& type : kNpyTypes) {
    if (type.npy == array.dtype) tensor.dtype = type.dtype;
  }
  const std::string name = path.stem().string();
  if (!checkpoint_.tensors.tensors.emplace(name, std::move(tensor)).second) {
    throw Error(path.string(),
                "another file of the folder has a tensor " + name + " as well; remove one of them");
  }
}

bool DumpSource::IsRead(const std::string& dtype) {
  if (FindWideType(dtype) != nullptr) return true;
  const auto type = FindNumberType(NumberName(dtype));
  return type && Bits(*type) % 8 == 0;
}

void DumpSource::Decode(const SafetensorsTensor& tensor, std::size_t first,
                        std::span<double> values) const {
  const IeeeArithmetic ieee;
  const std::span<const std::byte> all(tensor.bytes.data(), tensor.bytes.size());
  std::span<const std::byte> part;
  if (const WideType* wide = FindWideType(tensor.dtype)) {
    part = all.subspan(first * wide->bytes, values.size() * wide->bytes);
    wide->decode(part, values);
  } else {
    const NumberType type = FindNumberType(NumberName(tensor.dtype)).value();
    const std::size_t size = static_cast<std::size_t>(Bits(type)) / 8;
    part = all.subspan(first * size, values.size() * size);
    std::vector<float> numbers(values.size());
    DecodeNumbers(type, part, numbers);
    std::copy(numbers.begin(), numbers.end(), values.begin());
  }
  if (const FileContent* content = checkpoint_.ContentOf(part)) content->Forget(part);
}

}  // namespace fp4lab
