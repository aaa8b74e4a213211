// The parity of training runs with a baseline's, as JSON.
#include "fp4lab/study/parity/parity.h"

#include <string>
#include <vector>

#include "arrays.h"
#include "fp4lab/base/error.h"

namespace fp4lab::python {
namespace {

// Runs as texts: a path, or the JSON of the columns of a run.
std::vector<study::MetricLog> LogsOf(const Json& runs, const std::string& arm,
                                     const study::LogOptions& options) {
  std::vector<study::MetricLog> logs;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (!runs[i].is_string()) {
      logs.push_back(
          study::ReadMetricColumns(runs[i], arm + "[" + std::to_string(i) + "]", options));
      continue;
    }
    for (study::MetricLog& log : study::ReadMetricLogs(runs[i].get<std::string>(), options)) {
      logs.push_back(std::move(log));
    }
  }
  return logs;
}

// (the document, its text), of {"runs", "baseline", "by", "loss", "margin", ...}.
nb::object ParityOf(const std::string& question) {
  std::string json, text;
  {
    const nb::gil_scoped_release release;
    const Json asked = ParseJson(question, "parity");
    JsonObject o(asked, "parity");
    study::LogOptions log;
    study::ParityOptions options;
    std::string by;
    o.Require("by", &by);
    if (by != "steps" && by != "tokens") throw Error("by", "must be \"steps\" or \"tokens\"");
    log.axis = by == "tokens" ? study::LogAxis::kTokens : study::LogAxis::kSteps;
    o.Require("loss", &log.loss);
    o.Require("margin", &options.margin);
    options.margin /= 100;
    o.Require("confidence", &options.confidence);
    o.Require("last", &options.last);
    o.Require("paired", &options.paired);
    if (o.Has("from")) o.Read("from", &options.from.emplace());
    if (o.Has("to")) o.Read("to", &options.to.emplace());
    const Json *runs = o.Member("runs"), *baseline = o.Member("baseline");
    const Json document = study::ParityDocument(
        {LogsOf(*runs, "runs", log), LogsOf(*baseline, "baseline", log)}, options);
    json = document.dump();
    text = study::ParityText(document);
  }
  return nb::make_tuple(json, text);
}

}  // namespace

void BindParity(Bindings& m) { m.def("parity", &ParityOf); }

}  // namespace fp4lab::python
