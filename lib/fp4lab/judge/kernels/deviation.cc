#include "fp4lab/judge/kernels/deviation.h"

#include <string>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/text.h"

namespace fp4lab {
namespace {

std::string Span(const char* what, std::size_t first, std::size_t count) {
  const std::string text = std::to_string(first);
  if (count == 1) return std::string(what) + " " + text;
  return std::string(what) + "s " + text + ".." + std::to_string(first + count - 1);
}

std::string ByteText(std::uint8_t byte) { return HexText(byte, byte > 0xF ? 2 : 1); }
std::string ScaleText(std::uint32_t scale) {
  return HexText(scale, scale > 0xFFFF ? 8 : scale > 0xFF ? 4 : scale > 0xF ? 2 : 1);
}

std::string WhatStandsThere(const DeviationValue& v) {
  std::string text;
  if (v.even_code && v.odd_code) {
    text = *v.even_code == *v.odd_code
               ? "codes " + ByteText(*v.even_code)
               : "codes " + ByteText(*v.even_code) + " and " + ByteText(*v.odd_code);
  }
  if (v.scale) text += (text.empty() ? "scales " : ", scales ") + ScaleText(*v.scale);
  return text;
}

// "rows 0, 2, 4 ..., rows 1, 3, 5 ..."
std::string InTurnText(std::size_t parts, std::size_t group) {
  std::string text;
  for (std::size_t part = 0; part < parts; ++part) {
    text += part == 0 ? "" : ", ";
    if (group == 1) {
      text += "rows " + std::to_string(part) + ", " + std::to_string(part + parts) + ", " +
              std::to_string(part + 2 * parts) + " ...";
    } else {
      text += Span("row", part * group, group) + " and every " + std::to_string(parts * group) +
              " further";
    }
  }
  return text;
}

// "rows 0..31, 32.."
std::string PartsOf(const DeviationValue& v) {
  if (v.parts != 0) return InTurnText(v.parts, v.group);
  const std::string what = v.by_columns ? "columns " : "rows ";
  std::string text = what;
  std::size_t first = 0;
  for (const std::size_t start : v.starts) {
    if (start == 0) break;
    text += std::to_string(first) + ".." + std::to_string(start - 1) + ", ";
    first = start;
  }
  return text + std::to_string(first) + "..";
}

// "rows 0..31, 32..; the stored number is the amax of the matrix"
std::string PartsText(const DeviationValue& v) {
  constexpr const char* kStored[] = {"matrix", "first part", "last part"};
  return PartsOf(v) + "; the stored number is the amax of the " +
         kStored[static_cast<std::size_t>(v.stored)];
}

// "2 parts of 32 rows in turn, 8 rows at a time"
std::string TurnsText(const DeviationValue& v) {
  const std::string group = std::to_string(v.group), turns = std::to_string(v.turns);
  if (v.parts <= v.turns) {
    return std::to_string(v.parts) + " parts of " + std::to_string(v.turns * v.group) +
           " rows in turn, " + (v.group == 1 ? "1 row" : group + " rows") + " at a time";
  }
  const std::string what = v.group == 1 ? "rows" : "groups of " + group + " rows";
  return what + " 0, " + turns + ", " + std::to_string(2 * v.turns) + " ..., then 1, " +
         std::to_string(v.turns + 1) + " ...";
}

std::string ColumnOrderText(RowOrder order) {
  switch (order) {
    case RowOrder::kPairsSwapped:
      return "1, 0, 3, 2 ...";
    case RowOrder::kInterleaved:
      return "the halves in turn (0, C/2, 1, C/2 + 1 ...)";
    case RowOrder::kDeinterleaved:
      return "even columns, then odd columns";
    case RowOrder::kReversed:
      return "last column first";
    case RowOrder::kKept:
      break;
  }
  return "in order";
}

std::string RowOrderText(RowOrder order) {
  switch (order) {
    case RowOrder::kPairsSwapped:
      return "1, 0, 3, 2 ...";
    case RowOrder::kInterleaved:
      return "the halves in turn (0, R/2, 1, R/2 + 1 ...)";
    case RowOrder::kDeinterleaved:
      return "even rows, then odd rows";
    case RowOrder::kReversed:
      return "last row first";
    case RowOrder::kKept:
      break;
  }
  return "in order";
}

std::string BeforeText(FactorOfBlock factor) {
  switch (factor) {
    case FactorOfBlock::kBefore:
      return "the first block of a row has its own";
    case FactorOfBlock::kBeforeInMemory:
      return "the first block of a row has that of the row before";
    case FactorOfBlock::kBeforeAround:
      return "the first block of a row has that of the row's last block";
    case FactorOfBlock::kOwn:
      break;
  }
  return "its own";
}

}  // namespace

std::string Text(const Rectangle& region) {
  const IeeeArithmetic ieee;
  return Span("row", region.row, region.rows) + ", " + Span("column", region.col, region.cols);
}

std::string Text(ValueKind kind, const DeviationValue& value) {
  const IeeeArithmetic ieee;
  switch (kind) {
    case ValueKind::kNone:
      return "";
    case ValueKind::kPlace:
      return "place " + std::to_string(value.number) + " of every group";
    case ValueKind::kRowShift:
      return value.number > 0 ? std::to_string(value.number) + " down"
                              : std::to_string(-value.number) + " up";
    case ValueKind::kLastRows:
      return "the last " + std::to_string(value.number);
    case ValueKind::kAmaxParts:
      return PartsText(value);
    case ValueKind::kFirstCols:
      return "the first " + std::to_string(value.number);
    case ValueKind::kLastCols:
      return "the last " + std::to_string(value.number);
    case ValueKind::kLeastAmax:
    case ValueKind::kTimes:
      return ShortestText(value.amax);
    case ValueKind::kRowOrder:
      return RowOrderText(static_cast<RowOrder>(value.number));
    case ValueKind::kColumnOrder:
      return ColumnOrderText(static_cast<RowOrder>(value.number));
    case ValueKind::kRowTurns:
      return TurnsText(value);
    case ValueKind::kFoldedParts:
      return PartsText(value);
    case ValueKind::kBefore:
      return BeforeText(static_cast<FactorOfBlock>(value.number));
    case ValueKind::kAmax:
    case ValueKind::kFactorAmax:
    case ValueKind::kScaleAmax:
      return (value.amax_is_open ? "about " : "") + ShortestText(value.amax);
    case ValueKind::kUnwritten:
      return Text(value.region) + " hold " + WhatStandsThere(value);
    case ValueKind::kSwapped: {
      const Rectangle other{value.other_row, value.other_col, value.region.rows, value.region.cols};
      return Text(value.region) + " with " + Text(other);
    }
  }
  return "";
}

}  // namespace fp4lab
