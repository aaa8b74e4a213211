#include "fp4lab/checkpoint/scan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <vector>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/exchange/number_type.h"
#include "fp4lab/formats/format.h"

namespace fp4lab {
namespace {

constexpr std::size_t kPiece = std::size_t{4} << 20;  // bytes that a thread reads at a time
constexpr std::size_t kRun = 4096;  // bytes in the innermost loops, which the compiler vectorizes

// Calls body(i, piece, offset of the piece) for all pieces, on all threads.
template <class Body>
void ForPieces(const Streamed& s, const Body& body) {
  ParallelFor(DivideUp(s.bytes.size(), kPiece), [&](std::size_t i) {
    const std::size_t at = i * kPiece;
    const std::span<const std::byte> piece =
        s.bytes.subspan(at, std::min(kPiece, s.bytes.size() - at));
    if (s.content != nullptr) s.content->Populate(piece);
    body(i, std::span(reinterpret_cast<const std::uint8_t*>(piece.data()), piece.size()), at);
    if (s.content != nullptr) s.content->Forget(piece);
  });
}

// A byte of codes is impossible if (byte & mask) >= least.
struct Impossible {
  std::uint8_t mask = 0, least = 1;  // mask 0: every byte is possible
};
Impossible ImpossibleIn(const Reading& r) {
  if (r.codes != CodeOrder::kBytes) return {};
  const Format f = FormatOf(r.element);
  if (f.bits < 8) return {0xFF, static_cast<std::uint8_t>(1u << f.bits)};
  if (f.specials == Specials::kNone) return {};
  return {static_cast<std::uint8_t>(MagnitudeMask(f)),
          static_cast<std::uint8_t>(MaxFiniteCode(f) + 1)};
}

CodeScan ScanRun(std::span<const std::uint8_t> run, Impossible im) {
  std::uint8_t any = 0, all = 0xFF;
  for (const std::uint8_t b : run) {
    any = static_cast<std::uint8_t>(any | b);
    all = static_cast<std::uint8_t>(all & b);
  }
  CodeScan s;
  s.any = any;
  s.all = all;
  if (im.mask == 0) return s;
  std::uint8_t most = 0;
  for (const std::uint8_t b : run) most = std::max(most, static_cast<std::uint8_t>(b & im.mask));
  if (most < im.least) return s;
  for (std::size_t i = run.size(); i-- > 0;) {
    if ((run[i] & im.mask) < im.least) continue;
    ++s.impossible;
    s.first_impossible = i;
  }
  return s;
}

void Merge(const CodeScan& part, std::size_t offset, CodeScan* all) {
  all->any = static_cast<std::uint8_t>(all->any | part.any);
  all->all = static_cast<std::uint8_t>(all->all & part.all);
  if (part.impossible > 0 && all->impossible == 0) {
    all->first_impossible = offset + part.first_impossible;
  }
  all->impossible += part.impossible;
}

using Counts = std::array<std::size_t, 256>;

Counts CountBytes(std::span<const std::uint8_t> bytes) {
  // Four tables: equal neighbours do not wait for each other.
  std::array<std::array<std::uint32_t, 256>, 4> tables = {};
  std::size_t i = 0;
  for (; i + 4 <= bytes.size(); i += 4) {
    for (std::size_t t = 0; t < 4; ++t) ++tables[t][bytes[i + t]];
  }
  for (; i < bytes.size(); ++i) ++tables[0][bytes[i]];
  Counts counts = {};
  for (const auto& table : tables) {
    for (std::size_t b = 0; b < 256; ++b) counts[b] += table[b];
  }
  return counts;
}

bool IsUnpadded(const Reading& r) {
  return r.stored_rows == r.scale_rows && r.stored_cols == r.scale_cols;
}

void CountPadded(const Streamed& s, const Reading& r, Counts* counts) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(s.bytes.data());
  const std::size_t part = r.stored_rows * r.stored_cols;
  for (std::size_t p = 0; p < r.parts; ++p) {
    for (std::size_t row = 0; row < r.scale_rows; ++row) {
      for (std::size_t col = 0; col < r.scale_cols; ++col) {
        ++(*counts)[bytes[p * part + StoredScaleOffset(r, row, col)]];
      }
    }
  }
}

bool IsE4M3(float x) {
  const Format f = FormatOf(FormatId::kE4M3);
  return Decode(FormatId::kE4M3, Encode(f, x)) == x;
}

void Judge(float x, ScaleScan* s) {
  if (std::isnan(x) || std::isinf(x)) {
    ++s->nans;
    return;
  }
  if (x == 0) ++s->zeros;
  if (std::signbit(x)) ++s->negatives;
  const float magnitude = std::fabs(x);
  if (s->smallest == 0 && s->largest == 0) s->smallest = magnitude;
  s->smallest = std::min(s->smallest, magnitude);
  s->largest = std::max(s->largest, magnitude);
}

void MergeNumbers(const ScaleScan& part, ScaleScan* s) {
  if (s->count == 0) {
    *s = part;
    return;
  }
  s->constant = s->constant && part.constant && s->largest == part.largest && part.nans == 0;
  s->count += part.count;
  s->zeros += part.zeros;
  s->nans += part.nans;
  s->negatives += part.negatives;
  s->powers_of_two += part.powers_of_two;
  s->e4m3 += part.e4m3;
  s->smallest = std::min(s->smallest, part.smallest);
  s->largest = std::max(s->largest, part.largest);
}

ScaleScan JudgeNumbers(std::span<const float> numbers) {
  ScaleScan s;
  s.count = numbers.size();
  s.constant = true;
  for (const float x : numbers) {
    Judge(x, &s);
    if (x != numbers.front()) s.constant = false;
    int exponent = 0;
    if (x > 0 && std::isfinite(x) && std::frexp(x, &exponent) == 0.5f) ++s.powers_of_two;
    if (IsE4M3(x)) ++s.e4m3;
  }
  return s;
}

}  // namespace

CodeScan ScanCodes(const Streamed& codes, const Reading& reading) {
  const IeeeArithmetic ieee;
  const Impossible im = ImpossibleIn(reading);
  std::vector<CodeScan> parts(DivideUp(codes.bytes.size(), kPiece));
  ForPieces(codes, [&](std::size_t i, std::span<const std::uint8_t> piece, std::size_t) {
    for (std::size_t at = 0; at < piece.size(); at += kRun) {
      Merge(ScanRun(piece.subspan(at, std::min(kRun, piece.size() - at)), im), at, &parts[i]);
    }
  });
  CodeScan scan;
  for (std::size_t i = 0; i < parts.size(); ++i) Merge(parts[i], i * kPiece, &scan);
  return scan;
}

ScaleScan ScanScales(const Streamed& scales, std::string_view dtype, const Reading& reading) {
  const IeeeArithmetic ieee;
  if (!reading.numbers) {
    Counts counts = {};
    if (!IsUnpadded(reading)) {
      CountPadded(scales, reading, &counts);
      return JudgeBytes(counts, reading.scale);
    }
    std::vector<Counts> parts(DivideUp(scales.bytes.size(), kPiece));
    ForPieces(scales, [&](std::size_t i, std::span<const std::uint8_t> piece, std::size_t) {
      parts[i] = CountBytes(piece);
    });
    for (const Counts& part : parts) {
      for (std::size_t b = 0; b < 256; ++b) counts[b] += part[b];
    }
    return JudgeBytes(counts, reading.scale);
  }
  const std::optional<NumberType> type = FindNumberType(dtype);
  ScaleScan scan;
  if (!type) return scan;
  const auto size = static_cast<std::size_t>(Bits(*type)) / 8;
  std::vector<ScaleScan> parts(DivideUp(scales.bytes.size(), kPiece));
  ForPieces(scales, [&](std::size_t i, std::span<const std::uint8_t> piece, std::size_t) {
    parts[i] = JudgeNumbers(DecodeNumbers(*type, std::as_bytes(piece), piece.size() / size));
  });
  for (const ScaleScan& part : parts) MergeNumbers(part, &scan);
  return scan;
}

ScaleScan JudgeBytes(const std::array<std::size_t, 256>& counts, FormatId scale) {
  const IeeeArithmetic ieee;
  ScaleScan s;
  s.bytes = counts;
  std::size_t kinds = 0;
  const Format f = FormatOf(scale);
  for (std::size_t b = 0; b < 256; ++b) {
    const std::size_t n = counts[b];
    if (n == 0) continue;
    s.count += n;
    ++kinds;
    const auto code = static_cast<std::uint32_t>(b);
    const float x = Decode(scale, code);
    ScaleScan one = s;
    one.zeros = one.nans = one.negatives = 0;
    Judge(x, &one);
    s.smallest = one.smallest;
    s.largest = one.largest;
    s.nans += one.nans * n;
    s.zeros += (scale == FormatId::kE8M0 ? (b == 0 ? 1u : 0u) : one.zeros) * n;
    s.negatives += one.negatives * n;
    if ((code & MagnitudeMask(f)) == MaxFiniteCode(f)) s.largest_finite += n;
  }
  s.constant = kinds == 1;
  return s;
}

std::size_t DeadBlocks(const Streamed& codes, const Streamed& scales, std::string_view dtype,
                       const Reading& r) {
  const IeeeArithmetic ieee;
  const std::size_t size =
      r.numbers ? static_cast<std::size_t>(Bits(FindNumberType(dtype).value_or(NumberType{}))) / 8
                : 1;
  const auto* s = reinterpret_cast<const std::uint8_t*>(scales.bytes.data());
  const auto* c = reinterpret_cast<const std::uint8_t*>(codes.bytes.data());
  const bool bytes = r.codes == CodeOrder::kBytes;
  const bool six = r.codes == CodeOrder::kDense6;
  const auto in_bytes = [&](std::size_t col) { return bytes ? col : six ? col * 3 / 4 : col / 2; };
  const std::size_t row_bytes = in_bytes(r.cols);
  const std::uint8_t magnitude = bytes ? 0x7F : six ? 0xFF : 0x77;
  const std::size_t height = r.block_rows == 0 ? r.rows : r.block_rows;
  const std::size_t width = r.block_rows == 0 ? r.cols : r.block_cols;
  const auto is_zero = [&](std::size_t index) {
    for (std::size_t b = 0; b < size; ++b) {
      const bool sign = b + 1 == size && (r.numbers || r.scale == FormatId::kE4M3);
      if ((s[index * size + b] & (sign ? 0x7F : 0xFF)) != 0) return false;
    }
    return true;
  };
  const auto has_codes = [&](std::size_t row0, std::size_t rows, std::size_t col) {
    const std::size_t begin = in_bytes(col), end = in_bytes(std::min(col + width, r.cols));
    for (std::size_t row = row0; row < row0 + rows; ++row) {
      for (std::size_t b = begin; b < end; ++b) {
        if ((c[row * row_bytes + b] & magnitude) != 0) return true;
      }
    }
    return false;
  };
  std::vector<std::size_t> dead(r.parts * r.scale_rows);
  ParallelFor(dead.size(), [&](std::size_t i) {
    const std::size_t part = i / r.scale_rows, row = i % r.scale_rows;
    const std::size_t first = part * r.rows + row * height;
    const std::size_t rows = std::min(height, r.rows - row * height);
    const bool one = r.block_rows == 0;
    for (std::size_t col = 0; col < r.scale_cols; ++col) {
      const std::size_t index =
          one ? (scales.bytes.size() == size ? 0 : part)
              : part * r.stored_rows * r.stored_cols + StoredScaleOffset(r, row, col);
      if (is_zero(index) && has_codes(first, rows, col * width)) ++dead[i];
    }
    if (codes.content != nullptr) {
      codes.content->Forget(codes.bytes.subspan(first * row_bytes, rows * row_bytes));
    }
  });
  std::size_t sum = 0;
  for (const std::size_t n : dead) sum += n;
  return sum;
}

namespace {

std::string UnwrittenRows(const StoredBytes& bytes, const Reading& r) {
  const IeeeArithmetic ieee;
  constexpr std::size_t kSampled = 32;
  const bool packed = r.codes == CodeOrder::kBytes || r.cols % 2 == 0;
  if (r.block_rows != 1 || r.codes == CodeOrder::kDense6 || !packed) return "";
  const Decoder decoder(bytes, r);
  const std::size_t rows = r.parts * r.rows;
  const std::size_t row_bytes = r.codes == CodeOrder::kBytes ? r.cols : r.cols / 2;
  const auto is_zero = [&](std::size_t row) {
    const auto codes = bytes.codes.subspan(row * row_bytes, row_bytes);
    return std::all_of(codes.begin(), codes.end(), [](std::byte b) { return b == std::byte{0}; });
  };
  // Exporters store one scale for all blocks of zeros.
  const auto has_numbers = [&](std::size_t row) {
    std::optional<float> first;
    for (std::size_t block = 0; block < r.scale_cols; ++block) {
      const float s = decoder.Scale(row / r.rows, row % r.rows, block, r.order);
      if (!(s > 0)) return false;
      if (first && s != *first) return true;
      first = s;
    }
    return false;
  };
  const auto is_unwritten = [&](std::size_t row) { return is_zero(row) && has_numbers(row); };
  for (std::size_t k = 0; k < std::min(kSampled, rows); ++k) {
    const std::size_t row = (2 * k + 1) * rows / (2 * std::min(kSampled, rows));
    if (!is_unwritten(row)) continue;
    std::size_t first = row, last = row, count = 0;
    while (first > 0 && is_unwritten(first - 1)) --first;
    while (last + 1 < rows && is_unwritten(last + 1)) ++last;
    for (std::size_t other = 0; other < rows; ++other) count += is_unwritten(other) ? 1 : 0;
    return std::to_string(count) + " of " + std::to_string(rows) +
           " rows have codes of 0 under scales that differ, rows " + std::to_string(first) + ".." +
           std::to_string(last) + " among them";
  }
  return "";
}

}  // namespace

std::string UnwrittenRowsText(const Streamed& codes, const Streamed& scales, std::string_view dtype,
                              const Reading& r) {
  std::string text = UnwrittenRows({codes.bytes, scales.bytes, dtype}, r);
  for (const Streamed& s : {codes, scales}) {  // a fault may have mapped 2 MiB for one row
    if (s.content != nullptr) s.content->Forget(s.bytes);
  }
  return text;
}

}  // namespace fp4lab
