#include "fp4lab/study/parity/metric_log.h"

#include <cmath>
#include <filesystem>
#include <set>
#include <string>

#include "fp4lab/base/error.h"
#include "fp4lab/io/file.h"
#include "fp4lab/study/parity/event_file.h"
#include "tests/study/support/events.h"
#include "tests/study/support/synthetic.h"
#include "tests/support/catch.h"

namespace fp4lab::study {
namespace {

using Catch::Matchers::ContainsSubstring;
using Series = std::map<double, double>;

class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / "fp4lab_metric_log_test") {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string Add(const std::string& name, const std::string& text) const {
    WriteFileAtomically(path_ / name, text);
    return (path_ / name).string();
  }
  std::string Path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

TEST_CASE("Names of metrics are in lower case and each stands once", "[parity]") {
  std::set<std::string_view> names;
  for (const Metric& metric : kMetrics) {
    CHECK_FALSE(metric.names[0].name.empty());
    for (const MetricName& name : metric.names) {
      if (name.name.empty()) continue;
      CHECK(names.insert(name.name).second);
      for (const char c : name.name) CHECK_FALSE(('A' <= c && c <= 'Z'));
    }
  }
}

TEST_CASE("The metrics of MaxText, Megatron-LM, torchtitan and fp4lab train are read", "[parity]") {
  const MetricLog maxtext = ReadMetricText(
      "{\"learning/grad_norm\": 1.0, \"learning/raw_grad_norm\": 5.5, \"learning/loss\": 10.5, "
      "\"perf/step_time_seconds\": 2.5, \"perf/per_device_tokens_per_sec\": 4928.5, \"step\": 0.0, "
      "\"run_name\": \"base\"}\n"
      "{\"step\": 0.0, \"eval/avg_loss\": 9}\n"
      "{\"learning/loss\": NaN, \"step\": 1.0}\n",
      "m.jsonl");
  CHECK(maxtext.series.at("loss").at(0) == 10.5);
  CHECK(std::isnan(maxtext.series.at("loss").at(1)));
  CHECK(maxtext.series.at("gradient_norm") == Series{{0, 5.5}});  // before clipping
  CHECK(maxtext.series.at("step_seconds") == Series{{0, 2.5}});
  CHECK(maxtext.series.at("tokens_per_second") == Series{{0, 4928.5}});
  CHECK(maxtext.names.at("gradient_norm") == "learning/raw_grad_norm");
  const MetricLog megatron = ReadMetricText(
      "{\"iteration\": 10, \"lm loss\": 8.5, \"grad-norm\": 2, \"mem-allocated-bytes\": "
      "2147483648, \"iteration-time\": 0.5}\n",
      "g.jsonl");
  CHECK(megatron.series.at("loss") == Series{{10, 8.5}});
  CHECK(megatron.series.at("memory") == Series{{10, 2}});
  CHECK(megatron.series.at("step_seconds") == Series{{10, 0.5}});
  const MetricLog titan = ReadMetricText(
      "{\"step\": 5, \"loss_metrics/global_avg_loss\": 7.25, \"grad_norm\": 1.5, "
      "\"throughput(tps)\": 1000, \"memory/max_reserved(GiB)\": 30.5, "
      "\"time_metrics/end_to_end(s)\": 0.25}\n",
      "t.jsonl");
  CHECK(titan.series.at("loss") == Series{{5, 7.25}});
  CHECK(titan.series.at("memory") == Series{{5, 30.5}});
  CHECK(titan.series.size() == 5);
  const MetricLog own = ReadMetricText(
      "{\"step\":1,\"learning/loss\":3.5,\"learning/grad_norm\":0.5,"
      "\"learning/total_tokens\":512}\n{\"eval/avg_loss\":3,\"step\":1}\n",
      "metrics.jsonl", {.axis = LogAxis::kTokens});
  CHECK(own.by_tokens);
  CHECK(own.series.at("loss") == Series{{512, 3.5}});
}

TEST_CASE("CSV with empty cells, quotes and a name of the user's", "[parity]") {
  const MetricLog log = ReadMetricText(
      "Step,my loss,loss,grad_norm\n1,3.5,9,\n2,\"3.25\",9,0.5\n3,,9,\n4,nan,9,inf\n", "a.csv",
      {.loss = "My Loss"});
  CHECK(log.series.at("loss").size() == 3);
  CHECK(log.series.at("loss").at(2) == 3.25);
  CHECK(std::isnan(log.series.at("loss").at(4)));
  CHECK(log.series.at("gradient_norm") == Series{{2, 0.5}, {4, INFINITY}});
  CHECK(log.names.at("loss") == "my loss");
}

TEST_CASE("A restart's steps replace those before it, with a note", "[parity]") {
  const MetricLog log = ReadMetricText("step,loss\n1,5\n2,4\n3,3\n2,4.5\n", "a.csv");
  CHECK(log.series.at("loss") == Series{{1, 5}, {2, 4.5}, {3, 3}});
  REQUIRE(log.notes.size() == 1);
  CHECK_THAT(log.notes[0], ContainsSubstring("a.csv: line 5 goes back"));
}

TEST_CASE("Bad logs are refused with file, line and remedy", "[parity]") {
  const struct {
    const char *text, *problem;
    LogOptions options = {};
  } kCases[] = {
      {"step,accuracy\n", "line 1: the header names no loss; name a column one of loss, "},
      {"step,my_los\n1,2\n", "did you mean \"my_los\"?", {.loss = "my_loss"}},
      {"loss\n1\n", "line 1: the header names neither tokens nor steps"},
      {"step,loss\n1,2\n", "line 1: the header names no tokens", {.axis = LogAxis::kTokens}},
      {"step,loss\n1,2\n2,x\n", "line 3: \"x\" in column \"loss\" is no number"},
      {"step,loss\n1,2\n2\n", "line 3: has 1 cell, and the header has 2"},
      {"step,loss\n,2\n", "line 2: has neither tokens nor a step"},
      {"step,loss\n-1,2\n", "line 2: tokens and steps must be 0 or more"},
      {"{\"step\": 1, \"loss\": 2}\n[1]\n", "line 2: is no JSON object"},
      {"{\"step\": 1, \"loss\": [2]}\n", "line 1: \"loss\" must be a number"},
      {"{\"loss\": 2}\n", "line 1: has neither tokens nor steps"},
      {"{\"step\": 1, \"loss\": 2}\n{\"tokens\": 5, \"loss\": 2}\n", "line 2: has no step"},
  };
  for (const auto& c : kCases) {
    CAPTURE(c.text);
    CHECK_THROWS_WITH(ReadMetricText(c.text, "a.log", c.options),
                      ContainsSubstring("a.log: ") && ContainsSubstring(c.problem));
  }
  const Folder folder;
  CHECK_THROWS_WITH(ReadMetricLogs(folder.Add("a.jsonl", "{\"step\": 1, \"lr\": 2}\n")),
                    ContainsSubstring("a.jsonl: line 1: the file ends and has no loss"));
  CHECK_THROWS_WITH(ReadMetricLogs(folder.Path()),
                    ContainsSubstring("has no TensorBoard event file"));
  folder.Add("results.json", "{}");
  CHECK_THROWS_WITH(ReadMetricLogs(folder.Path()), ContainsSubstring("#ARM"));
  CHECK_THROWS_WITH(ReadMetricLogs(folder.Path() + "/results.json"), ContainsSubstring("#ARM"));
  CHECK_THROWS_WITH(ReadMetricLogs(folder.Path() + "/none.csv"), ContainsSubstring("none.csv"));
}

TEST_CASE("Event files are read with both kinds of scalars", "[parity]") {
  CHECK(MaskedCrc("123456789") == MaskedCrcBitwise("123456789"));
  // The known CRC-32C of these digits is E3069283.
  CHECK(MaskedCrc("123456789") == ((0xE3069283u >> 15) | (0xE3069283u << 17)) + 0xA282EAD8u);
  const std::string file =
      VersionEvent() + SimpleEvent(1, "lm loss", 3.5f) + TensorEvent(2, "lm loss", 3.25f) +
      SimpleEvent(2, "grad-norm", 0.5f) + SimpleEvent(2, "lm loss vs samples", 9) +
      EventOf(3, "lm loss", BytesField(8, VarintField(1, 2) + DoubleField(6, 3))) +
      EventOf(4, "lm loss", BytesField(8, VarintField(1, 1) + BytesField(4, "\0\0\x40\x40"))) +
      EventOf(5, "lm loss", BytesField(8, VarintField(1, 3) + BytesField(7, VarintBytes(2)))) +
      EventOf(6, "lm loss", BytesField(8, VarintField(1, 19) + VarintField(13, 0x3C00))) +
      EventOf(7, "lm loss", BytesField(8, VarintField(1, 7) + BytesField(8, "text")));
  const MetricLog log = ReadMetricEvents(file, "events.out.tfevents.1");
  CHECK(log.series.at("loss").at(1) == 3.5);
  CHECK(log.series.at("loss").at(2) == 3.25);
  CHECK(log.series.at("loss").at(3) == 3);
  CHECK(log.series.at("loss").at(5) == 2);
  CHECK(log.series.at("loss").at(6) == 1);
  CHECK_FALSE(log.series.at("loss").contains(7));
  CHECK(log.series.at("gradient_norm") == Series{{2, 0.5}});
}

TEST_CASE("Every damage of an event file is seen, and half a record is noted", "[parity]") {
  const std::string whole = VersionEvent() + SimpleEvent(1, "loss", 3.5f);
  const std::string file = whole + SimpleEvent(2, "loss", 3);
  for (std::size_t at = 0; at < file.size(); ++at) {
    std::string damaged = file;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    CAPTURE(at);
    CHECK_THROWS_WITH(ReadMetricEvents(damaged, "x.tfevents"),
                      ContainsSubstring("x.tfevents: byte "));
  }
  for (std::size_t size = whole.size() + 1; size < file.size(); ++size) {
    const MetricLog log = ReadMetricEvents(file.substr(0, size), "x.tfevents");
    CHECK(log.series.at("loss") == Series{{1, 3.5}});
    REQUIRE(log.notes.size() == 1);
    CHECK_THAT(log.notes[0], ContainsSubstring("byte " + std::to_string(whole.size()) +
                                               ": the last record is half there"));
  }
  CHECK_THROWS_WITH(ReadMetricEvents(Record(BytesField(5, "\x0A\x7F")), "x.tfevents"),
                    ContainsSubstring("byte 16: the event ends within a field"));
  CHECK_THROWS_WITH(ReadMetricEvents(VersionEvent() + SimpleEvent(1, "lr", 1), "x.tfevents"),
                    ContainsSubstring("has no loss; it has: lr; a loss is called one of"));
}

TEST_CASE("A folder of event files is one run, restarts included", "[parity]") {
  const Folder folder;
  folder.Add("events.out.tfevents.100.host",
             VersionEvent() + SimpleEvent(1, "loss", 5) + SimpleEvent(2, "loss", 4));
  folder.Add("events.out.tfevents.200.host",
             VersionEvent() + SimpleEvent(2, "loss", 4.5f) + SimpleEvent(3, "loss", 3));
  const std::vector<MetricLog> logs = ReadMetricLogs(folder.Path());
  REQUIRE(logs.size() == 1);
  CHECK(logs[0].series.at("loss") == Series{{1, 5}, {2, 4.5}, {3, 3}});
}

TEST_CASE("The arms of a study are runs, a seed each", "[parity]") {
  const Folder folder;
  folder.Add("results.json", SyntheticResults({.seeds = 3}).dump());
  for (const std::string& path :
       {folder.Path() + "#nvfp4", folder.Path() + "/results.json#nvfp4"}) {
    const std::vector<MetricLog> logs = ReadMetricLogs(path);
    REQUIRE(logs.size() == 3);
    CHECK(logs[0].seed != logs[1].seed);
    CHECK(logs[0].series.at("loss").size() == 60);
    CHECK_FALSE(logs[0].by_tokens);
  }
  CHECK(ReadMetricLogs(folder.Path() + "#nvfp4", {.axis = LogAxis::kTokens})[0].by_tokens);
  CHECK_THROWS_WITH(ReadMetricLogs(folder.Path() + "#nvfp5"),
                    ContainsSubstring("did you mean \"nvfp4\"?"));
}

TEST_CASE("Columns are a run", "[parity]") {
  const Json columns = {{"step", {1, 2, 3}}, {"loss", {3.5, "nan", nullptr}}, {"name", "x"}};
  const MetricLog log = ReadMetricColumns(columns, "run 0");
  CHECK(log.series.at("loss").size() == 2);
  CHECK_THROWS_WITH(ReadMetricColumns({{"step", {1, 2}}, {"loss", {3.5}}}, "run 0"),
                    ContainsSubstring("run 0#/step: has 2 numbers, and another column has 1"));
  CHECK_THROWS_WITH(ReadMetricColumns({{"loss", {3.5}}}, "run 0"),
                    ContainsSubstring("has neither tokens nor steps"));
  CHECK_THROWS_WITH(ReadMetricColumns({{"step", {1}}}, "run 0"), ContainsSubstring("has no loss"));
}

}  // namespace
}  // namespace fp4lab::study
