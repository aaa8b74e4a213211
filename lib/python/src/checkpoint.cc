// The check of a whole checkpoint, and the comparison of two dumps, as JSON.
#include <optional>
#include <string>

#include "arrays.h"
#include "fp4lab/base/error.h"
#include "fp4lab/checkpoint/check.h"
#include "fp4lab/checkpoint/dumps/dumps.h"

namespace fp4lab::python {
namespace {

SafetensorsFile RefuseNpz(const std::filesystem::path& path) {
  throw Error(path.string(), "stands in a folder of shards: pass the .npz file alone");
}

std::string CheckCheckpointJson(const std::string& path, const std::string& original,
                                const std::string& values) {
  const nb::gil_scoped_release release;
  const CheckpointOptions options{.original = original, .values = values, .read_npz = RefuseNpz};
  return ReportJson(CheckCheckpoint(path, options)).dump();
}

std::string CompareDumpsJson(const std::string& first, const std::string& second,
                             std::optional<double> least_sqnr, const std::string& names) {
  const nb::gil_scoped_release release;
  const DumpOptions options{.least_sqnr_db = least_sqnr.value_or(0),
                            .only_equal = !least_sqnr,
                            .names = ParseDumpNames(ParseJson(names, "names"), "names"),
                            .read_npz = RefuseNpz,
                            .progress = {}};
  return ReportJson(CompareDumps(first, second, options)).dump();
}

}  // namespace

void BindCheckpoint(Bindings& m) {
  m.def("check_checkpoint", &CheckCheckpointJson);
  m.def("compare_dumps", &CompareDumpsJson, nb::arg("first"), nb::arg("second"),
        nb::arg("least_sqnr").none(), nb::arg("names"));
}

}  // namespace fp4lab::python
