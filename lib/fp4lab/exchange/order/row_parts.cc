#include "fp4lab/exchange/order/row_parts.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <string>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"

namespace fp4lab {
namespace {

std::string Rows(const RowPart& part) {
  return "rows " + std::to_string(part.row) + ".." + std::to_string(part.row + part.rows - 1);
}

std::vector<std::size_t> Numbers(std::string_view text, std::string_view where) {
  std::vector<std::size_t> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    std::size_t n = 0;
    const auto [next, status] = std::from_chars(at, end, n);
    if (status != std::errc{} || n == 0) break;
    numbers.push_back(n);
    if (next == end) return numbers;
    if (*next != ',') break;
    at = next + 1;
  }
  throw Error(where, "\"" + std::string(text) +
                         "\" is no number of parts; give it as in 4, or the rows of each part as "
                         "in 64,64,32");
}

StoredMatrix ShapeOfPart(const StoredMatrix& joined, const RowPart& part) {
  StoredMatrix m = joined;
  m.rows = part.rows;
  m.codes = m.scales = {};
  m.tensor_scale = {};
  return m;
}

// The scales of the joined matrix row by row.
std::vector<std::uint8_t> LinearScales(const StoredMatrix& joined, const StoredSizes& sizes) {
  const std::size_t width = sizes.scale_bytes;
  std::vector<std::uint8_t> linear(sizes.scale_rows * sizes.scale_cols * width);
  for (std::size_t r = 0; r < sizes.scale_rows; ++r) {
    for (std::size_t c = 0; c < sizes.scale_cols; ++c) {
      const std::size_t at = ScaleOffset(joined.layout.scales, r, c, sizes.scale_cols);
      std::copy_n(joined.scales.data() + at * width, width,
                  linear.data() + (r * sizes.scale_cols + c) * width);
    }
  }
  return linear;
}

void SplitScales(const StoredMatrix& joined, std::string_view where,
                 std::vector<StoredMatrix>* parts) {
  if (joined.scales.empty()) return;
  std::size_t own = 0;
  for (const StoredMatrix& part : *parts) own += SizesOf(part, where).scales;
  const StoredSizes sizes = SizesOf(joined, where);
  const bool follow = joined.scales.size() == own;
  if (!follow && joined.scales.size() != sizes.scales) {
    throw Error(where, std::to_string(joined.scales.size()) + " bytes of scales; in the order " +
                           std::string(Named(joined.layout.scales).name) + ", " +
                           std::to_string(parts->size()) + " parts one after the other take " +
                           std::to_string(own) + ", the joined matrix " +
                           std::to_string(sizes.scales));
  }
  const std::vector<std::uint8_t> bytes = follow ? joined.scales : LinearScales(joined, sizes);
  auto at = bytes.begin();
  for (StoredMatrix& part : *parts) {
    if (!follow) part.layout.scales = ScaleOrder::kLinear;
    const auto count = static_cast<std::ptrdiff_t>(SizesOf(part, where).scales);
    part.scales.assign(at, at + count);
    at += count;
  }
}

void SplitTensorScales(const StoredMatrix& joined, std::span<const RowPart> rows,
                       std::string_view where, std::vector<StoredMatrix>* parts) {
  const std::vector<float>& all = joined.tensor_scale;
  if (all.empty()) return;
  for (std::size_t k = 0; k < parts->size(); ++k) {
    StoredMatrix& part = (*parts)[k];
    if (all.size() == 1 || all.size() == parts->size()) {
      part.tensor_scale = {all[all.size() == 1 ? 0 : k]};
      continue;
    }
    if (all.size() != joined.rows) {
      throw Error(where, std::to_string(all.size()) + " tensor scales; " +
                             std::to_string(parts->size()) +
                             " parts have one each, or one for all");
    }
    const std::span<const float> own = std::span(all).subspan(rows[k].row, rows[k].rows);
    const auto is_first = [&](float v) {
      return std::bit_cast<std::uint32_t>(v) == std::bit_cast<std::uint32_t>(own[0]);
    };
    if (!std::all_of(own.begin(), own.end(), is_first)) {
      throw Error(where, "the tensor scales of " + Rows(rows[k]) + ", one part, differ");
    }
    part.tensor_scale = {own[0]};
  }
}

}  // namespace

std::vector<RowPart> ParseRowParts(std::string_view text, std::size_t rows,
                                   std::string_view where) {
  const std::vector<std::size_t> numbers = Numbers(text, where);
  std::vector<RowPart> parts;
  if (numbers.size() == 1) {
    if (rows % numbers[0] != 0 || rows < numbers[0]) {
      throw Error(where, std::to_string(rows) + " rows are not " + std::to_string(numbers[0]) +
                             " equal parts; give the rows of each, as in 64,64,32");
    }
    const std::size_t each = rows / numbers[0];
    for (std::size_t k = 0; k < numbers[0]; ++k) parts.push_back({k * each, each});
    return parts;
  }
  std::size_t row = 0;
  for (const std::size_t n : numbers) {
    if (n > rows - row) break;
    parts.push_back({row, n});
    row += n;
  }
  if (row != rows || parts.size() != numbers.size()) {
    throw Error(where, "the rows of the parts " + std::string(text) + " do not add up to the " +
                           std::to_string(rows) + " of the matrix");
  }
  return parts;
}

std::vector<StoredMatrix> SplitRows(const StoredMatrix& joined, std::span<const RowPart> parts,
                                    std::string_view where) {
  if (joined.layout.transposed) {
    throw Error(where,
                "the bytes of a transposed matrix have no parts of rows one after the other");
  }
  std::vector<StoredMatrix> split;
  const auto block_rows = static_cast<std::size_t>(joined.block_rows);
  std::size_t total = 0;
  for (const RowPart& part : parts) {
    if (block_rows == 0 || part.row % block_rows != 0) {
      throw Error(where, block_rows == 0 ? "the tensor is one block, which has no parts"
                                         : "a block of " + std::to_string(block_rows) +
                                               " rows spans the part that ends before row " +
                                               std::to_string(part.row));
    }
    split.push_back(ShapeOfPart(joined, part));
    total += SizesOf(split.back(), where).codes;
  }
  if (joined.codes.size() != total) {
    throw Error(where, std::to_string(joined.codes.size()) + " bytes of codes; the parts take " +
                           std::to_string(total));
  }
  auto at = joined.codes.begin();
  for (StoredMatrix& part : split) {
    const auto count = static_cast<std::ptrdiff_t>(SizesOf(part, where).codes);
    part.codes.assign(at, at + count);
    at += count;
  }
  SplitScales(joined, where, &split);
  SplitTensorScales(joined, parts, where, &split);
  return split;
}

std::size_t PartsWithOneNumber(std::span<const float> numbers) {
  const auto bits = [&](std::size_t i) { return std::bit_cast<std::uint32_t>(numbers[i]); };
  for (std::size_t parts = 1; parts < numbers.size(); ++parts) {
    if (numbers.size() % parts != 0) continue;
    const std::size_t rows = numbers.size() / parts;
    bool equal = true;
    for (std::size_t i = 0; i < numbers.size() && equal; ++i) {
      equal = bits(i) == bits(i / rows * rows);
    }
    if (equal) return parts;
  }
  return numbers.size();
}

}  // namespace fp4lab
