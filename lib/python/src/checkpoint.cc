// The check of a whole checkpoint, as JSON.
#include <string>

#include "arrays.h"
#include "fp4lab/base/error.h"
#include "fp4lab/checkpoint/check.h"

namespace fp4lab::python {
namespace {

SafetensorsFile RefuseNpz(const std::filesystem::path& path) {
  throw Error(path.string(), "stands in a folder of shards: pass the .npz file alone");
}

std::string CheckCheckpointJson(const std::string& path, const std::string& original,
                                const std::string& values) {
  const nb::gil_scoped_release release;
  const CheckOptions options{.original = original, .values = values, .read_npz = RefuseNpz};
  return ReportJson(CheckCheckpoint(path, options)).dump();
}

}  // namespace

void BindCheckpoint(Bindings& m) { m.def("check_checkpoint", &CheckCheckpointJson); }

}  // namespace fp4lab::python
