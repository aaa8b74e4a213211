#include "fp4lab/judge/kernels/deviation.h"

#include <string>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text.h"

namespace fp4lab {
namespace {

std::string Span(const char* what, std::size_t first, std::size_t count) {
  const std::string text = std::to_string(first);
  if (count == 1) return std::string(what) + " " + text;
  return std::string(what) + "s " + text + ".." + std::to_string(first + count - 1);
}

std::string ByteText(std::uint8_t byte) { return HexText(byte, byte > 0xF ? 2 : 1); }

std::string WhatStandsThere(const DeviationValue& v) {
  std::string text;
  if (v.even_code && v.odd_code) {
    text = *v.even_code == *v.odd_code
               ? "codes " + ByteText(*v.even_code)
               : "codes " + ByteText(*v.even_code) + " and " + ByteText(*v.odd_code);
  }
  if (v.scale) text += (text.empty() ? "scales " : ", scales ") + ByteText(*v.scale);
  return text;
}

// "rows 0..31, rows 32.. each by their own amax; the stored number is that of the whole"
std::string PartsText(const DeviationValue& v) {
  const std::string what = v.by_columns ? "columns " : "rows ";
  std::string text = what;
  std::size_t first = 0;
  for (const std::size_t start : v.starts) {
    if (start == 0) break;
    text += std::to_string(first) + ".." + std::to_string(start - 1) + ", ";
    first = start;
  }
  text += std::to_string(first) + "..; the stored number is the amax of the ";
  constexpr const char* kStored[] = {"matrix", "first part", "last part"};
  return text + kStored[static_cast<std::size_t>(v.stored)];
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
    case ValueKind::kLastCols:
      return "the last " + std::to_string(value.number);
    case ValueKind::kTimes:
      return ShortestText(value.amax);
    case ValueKind::kRowOrder:
      return RowOrderText(static_cast<RowOrder>(value.number));
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
