#include <map>
#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/exchange/matrix_file.h"
#include "fp4lab/exchange/stored_file.h"
#include "fp4lab/io/memory.h"

namespace fp4lab {
namespace {

struct DtypePair {
  std::string_view npy, safetensors;
};
// NumPy's raw bytes ("V") are treated as codes of unknown type.
constexpr DtypePair kDtypes[] = {
    {"|u1", "U8"},  {"|V1", "U8"},  {"<f4", "F32"}, {"<f2", "F16"},  {"<u2", "U16"},
    {"|V2", "U16"}, {"|i1", "I8"},  {"<i2", "I16"}, {"<i4", "I32"},  {"<u4", "U32"},
    {"<i8", "I64"}, {"<u8", "U64"}, {"<f8", "F64"}, {"|b1", "BOOL"},
};

bool IsMetadata(std::string_view name) { return name == "fp4lab" || name.starts_with("fp4lab."); }

std::string NpyDtype(const SafetensorsTensor& tensor) {
  for (const DtypePair& d : kDtypes) {
    if (d.safetensors == tensor.dtype) return std::string(d.npy);
  }
  return tensor.dtype == "BF16" ? "<u2" : "|u1";  // F4, F8_*: bytes
}

}  // namespace

TensorFile::TensorFile(const std::filesystem::path& path) : content_(path) {
  const std::string where = path.string(), ending = SplitPlace(where).ending;
  if (ending == ".safetensors") {
    tensors_ = ViewSafetensors(content_.bytes(), where);
    return;
  }
  if (ending != ".npz") throw Error(where, "is not a .safetensors, .npz or .gguf file");
  npz_.emplace(content_.bytes(), where);
  for (const std::string& name : npz_->Names()) {
    if (IsMetadata(name)) {
      tensors_.metadata[name] = std::string(npz_->Read(name).Text());
      continue;
    }
    const NpyArray array = npz_->ReadHeader(name);
    for (const DtypePair& d : kDtypes) {
      if (d.npy != array.dtype) continue;
      tensors_.tensors[name] = {std::string(d.safetensors), array.shape, {}};
      break;
    }
  }
}

void TensorFile::Load(std::string_view prefix) {
  if (!npz_) return;
  std::uintmax_t bytes = 0;
  for (auto& [name, tensor] : tensors_.tensors) {
    if (!name.starts_with(prefix)) continue;
    tensor.bytes = std::move(npz_->Read(name).bytes);
    bytes += tensor.bytes.size();
    RequireMemory(bytes, name);
  }
}

void WriteTensors(const std::filesystem::path& path, const SafetensorsFile& file) {
  const IeeeArithmetic ieee;
  const FilePlace place = SplitPlace(path.string());
  if (place.ending == ".safetensors") return WriteSafetensors(path, file);
  std::map<std::string, NpyArray> arrays;
  for (const auto& [name, tensor] : file.tensors) {
    NpyArray array{NpyDtype(tensor), tensor.shape,
                   ByteArray::ViewOf({tensor.bytes.data(), tensor.bytes.size()}), ""};
    if (tensor.dtype == "F4") array.shape.back() /= 2;  // two codes a byte
    arrays[name] = std::move(array);
  }
  for (const auto& [name, text] : file.metadata) {
    if (!IsMetadata(name)) continue;
    const auto bytes = std::as_bytes(std::span(text));
    arrays[name] = {"|u1", {text.size()}, {bytes.begin(), bytes.end()}, ""};
  }
  WriteNpz(path, arrays);
}

}  // namespace fp4lab
