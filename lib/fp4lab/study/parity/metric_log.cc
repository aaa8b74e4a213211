#include "fp4lab/study/parity/metric_log.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <span>
#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/printable.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/io/file.h"
#include "fp4lab/study/parity/event_file.h"

namespace fp4lab::study {
namespace {

using ByStep = std::map<double, double>;  // values

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// The cells of a line of CSV; a cell in quotes may hold commas.
std::vector<std::string> Cells(std::string_view line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      cells.emplace_back();
    } else {
      cells.back() += c;
    }
  }
  for (std::string& cell : cells) cell = std::string(Trimmed(cell));
  return cells;
}

// Python's json writes NaN, Infinity and -Infinity, which are no JSON: the line with these words in
// quotes, outside of strings.
std::string WithQuotedNaN(std::string_view line) {
  constexpr std::string_view kWords[] = {"-Infinity", "Infinity", "NaN"};
  std::string text;
  bool quoted = false;
  for (std::size_t i = 0; i < line.size();) {
    if (!quoted) {
      const auto* word = std::find_if(std::begin(kWords), std::end(kWords),
                                      [&](auto w) { return line.substr(i).starts_with(w); });
      if (word != std::end(kWords)) {
        text += '"' + std::string(*word) + '"';
        i += word->size();
        continue;
      }
    }
    if (quoted && line[i] == '\\' && i + 1 < line.size()) text += line[i++];
    if (line[i] == '"') quoted = !quoted;
    text += line[i++];
  }
  return text;
}

// A number as text has it: "2.75", "-1e-3", "nan", "Infinity".
std::optional<double> NumberOf(std::string_view text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, status] = std::from_chars(text.data(), end, value);
  if (status != std::errc() || rest != end || text.empty()) return std::nullopt;
  return value;
}

// A number, or the word for one that JSON lacks.
std::optional<double> NumberOf(const Json& json) {
  if (json.is_number()) return json.get<double>();
  if (!json.is_string()) return std::nullopt;
  const std::string text = LowerCase(json.get<std::string>());
  if (text == "nan") return NAN;
  if (text == "inf" || text == "infinity") return INFINITY;
  if (text == "-inf" || text == "-infinity") return -INFINITY;
  return std::nullopt;
}

// Collects what one file says of a run.
class Collector {
 public:
  Collector(std::string where, const LogOptions& options)
      : where_(std::move(where)), options_(options), loss_(LowerCase(options.loss)) {}

  std::size_t line = 0;  // counted from 1; 0: not a text

  [[noreturn]] void Fail(const std::string& what) const {
    throw Error(where_, (line > 0 ? "line " + std::to_string(line) + ": " : "") + what);
  }
  // Whether values under the name, in lower case, are wanted.
  bool Wants(std::string_view name) const {
    if (!loss_.empty() && name == loss_) return true;
    for (const Metric& metric : kMetrics) {
      for (const MetricName& known : metric.names) {
        if (!known.name.empty() && known.name == name) return true;
      }
    }
    return false;
  }
  void See(const std::string& name) { seen_.insert(name); }

  // Notes where a row stands; false: it says nowhere.
  bool At(std::optional<double> tokens, std::optional<double> step) {
    const bool tokens_first = options_.axis != LogAxis::kSteps;
    const bool by_tokens = tokens && (tokens_first || !step);
    if (!tokens && (!step || options_.axis == LogAxis::kTokens)) return false;
    if (rows_ > 0 && by_tokens != by_tokens_) {
      Fail("has " + std::string(by_tokens_ ? "no tokens" : "no step") +
           ", and lines before it have; write it in every line");
    }
    at_ = by_tokens ? *tokens : *step;
    if (!(at_ >= 0) || std::isinf(at_)) Fail("tokens and steps must be 0 or more, and finite");
    if (rows_ == 0) first_line_ = line;
    by_tokens_ = by_tokens;
    ++rows_;
    if (at_ < last_ && notes_.empty()) {
      notes_.push_back(where_ + ": " + (line > 0 ? "line " + std::to_string(line) : "its record") +
                       " goes back in the training; points are sorted, and of two at one place "
                       "the last counts");
    }
    last_ = at_;
    return true;
  }
  void Add(const std::string& name, double value) { collected_[name][at_] = value; }
  void Note(std::string note) { notes_.push_back(std::move(note)); }

  MetricLog Log(std::string name) {
    MetricLog log{.name = std::move(name),
                  .by_tokens = by_tokens_,
                  .notes = std::move(notes_),
                  .first_line = first_line_,
                  .lines = line};
    for (const Metric& metric : kMetrics) {
      std::vector<MetricName> names(metric.names.begin(), metric.names.end());
      if (metric.key == kLossKey && !loss_.empty()) names = {{loss_}};
      for (const MetricName& known : names) {
        const auto found = collected_.find(std::string(known.name));
        if (known.name.empty() || found == collected_.end()) continue;
        ByStep& series = log.series[std::string(metric.key)] = std::move(found->second);
        if (known.scale != 1) {
          for (auto& [at, value] : series) value *= known.scale;
        }
        log.names[std::string(metric.key)] = known.name;
        break;
      }
    }
    return log;
  }
  // Throws Error of a file without a loss.
  void NeedLoss(const MetricLog& log) const {
    if (log.series.contains(kLossKey)) return;
    const std::vector<std::string> seen(seen_.begin(), seen_.end());
    if (!loss_.empty()) {
      Fail("has no number \"" + options_.loss + "\"; " +
           (seen.empty() ? "it has none at all" : DidYouMean(options_.loss, seen)));
    }
    Fail("has no loss" + (seen.empty() ? std::string() : "; it has: " + Joined(seen, ", ")) +
         "; a loss is called one of " + NamesOfMetric(kMetrics[0]) + ", or as --loss says");
  }

 private:
  std::string where_;
  const LogOptions& options_;
  std::string loss_;
  std::map<std::string, ByStep> collected_;  // by the name in lower case
  std::set<std::string> seen_;
  bool by_tokens_ = false;
  double at_ = 0, last_ = -1;
  std::size_t rows_ = 0, first_line_ = 0;
  std::vector<std::string> notes_;
};

// Calls read(line) for each line that is not empty.
void EachLine(std::string_view text, Collector* to, auto read) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = Trimmed(text.substr(at, end - at));
    ++to->line;
    if (!line.empty()) read(line);
    at = end + 1;
  }
}

std::string AxisNames() { return Joined(kTokenNames, ", ") + ", " + Joined(kStepNames, ", "); }

void ReadCsv(std::string_view text, const LogOptions& options, Collector* to) {
  std::vector<std::string> head;  // as it is written
  std::vector<std::string> names;
  std::optional<std::size_t> tokens, step;
  EachLine(text, to, [&](std::string_view line) {
    const std::vector<std::string> cells = Cells(line);
    if (head.empty()) {
      head = cells;
      for (const std::string& cell : cells) names.push_back(LowerCase(cell));
      const auto column = [&](std::span<const std::string_view> known) {
        for (const std::string_view name : known) {
          const auto found = std::find(names.begin(), names.end(), name);
          if (found != names.end()) {
            return std::optional(static_cast<std::size_t>(found - names.begin()));
          }
        }
        return std::optional<std::size_t>();
      };
      tokens = column(kTokenNames);
      step = column(kStepNames);
      const auto is_loss = [&](const std::string& name) {
        if (!options.loss.empty()) return name == LowerCase(options.loss);
        return std::any_of(kMetrics[0].names.begin(), kMetrics[0].names.end(),
                           [&](const MetricName& n) { return !n.name.empty() && n.name == name; });
      };
      if (std::none_of(names.begin(), names.end(), is_loss)) {
        to->Fail(
            options.loss.empty()
                ? "the header names no loss; name a column one of " + NamesOfMetric(kMetrics[0])
                : "the header has no \"" + options.loss + "\"; " + DidYouMean(options.loss, head));
      }
      if (!tokens && (!step || options.axis == LogAxis::kTokens)) {
        to->Fail(
            step
                ? "the header names no tokens; name a column one of " + Joined(kTokenNames, ", ")
                : "the header names neither tokens nor steps; name a column one of " + AxisNames());
      }
      return;
    }
    if (cells.size() != head.size()) {
      to->Fail("has " + CountText(cells.size(), "cell") + ", and the header has " +
               std::to_string(head.size()) + "; write one for each column");
    }
    const auto number = [&](std::size_t column) -> std::optional<double> {
      if (cells[column].empty()) return std::nullopt;
      const std::optional<double> value = NumberOf(std::string_view(cells[column]));
      if (!value) {
        to->Fail("\"" + Printable(cells[column]) + "\" in column \"" + Printable(head[column]) +
                 "\" is no number; write it with digits and a point, as 2.75");
      }
      return value;
    };
    if (!to->At(tokens ? number(*tokens) : std::nullopt, step ? number(*step) : std::nullopt)) {
      to->Fail("has neither tokens nor a step; write one in every line");
    }
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (i == tokens || i == step || !to->Wants(names[i])) continue;
      if (const std::optional<double> value = number(i)) to->Add(names[i], *value);
    }
  });
}

void ReadJsonLines(std::string_view text, Collector* to) {
  EachLine(text, to, [&](std::string_view line) {
    Json json = Json::parse(line, nullptr, false);
    if (json.is_discarded()) json = Json::parse(WithQuotedNaN(line), nullptr, false);
    if (!json.is_object()) {
      to->Fail(
          "is no JSON object; write one a line, as {\"step\": 100, \"loss\": 2.75}, "
          "and null for NaN");
    }
    std::map<std::string, double> numbers;
    bool wanted = false;
    for (const auto& [key, value] : json.items()) {
      const std::string name = LowerCase(key);
      const std::optional<double> number = NumberOf(value);
      const bool wants = to->Wants(name);
      if (wants && !number && !value.is_null()) {
        to->Fail("\"" + Printable(key) + "\" must be a number");
      }
      if (!number) continue;
      to->See(name);
      numbers[name] = *number;
      wanted = wanted || wants;
    }
    if (!wanted) return;
    const auto member = [&](std::span<const std::string_view> names) -> std::optional<double> {
      for (const std::string_view name : names) {
        const auto found = numbers.find(std::string(name));
        if (found != numbers.end()) return found->second;
      }
      return std::nullopt;
    };
    if (!to->At(member(kTokenNames), member(kStepNames))) {
      to->Fail("has neither tokens nor steps; name a member one of " + AxisNames());
    }
    for (const auto& [name, value] : numbers) {
      if (to->Wants(name)) to->Add(name, value);
    }
  });
}

bool IsEventFile(const std::filesystem::path& path) {
  return path.filename().string().find("tfevents") != std::string::npos;
}

void ReadEvents(std::string_view bytes, const std::string& where, const LogOptions& options,
                Collector* to) {
  if (options.axis == LogAxis::kTokens) {
    throw Error(where, "TensorBoard's event files have steps alone; compare by steps");
  }
  const std::size_t whole =
      ReadEventFile(bytes, where, [&](std::int64_t step, const std::string& tag, double value) {
        const std::string name = LowerCase(tag);
        to->See(name);
        if (!to->Wants(name)) return;
        to->At(std::nullopt, static_cast<double>(step));
        to->Add(name, value);
      });
  if (whole < bytes.size()) {
    to->Note(where + ": byte " + std::to_string(whole) +
             ": the last record is half there, as of a program that still writes; what stands "
             "before it was read");
  }
}

// The event files in a folder, those of one run: by their names, which begin with the time.
std::vector<std::filesystem::path> EventFilesIn(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (IsEventFile(entry.path()) && entry.is_regular_file()) found.push_back(entry.path());
  }
  if (error) throw Error(folder.string(), "cannot be listed: " + error.message());
  std::sort(found.begin(), found.end());
  if (found.empty()) {
    throw Error(folder.string(),
                Exists(folder / "results.json")
                    ? "is the folder of a study; name the arm, as " + folder.string() + "#ARM"
                    : "has no TensorBoard event file (*tfevents*); name a file, or the folder "
                      "below it that has one");
  }
  return found;
}

}  // namespace

std::string NamesOfMetric(const Metric& metric) {
  std::vector<std::string_view> names;
  for (const MetricName& name : metric.names) {
    if (!name.name.empty()) names.push_back(name.name);
  }
  return Joined(names, ", ");
}

MetricLog ReadMetricText(std::string_view text, const std::string& where,
                         const LogOptions& options) {
  const IeeeArithmetic ieee;
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  Collector collector(where, options);
  if (first != text.npos && text[first] == '{') {
    ReadJsonLines(text, &collector);
  } else {
    ReadCsv(text, options, &collector);
  }
  return collector.Log(where);
}

MetricLog ReadMetricEvents(std::string_view bytes, const std::string& where,
                           const LogOptions& options) {
  const IeeeArithmetic ieee;
  Collector collector(where, options);
  ReadEvents(bytes, where, options, &collector);
  MetricLog log = collector.Log(where);
  collector.NeedLoss(log);
  return log;
}

MetricLog ReadMetricColumns(const Json& columns, const std::string& where,
                            const LogOptions& options) {
  const IeeeArithmetic ieee;
  if (!columns.is_object()) throw Error(where, "must be an object of columns");
  Collector collector(where, options);
  std::map<std::string, const Json*> by_name;
  std::size_t rows = 0;
  for (const auto& [key, column] : columns.items()) {
    const std::string name = LowerCase(key);
    const auto is = [&](auto& names) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    collector.See(name);
    if (!collector.Wants(name) && !is(kTokenNames) && !is(kStepNames)) continue;
    if (!column.is_array()) throw Error(where + "#/" + key, "must be a list of numbers");
    if (!by_name.empty() && column.size() != rows) {
      throw Error(where + "#/" + key, "has " + CountText(column.size(), "number") +
                                          ", and another column has " + std::to_string(rows) +
                                          "; give every column one for each step");
    }
    rows = column.size();
    by_name[name] = &column;
  }
  const auto axis = [&](std::span<const std::string_view> names) -> const Json* {
    for (const std::string_view name : names) {
      const auto found = by_name.find(std::string(name));
      if (found != by_name.end()) return found->second;
    }
    return nullptr;
  };
  const Json *tokens = axis(kTokenNames), *steps = axis(kStepNames);
  for (std::size_t i = 0; i < rows; ++i) {
    const auto at = [&](const Json* column) {
      return column == nullptr ? std::nullopt : NumberOf((*column)[i]);
    };
    if (!collector.At(at(tokens), at(steps))) {
      throw Error(where, "has neither tokens nor steps at number " + std::to_string(i) +
                             "; name a column one of " + AxisNames());
    }
    for (const auto& [name, column] : by_name) {
      if (column == tokens || column == steps || (*column)[i].is_null()) continue;
      const std::optional<double> value = NumberOf((*column)[i]);
      if (!value) throw Error(where + "#/" + name + "/" + std::to_string(i), "must be a number");
      collector.Add(name, *value);
    }
  }
  MetricLog log = collector.Log(where);
  collector.NeedLoss(log);
  return log;
}

std::vector<MetricLog> ReadMetricResults(const Json& results, const std::string& arm,
                                         const std::string& where, const LogOptions& options) {
  const IeeeArithmetic ieee;
  const Json* runs = results.is_object() && results.contains("runs") ? &results["runs"] : nullptr;
  if (runs == nullptr || !runs->is_array()) {
    throw Error(where, "is no results.json of a study: it has no array \"runs\"");
  }
  std::vector<MetricLog> logs;
  std::set<std::string> arms;
  for (std::size_t i = 0; i < runs->size(); ++i) {
    const std::string place = where + "#/runs/" + std::to_string(i);
    const Json& run = (*runs)[i];
    const Json name = run.is_object() ? run.value("arm", Json()) : Json();
    if (!name.is_string()) throw Error(place + "/arm", "must be a name");
    arms.insert(name.get<std::string>());
    if (name != arm) continue;
    const Json curve = run.value("curve", Json());
    if (!curve.is_array()) throw Error(place + "/curve", "must be an array");
    const std::uint64_t seed =
        WholeNumber<std::uint64_t>(run.value("seed", Json()), place + "/seed");
    Collector collector(where + "#" + arm + " seed " + std::to_string(seed), options);
    for (std::size_t k = 0; k < curve.size(); ++k) {
      const Json& point = curve[k];
      const auto number = [&](const char* key) {
        return point.is_object() && point.contains(key) ? NumberOf(point[key])
                                                        : std::optional<double>();
      };
      const std::optional<double> loss = number("loss");
      if (!collector.At(number("tokens"), number("step")) || !loss) {
        throw Error(place + "/curve/" + std::to_string(k), "needs numbers \"step\" and \"loss\"");
      }
      collector.Add(std::string(kLossKey), *loss);
      if (options.loss.empty()) continue;
      if (LowerCase(options.loss) != kLossKey) {
        throw Error(where, "a study's curve has the training \"loss\" alone; leave --loss out");
      }
    }
    MetricLog log = collector.Log(where + "#" + arm + ":" + std::to_string(seed));
    if (!log.series.contains(kLossKey)) throw Error(place + "/curve", "has no point");
    log.seed = seed;
    logs.push_back(std::move(log));
  }
  if (logs.empty()) {
    const std::vector<std::string> known(arms.begin(), arms.end());
    throw Error(where, "has no arm \"" + arm + "\"; " + DidYouMean(arm, known));
  }
  return logs;
}

std::vector<MetricLog> ReadMetricLogs(const std::string& path, const LogOptions& options) {
  const IeeeArithmetic ieee;
  const std::size_t hash = path.rfind('#');
  if (hash != path.npos && !Exists(path)) {
    std::filesystem::path file = path.substr(0, hash);
    if (std::filesystem::is_directory(file)) file /= "results.json";
    return ReadMetricResults(ReadJsonFile(file), path.substr(hash + 1), file.string(), options);
  }
  const bool is_folder = std::filesystem::is_directory(path);
  if (!is_folder && !IsEventFile(path)) {
    const std::string text = ReadFile(path);
    if (std::filesystem::path(path).filename() == "results.json") {
      throw Error(path, "holds the arms of a study; name one, as " + path + "#ARM");
    }
    MetricLog log = ReadMetricText(text, path, options);
    if (!log.series.contains(kLossKey)) {
      throw Error(path, "line " + std::to_string(std::max<std::size_t>(log.lines, 1)) +
                            ": the file ends and has no loss; a loss is called one of " +
                            NamesOfMetric(kMetrics[0]) + ", or as --loss says");
    }
    return {std::move(log)};
  }
  Collector collector(path, options);
  if (is_folder) {
    for (const std::filesystem::path& file : EventFilesIn(path)) {
      ReadEvents(ReadFile(file), file.string(), options, &collector);
    }
  } else {
    ReadEvents(ReadFile(path), path, options, &collector);
  }
  std::vector<MetricLog> logs = {collector.Log(path)};
  collector.NeedLoss(logs[0]);
  return logs;
}

}  // namespace fp4lab::study
