#include "fp4lab/study/report/figures/overlay.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string_view>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/printable.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/json.h"

namespace fp4lab::study {
namespace {

// Names of columns and members, in lower case; the first that a file has is read.
constexpr std::array<std::string_view, 4> kTokens = {"tokens", "consumed_tokens", "consumed tokens",
                                                     "tokens_seen"};
constexpr std::array<std::string_view, 4> kSteps = {"step", "steps", "iteration", "global_step"};
constexpr std::array<std::string_view, 6> kLosses = {"loss",       "learning/loss", "lm loss",
                                                     "train/loss", "train_loss",    "value"};

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

// Collects the points of one file.
class Reader {
 public:
  Reader(std::string path, std::int64_t tokens_per_step)
      : path_(std::move(path)), tokens_per_step_(static_cast<double>(tokens_per_step)) {}

  void ReadCsv(std::string_view text);
  void ReadJsonLines(std::string_view text);
  void Fill(Overlay* overlay) const;

 private:
  [[noreturn]] void Fail(const std::string& what) const {
    throw Error(path_, "line " + std::to_string(line_) + ": " + what);
  }
  // Calls read(line) for each line that is not empty.
  void EachLine(std::string_view text, auto read);
  double Number(std::string_view cell, std::string_view name) const;
  void Add(std::optional<double> tokens, std::optional<double> step, double loss);

  std::string path_;
  double tokens_per_step_;
  std::size_t line_ = 0;  // counted from 1
  std::map<double, double> points_;
  double last_ = -1;           // tokens of the point before
  std::size_t back_line_ = 0;  // the first line whose tokens go back; 0: none
};

void Reader::EachLine(std::string_view text, auto read) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = Trimmed(text.substr(at, end - at));
    ++line_;
    if (!line.empty()) read(line);
    at = end + 1;
  }
}

double Reader::Number(std::string_view cell, std::string_view name) const {
  double value = 0;
  const char* end = cell.data() + cell.size();
  const auto [rest, status] = std::from_chars(cell.data(), end, value);
  if (status != std::errc() || rest != end) {
    Fail("\"" + Printable(cell) + "\" in column \"" + Printable(name) +
         "\" is no number; write it with digits and a point, as 2.75");
  }
  return value;
}

void Reader::Add(std::optional<double> tokens, std::optional<double> step, double loss) {
  if (!tokens && step && tokens_per_step_ == 0) {
    Fail("has a step but no tokens; give --overlay-tokens-per-step N, or add a column \"tokens\"");
  }
  const double at = tokens ? *tokens : *step * tokens_per_step_;
  if (!(at >= 0) || std::isinf(at)) Fail("tokens and steps must be 0 or more, and finite");
  if (at < last_ && back_line_ == 0) back_line_ = line_;
  last_ = at;
  if (std::isfinite(loss)) points_[at] = loss;
}

void Reader::ReadCsv(std::string_view text) {
  std::vector<std::string> head;
  std::optional<std::size_t> tokens, step, loss;
  EachLine(text, [&](std::string_view line) {
    const std::vector<std::string> cells = Cells(line);
    if (head.empty()) {
      head = cells;
      const auto column = [&](std::span<const std::string_view> names) {
        std::optional<std::size_t> found;
        for (const std::string_view name : names) {
          for (std::size_t i = 0; i < head.size() && !found; ++i) {
            if (LowerCase(head[i]) == name) found = i;
          }
        }
        return found;
      };
      tokens = column(kTokens);
      step = column(kSteps);
      loss = column(kLosses);
      if (!loss) Fail("the header names no loss; name a column one of " + Joined(kLosses, ", "));
      if (!tokens && !step) {
        Fail("the header names neither tokens nor steps; name a column one of " +
             Joined(kTokens, ", ") + ", " + Joined(kSteps, ", "));
      }
      return;
    }
    if (cells.size() != head.size()) {
      Fail("has " + CountText(cells.size(), "cell") + ", and the header has " +
           std::to_string(head.size()) + "; write one for each column");
    }
    const auto number = [&](std::optional<std::size_t> column) -> std::optional<double> {
      if (!column) return std::nullopt;
      return Number(cells[*column], head[*column]);
    };
    Add(number(tokens), number(step), *number(loss));
  });
}

void Reader::ReadJsonLines(std::string_view text) {
  EachLine(text, [&](std::string_view line) {
    const Json json = Json::parse(line, nullptr, false);
    if (!json.is_object()) {
      Fail(
          "is no JSON object; write one a line, as {\"step\": 100, \"loss\": 2.75}, "
          "and null for NaN");
    }
    const auto member = [&](std::span<const std::string_view> names) -> std::optional<double> {
      for (const std::string_view name : names) {
        for (const auto& [key, value] : json.items()) {
          if (LowerCase(key) != name || value.is_null()) continue;
          if (!value.is_number()) Fail("\"" + Printable(key) + "\" must be a number");
          return value.template get<double>();
        }
      }
      return std::nullopt;
    };
    const std::optional<double> loss = member(kLosses);
    if (!loss) return;
    const std::optional<double> tokens = member(kTokens), step = member(kSteps);
    if (!tokens && !step) {
      Fail("has neither tokens nor steps; name a member one of " + Joined(kTokens, ", ") + ", " +
           Joined(kSteps, ", "));
    }
    Add(tokens, step, *loss);
  });
}

void Reader::Fill(Overlay* overlay) const {
  if (points_.size() < 2) {
    throw Error(path_, "line " + std::to_string(std::max<std::size_t>(line_, 1)) +
                           ": the file ends, with losses of " + CountText(points_.size(), "step") +
                           "; a curve needs two. It reads " + OverlayNames());
  }
  if (back_line_ > 0) {
    overlay->note = path_ + ": line " + std::to_string(back_line_) +
                    " goes back in the training; points are sorted, and of two at one place the "
                    "last counts";
  }
  for (const auto& [tokens, loss] : points_) {
    overlay->tokens.push_back(tokens);
    overlay->loss.push_back(loss);
  }
}

}  // namespace

std::string OverlayNames() {
  return "tokens: " + Joined(kTokens, ", ") + "; steps: " + Joined(kSteps, ", ") +
         "; losses: " + Joined(kLosses, ", ");
}

Overlay ReadOverlay(const std::string& argument, std::int64_t tokens_per_step) {
  const IeeeArithmetic ieee;
  const std::size_t equals = argument.find('=');
  // A file whose own name has an equals sign needs no label.
  const bool labelled = equals != argument.npos && !Exists(argument);
  const std::string path = labelled ? argument.substr(equals + 1) : argument;
  Overlay overlay;
  overlay.label =
      labelled ? argument.substr(0, equals) : std::filesystem::path(path).filename().string();
  if (overlay.label.empty()) throw Error(argument, "has no label before \"=\"; write LABEL=FILE");
  RefuseControlCharacters(overlay.label, "--overlay");
  const std::string file = ReadFile(path);
  std::string_view text = file;
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  Reader reader(path, tokens_per_step);
  if (first != text.npos && text[first] == '{') {
    reader.ReadJsonLines(text);
  } else {
    reader.ReadCsv(text);
  }
  reader.Fill(&overlay);
  return overlay;
}

}  // namespace fp4lab::study
