#include "fp4lab/exchange/stored_file.h"

#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/memory/huge_pages.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/exchange/matrix_file.h"
#include "fp4lab/exchange/stored_grid.h"
#include "fp4lab/exchange/vendors/own_convention.h"
#include "fp4lab/io/json.h"
#include "fp4lab/io/tensors/npy.h"

namespace fp4lab {
namespace {

constexpr std::string_view kOurs = kOwnConvention, kGguf = "gguf";

std::vector<StoredFileEntry> List(const GgufFile& file) {
  std::vector<StoredFileEntry> entries;
  for (const std::string& name : ListGgufMatrices(file)) entries.push_back({name, "gguf"});
  return entries;
}

bool IsNamed(const StoredFileEntry& entry, const std::string& name) {
  if (entry.name == name) return true;
  const Vendor* vendor = FindVendor(entry.convention);
  const std::string codes = vendor != nullptr ? std::string(vendor->codes) : "codes";
  return entry.name + codes == name || OwnPrefix(entry.name) + codes == name ||
         (entry.convention == kGguf && entry.name == name + ".weight");
}

const StoredFileEntry& Pick(const std::vector<StoredFileEntry>& entries, const std::string& name,
                            const std::string& where) {
  const StoredFileEntry* found = nullptr;
  std::size_t matches = 0;
  for (const StoredFileEntry& entry : entries) {
    if (!name.empty() && !IsNamed(entry, name)) continue;
    if (found == nullptr || entry.convention != "te-columnwise") found = &entry;
    matches += entry.convention != "te-columnwise" ? 1 : 0;
  }
  if (found != nullptr && matches <= 1) return *found;
  if (entries.empty()) {
    throw Error(where,
                "holds no quantized matrix under the names of fp4lab, te, modelopt, "
                "compressed-tensors, comfyui or gguf");
  }
  std::vector<std::string> known;
  for (const StoredFileEntry& entry : entries) known.push_back(entry.name);
  if (!name.empty() && !NearNames(name, known).empty()) {
    throw Error(where, "has no quantized matrix " + name + "; " + DidYouMean(name, known));
  }
  std::string names;
  for (std::size_t i = 0; i < entries.size() && i < 8; ++i) {
    names += (names.empty() ? "" : ", ") + entries[i].name + " (" + entries[i].convention + ")";
  }
  if (entries.size() > 8) names += ", ...";
  throw Error(where,
              (name.empty() ? "holds " + std::to_string(entries.size()) + " quantized matrices"
                            : "has no quantized matrix " + name) +
                  "; name one, as in file#name: " + names);
}

}  // namespace

std::vector<std::string_view> Conventions() {
  std::vector<std::string_view> names = {kOurs, kGguf};
  for (const Vendor& v : kVendors) {
    if (!v.read_only) names.push_back(v.name);
  }
  return names;
}

std::vector<StoredFileEntry> ListStored(const std::filesystem::path& path) {
  const IeeeArithmetic ieee;
  const FilePlace place = SplitPlace(path.string());
  if (place.ending != ".gguf") return ListStored(TensorFile(path).tensors());
  const FileContent content(path);
  return List(ViewGguf(content.bytes(), path.string()));
}

StoredFile ReadStored(std::string_view text, const ReadStoredOptions& options) {
  const IeeeArithmetic ieee;
  const FilePlace place = SplitPlace(text);
  const std::string where = place.path.string();
  if (place.ending == ".gguf") {
    const FileContent content(place.path);
    const GgufFile file = ViewGguf(content.bytes(), where);
    const StoredFileEntry entry = Pick(List(file), place.name, where);
    return {entry, "", ReadGgufMatrix(file, entry.name, where)};
  }
  TensorFile file(place.path);
  const StoredFileEntry entry = Pick(ListStored(file.tensors()), place.name, where);
  file.Load(entry.name);
  return ReadStored(file.tensors(), entry, options, where);
}

void WriteStored(std::string_view text, const StoredMatrix& stored, std::string_view dialect,
                 std::string_view convention, float scale_max) {
  const IeeeArithmetic ieee;
  const FilePlace place = SplitPlace(text);
  const bool tensors = place.ending == ".safetensors" || place.ending == ".npz";
  if (convention == kGguf ? place.ending != ".gguf" : !tensors) {
    throw Error(text, "cannot be used with the naming convention " + std::string(convention) +
                          ": .gguf for gguf, .safetensors or .npz for the others");
  }
  if (convention == kGguf) {
    GgufFile file;
    AddGgufMatrix(stored, place.name, scale_max, &file);
    return WriteGguf(place.path, file);
  }
  SafetensorsFile file;
  if (convention == kOurs) {
    AddViews(stored, dialect, place.name, &file);
  } else {
    const Vendor* vendor = FindVendor(convention);
    if (vendor == nullptr || vendor->read_only) {
      const auto names = Conventions();
      throw Error("convention " + std::string(convention),
                  "is not known; " +
                      DidYouMean(convention, std::vector<std::string>(names.begin(), names.end())));
    }
    AddVendorMatrix(stored, {place.name, vendor}, scale_max, &file);
  }
  WriteTensors(place.path, file);
}

}  // namespace fp4lab
