// The diagnostics of quantized matrices, and intervals of means.
#include "fp4lab/quantize/statistics.h"

#include <optional>
#include <string>

#include "arrays.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/threads_scope.h"
#include "fp4lab/io/json.h"
#include "fp4lab/study/numbers/statistics.h"

namespace fp4lab::python {
namespace {

std::string DiagnosticTable() {
  Json rows = Json::array();
  for (const Diagnostic& d : Diagnostics()) {
    rows.push_back({{"key", d.key},
                    {"log_key", d.log_key},
                    {"name", d.name},
                    {"label", d.label},
                    {"unit", d.unit},
                    {"definition", d.definition},
                    {"reading", d.reading},
                    {"digits", d.digits}});
  }
  return rows.dump();
}

// (numbers in the order of Diagnostics(), elements that were measured).
nb::object MeasureArray(const AnyMatrix& array, const std::string& name,
                        const std::string& rounding, bool columnwise,
                        const std::vector<float>& amax, const std::optional<SourceNames>& source,
                        int threads) {
  const Dialect dialect = DialectWith(name, rounding);
  QuantizationStatistics statistics;
  {
    const nb::gil_scoped_release release;
    const ThreadsScope scope(CheckedThreads(threads));
    const Input input(array);
    const MatrixView<const float> x = columnwise ? input.view().Transposed() : input.view();
    statistics = MeasureQuantization(dialect, x, OptionsOf(dialect, x, amax, std::nullopt, source));
  }
  return nb::make_tuple(statistics.values.numbers, statistics.elements);
}

}  // namespace

void BindStatistics(Bindings& m) {
  m.def("diagnostics", &DiagnosticTable);
  m.def("measure", &MeasureArray, nb::arg("x").noconvert(), nb::arg("dialect"), nb::arg("rounding"),
        nb::arg("columnwise"), nb::arg("amax"), nb::arg("source").none(), nb::arg("threads"));
  // The t below which Student's t lies with probability p.
  m.def("student_quantile",
        [](double p, double degrees) { return study::StudentQuantile(p, degrees); });
}

}  // namespace fp4lab::python
