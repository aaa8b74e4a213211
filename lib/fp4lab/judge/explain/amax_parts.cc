#include "fp4lab/judge/explain/amax_parts.h"

#include <algorithm>
#include <bit>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/judge/explain/open_encode_scales.h"

namespace fp4lab {
namespace {

constexpr std::size_t kRead = 64;  // blocks of a row or column of blocks

// The S that fit each row of blocks, or each column.
std::vector<EncodeScales> Lines(const EncodeScaleReader& reader, bool by_columns) {
  const std::size_t count = by_columns ? reader.grid().cols : reader.grid().rows;
  const std::size_t length = by_columns ? reader.grid().rows : reader.grid().cols;
  const std::size_t step = std::max<std::size_t>(1, length / kRead);
  std::vector<EncodeScales> lines(count);
  for (std::size_t line = 0; line < count; ++line) {
    for (std::size_t at = 0; at < length; at += step) {
      lines[line] =
          lines[line].With(by_columns ? reader.OfBlock(at, line) : reader.OfBlock(line, at));
    }
  }
  return lines;
}

// The first lines of the parts after the first, each part as long as one S fits all its lines.
std::vector<std::size_t> GreedyStarts(const std::vector<EncodeScales>& lines) {
  std::vector<std::size_t> starts;
  EncodeScales open;
  for (std::size_t line = 0; line < lines.size(); ++line) {
    EncodeScales next = open.With(lines[line]);
    if (next.Empty()) {
      starts.push_back(line);
      next = lines[line];
    }
    open = next;
  }
  return starts;
}

// The multiple of the largest power of two in first..last.
std::size_t Roundest(std::size_t first, std::size_t last) {
  for (std::size_t unit = std::bit_floor(last); unit > 1; unit /= 2) {
    const std::size_t multiple = last / unit * unit;
    if (multiple >= first) return multiple;
  }
  return last;
}

void AddPartitions(const EncodeScaleReader& reader, bool by_columns, bool has_number,
                   std::vector<DeviationValue>* values) {
  std::vector<EncodeScales> lines = Lines(reader, by_columns);
  if (std::any_of(lines.begin(), lines.end(), [](const EncodeScales& e) { return e.Empty(); })) {
    return;  // no S fits the line: its blocks are not scaled alike
  }
  // From the first line on, a part may take lines of the next one that fit both; from the last line
  // on, lines of the one before. The boundaries lie between these ends.
  const std::vector<std::size_t> latest = GreedyStarts(lines);
  std::reverse(lines.begin(), lines.end());
  std::vector<std::size_t> earliest = GreedyStarts(lines);
  std::reverse(earliest.begin(), earliest.end());
  for (std::size_t& start : earliest) start = lines.size() - start;
  if (latest.empty() || latest.size() >= AmaxParts::kMost || latest.size() != earliest.size()) {
    return;
  }
  std::vector<std::size_t> roundest;
  for (std::size_t k = 0; k < latest.size(); ++k) {
    roundest.push_back(Roundest(std::min(earliest[k], latest[k]), latest[k]));
  }
  const std::size_t unit = by_columns ? reader.grid().block_cols : reader.grid().block_rows;
  for (const std::vector<std::size_t>& starts : {roundest, latest, earliest}) {
    DeviationValue value{.by_columns = by_columns};
    for (std::size_t k = 0; k < starts.size(); ++k) {
      value.starts[k] = static_cast<std::uint32_t>(starts[k] * unit);
    }
    for (value.stored = 0; value.stored < (has_number ? 3 : 1); ++value.stored) {
      values->push_back(value);
    }
  }
}

// Rows in turn, two to four parts of 1, 2, 4 ... rows of blocks each: as gate and up interleaved.
void AddTurns(const EncodeScaleReader& reader, bool has_number,
              std::vector<DeviationValue>* values) {
  const std::vector<EncodeScales> lines = Lines(reader, false);
  for (std::size_t parts = 2; parts <= 4; ++parts) {
    for (std::size_t group = 1; parts * group < lines.size(); group *= 2) {
      std::vector<EncodeScales> of_part(parts);
      for (std::size_t line = 0; line < lines.size(); ++line) {
        EncodeScales& part = of_part[line / group % parts];
        part = part.With(lines[line]);
      }
      if (std::any_of(of_part.begin(), of_part.end(), [](const auto& e) { return e.Empty(); })) {
        continue;
      }
      DeviationValue value{.parts = parts, .group = group * reader.grid().block_rows};
      for (value.stored = 0; value.stored < (has_number ? 3 : 1); ++value.stored) {
        values->push_back(value);
      }
    }
  }
}

}  // namespace

std::vector<DeviationValue> PartsToTry(const Kernel& kernel, ByteMatcher& matcher) {
  const IeeeArithmetic ieee;
  if (!HasTensorScale(kernel.dialect) || kernel.dialect.row_scaled) return {};
  const EncodeScaleReader reader(kernel, matcher);
  if (!reader.CanRead()) return {};
  std::vector<DeviationValue> values;
  const bool has_number = !matcher.got().tensor_scale.empty();
  for (const bool by_columns : {false, true}) {
    AddPartitions(reader, by_columns, has_number, &values);
  }
  AddTurns(reader, has_number, &values);
  return values;
}

}  // namespace fp4lab
