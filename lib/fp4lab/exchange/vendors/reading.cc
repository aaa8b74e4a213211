#include "fp4lab/exchange/vendors/reading.h"

#include <algorithm>
#include <array>
#include <span>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/exchange/shape.h"

namespace fp4lab {
namespace {

enum class ScaleDtype : std::uint8_t { kE4M3, kE8M0, kBytes, kNumbers };

// The dtypes that codes and scales may have.
constexpr std::array<std::string_view, 8> kCodeDtypes = {
    "U8", "I8", "U32", "I32", "F8_E4M3", "F8_E5M2", "F6_E2M3", "F6_E3M2"};
constexpr std::array<std::string_view, 7> kScaleDtypes = {"F8_E4M3", "F8_E8M0", "U8", "I8",
                                                          "F32",     "BF16",    "F16"};
bool IsOneOf(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

ScaleDtype ScaleDtypeOf(std::string_view dtype) {
  if (dtype == "F8_E4M3") return ScaleDtype::kE4M3;
  if (dtype == "F8_E8M0") return ScaleDtype::kE8M0;
  const bool numbers = dtype == "F32" || dtype == "BF16" || dtype == "F16";
  return numbers ? ScaleDtype::kNumbers : ScaleDtype::kBytes;
}

std::size_t Product(const std::vector<std::size_t>& shape) {
  std::size_t product = 1;
  for (const std::size_t n : shape) product *= n;
  return product;
}

// The codes as rows of bytes.
struct CodeRows {
  std::size_t parts = 1, rows = 1, bytes = 0;
};
CodeRows CodeRowsOf(const TensorFacts& codes, const ReadingHints& hints) {
  std::vector<std::size_t> shape = codes.shape;
  if (hints.grouped_codes && shape.size() > 2) {
    const std::size_t group = shape.back();
    shape.pop_back();
    shape.back() *= group;
  }
  CodeRows r;
  if (shape.empty()) return r;
  r.bytes = shape.back();
  if (codes.dtype == "F4") r.bytes /= 2;
  if (codes.dtype.starts_with("F6_")) r.bytes = r.bytes / 4 * 3;
  if (codes.dtype == "U32" || codes.dtype == "I32") r.bytes *= 4;
  if (codes.dtype == "U16" || codes.dtype == "I16") r.bytes *= 2;
  shape.pop_back();
  if (shape.empty()) return r;
  r.rows = shape.back();
  shape.pop_back();
  r.parts = Product(shape);
  return r;
}

class Finder {
 public:
  Finder(const TensorFacts& codes, const TensorFacts& scales, const ReadingHints& hints)
      : codes_(codes), scales_(scales), hints_(hints), rows_(CodeRowsOf(codes, hints)) {
    AddCandidates();
  }

  ReadingFound Find() {
    for (const bool exact : {true, false}) {
      for (Reading r : candidates_) {
        if (!exact && OneNumber() && r.block_rows != 0) continue;
        if (Fits(exact, &r)) return {r, ""};
      }
    }
    for (Reading r : candidates_) {
      if (Padded(&r)) return {r, ""};
    }
    Reading first = candidates_.front();
    return {first, Problem(first)};
  }

 private:
  bool IsFp8() const { return codes_.dtype == "F8_E4M3" || codes_.dtype == "F8_E5M2"; }
  bool OneNumber() const { return Product(scales_.shape) == 1; }

  void Add(FormatId element, CodeOrder order, std::size_t block_rows, std::size_t block_cols,
           bool numbers, FormatId scale, bool codes_wrong = false, bool scales_wrong = false) {
    Reading r;
    r.element = element;
    r.codes = order;
    r.parts = rows_.parts;
    r.rows = rows_.rows;
    r.cols = order == CodeOrder::kBytes    ? rows_.bytes
             : FormatOf(element).bits == 6 ? rows_.bytes / 3 * 4
                                           : rows_.bytes * 2;
    r.block_rows = block_rows;
    r.block_cols = block_cols == kWholeRow ? r.cols : block_cols;
    r.numbers = numbers;
    r.scale = scale;
    r.codes_dtype_wrong = codes_wrong;
    r.scales_dtype_wrong = scales_wrong;
    r.scale_rows = block_rows == 0 ? 1 : DivideUp(r.rows, block_rows);
    r.scale_cols = block_rows == 0 || r.block_cols == 0 ? 1 : DivideUp(r.cols, r.block_cols);
    r.stored_rows = r.scale_rows;
    r.stored_cols = r.scale_cols;
    if (hints_.element && *hints_.element != element) return;
    if (hints_.block_cols > 0 && block_rows != 0 && block_cols != kWholeRow &&
        static_cast<std::size_t>(hints_.block_cols) != block_cols) {
      others_.push_back(r);
      return;
    }
    candidates_.push_back(r);
  }

  // E2M1 under block scales of every kind, as declared first.
  void AddFp4(CodeOrder order, bool codes_wrong = false) {
    const ScaleDtype dtype = ScaleDtypeOf(scales_.dtype);
    const auto add = [&](std::size_t cols, bool numbers, FormatId scale, bool wrong) {
      Add(FormatId::kE2M1, order, 1, cols, numbers, scale, codes_wrong, wrong);
    };
    const std::size_t stated = static_cast<std::size_t>(std::max(hints_.block_cols, 0));
    const bool unusual = stated != 0 && stated != 16 && stated != 32;
    switch (dtype) {
      case ScaleDtype::kE4M3:
        add(16, false, FormatId::kE4M3, false);
        if (unusual || stated == 32) add(stated, false, FormatId::kE4M3, false);
        if (!hints_.has_number) add(32, false, FormatId::kE8M0, true);
        break;
      case ScaleDtype::kE8M0:
        add(32, false, FormatId::kE8M0, false);
        if (unusual || stated == 16) add(stated, false, FormatId::kE8M0, false);
        add(16, false, FormatId::kE4M3, true);
        break;
      case ScaleDtype::kBytes:
        if (hints_.has_number) add(16, false, FormatId::kE4M3, false);
        add(32, false, FormatId::kE8M0, false);
        if (!hints_.has_number) add(16, false, FormatId::kE4M3, false);
        break;
      case ScaleDtype::kNumbers:
        add(16, true, FormatId::kE4M3, false);
        add(32, true, FormatId::kE8M0, false);
        if (unusual) add(stated, true, FormatId::kE4M3, false);
        break;
    }
  }

  // With a number above the scales: blocks of 16 in either packing before blocks of 32.
  void AddNvfp4() {
    const ScaleDtype dtype = ScaleDtypeOf(scales_.dtype);
    if (dtype != ScaleDtype::kE4M3 && dtype != ScaleDtype::kBytes) return;
    for (const CodeOrder order : {CodeOrder::kLowFirst, CodeOrder::kBytes}) {
      if (order == CodeOrder::kBytes && !hints_.unpacked) continue;
      Add(FormatId::kE2M1, order, 1, 16, false, FormatId::kE4M3);
    }
  }

  // 8-bit elements with a scale a tensor, a row or a block.
  void AddFp8(FormatId element) {
    const ScaleDtype dtype = ScaleDtypeOf(scales_.dtype);
    const bool numbers = dtype == ScaleDtype::kNumbers;
    const auto add = [&](std::size_t rows, std::size_t cols) {
      Add(element, CodeOrder::kBytes, rows, cols, numbers, FormatId::kE8M0, false,
          dtype == ScaleDtype::kE4M3);
    };
    if (hints_.block_rows > 0 && hints_.block_cols > 0) {
      add(static_cast<std::size_t>(hints_.block_rows), static_cast<std::size_t>(hints_.block_cols));
    }
    if (!hints_.blocks_first) add(0, 0);
    if (!numbers) add(1, 32);
    add(128, 128);
    add(1, kWholeRow);
    add(1, 128);
    if (numbers) add(1, 32);
    if (hints_.blocks_first) add(0, 0);
  }

  void AddCandidates() {
    if (IsFp8()) {
      AddFp8(codes_.dtype == "F8_E5M2" ? FormatId::kE5M2 : FormatId::kE4M3);
      AddFp4(CodeOrder::kLowFirst, true);
    } else if (codes_.dtype == "F6_E2M3" || codes_.dtype == "F6_E3M2") {
      const FormatId six = codes_.dtype == "F6_E2M3" ? FormatId::kE2M3 : FormatId::kE3M2;
      Add(six, CodeOrder::kDense6, 1, 32, false, FormatId::kE8M0);
    } else {
      const bool eight = hints_.element && FormatOf(*hints_.element).bits == 8;
      if (eight) AddFp8(*hints_.element);
      if (hints_.has_number) AddNvfp4();
      AddFp4(CodeOrder::kLowFirst);
      if (hints_.unpacked) AddFp4(CodeOrder::kBytes);
      const bool bytes_of_fp8 =
          !hints_.has_number && ScaleDtypeOf(scales_.dtype) != ScaleDtype::kE4M3;
      if (!eight && bytes_of_fp8) AddFp8(FormatId::kE4M3);
    }
    candidates_.insert(candidates_.end(), others_.begin(), others_.end());
    if (candidates_.empty()) {
      hints_ = {};
      AddFp4(CodeOrder::kLowFirst);
    }
  }

  // Whether the stored scales are the grid. exact: their shape says so; else their number alone.
  bool Fits(bool exact, Reading* r) const {
    const std::vector<std::size_t>& shape = scales_.shape;
    const std::size_t count = Product(shape);
    if (r->block_rows == 0) {
      const bool scalar = count == 1 && shape.size() <= 1;
      return exact ? scalar || (count == r->parts && shape.size() == 1)
                   : count == 1 || count == r->parts;
    }
    if (count != r->parts * r->scale_rows * r->scale_cols) return false;
    if (exact) {
      const bool flat_rows = r->scale_cols == 1 && !shape.empty() && shape.back() == r->scale_rows;
      const bool grid = shape.size() >= 2 && shape.back() == r->scale_cols &&
                        shape[shape.size() - 2] == r->scale_rows;
      if (!grid && !(flat_rows && r->block_rows == 1)) return false;
    } else if (shape.size() >= 2 && shape.back() == r->scale_rows && shape.back() != count &&
               r->scale_rows != r->scale_cols) {
      return false;  // the transposed grid
    }
    const bool whole = r->scale_rows % 128 == 0 && r->scale_cols % 4 == 0;
    if (hints_.swizzled && !r->numbers && whole) r->order = ScaleOrder::k128x4;
    return true;
  }

  // Whether the shape is that of a padded grid: the grid, one row of bytes, or its tiles.
  bool MayHold(std::size_t rows, std::size_t cols) const {
    const std::vector<std::size_t>& shape = scales_.shape;
    if (shape.size() < 2 || shape.front() == 1 || shape.back() == rows * cols) return true;
    return shape.back() == cols || (shape.size() > 2 && shape.back() <= 16);
  }

  bool Padded(Reading* r) const {
    if (r->block_rows == 0) return false;
    const std::size_t count = Product(scales_.shape);
    struct Padding {
      std::size_t rows, cols;
      ScaleOrder order;
    };
    const Padding paddings[] = {{128, 4, hints_.padded},
                                {1, 4, ScaleOrder::kLinear},
                                {128, 1, ScaleOrder::kLinear},
                                {8, 4, ScaleOrder::k8x4}};
    for (const Padding& p : paddings) {
      const std::size_t rows = RoundUp(r->scale_rows, p.rows);
      const std::size_t cols = RoundUp(r->scale_cols, p.cols);
      if (count != r->parts * rows * cols || rows * cols == r->scale_rows * r->scale_cols) continue;
      if (!MayHold(rows, cols)) continue;
      r->stored_rows = rows;
      r->stored_cols = cols;
      r->order = p.order;
      return true;
    }
    return false;
  }

  std::string Problem(const Reading& r) const {
    const auto text = [](const std::vector<std::size_t>& shape) {
      return shape.empty() ? std::string("one number") : ShapeText(shape);
    };
    const std::string leading = r.parts == 1 ? "" : std::to_string(r.parts) + "x";
    return "scales are " + text(scales_.shape) + "; " + leading + std::to_string(r.rows) + "x" +
           std::to_string(r.cols) + " in " + std::to_string(r.block_rows) + "x" +
           std::to_string(r.block_cols) + " blocks has " + leading + std::to_string(r.scale_rows) +
           "x" + std::to_string(r.scale_cols) + " (codes are " + std::string(codes_.dtype) + " " +
           text(codes_.shape) + ")" + HintText(r);
  }

  // Names the grid that the scales may have; "" if nothing fits.
  std::string HintText(const Reading& r) const {
    const std::vector<std::size_t>& shape = scales_.shape;
    if (r.block_rows == 0 || shape.size() < 2 || r.block_cols == 0) return "";
    const std::size_t rows = shape[shape.size() - 2], cols = shape.back();
    if (Product(shape) != r.parts * rows * cols) return "";
    if (rows == r.scale_cols && cols == r.scale_rows) return "; that is the transposed grid";
    const bool fewer = rows == r.rows / r.block_rows && cols == r.cols / r.block_cols;
    if (fewer) return "; the scales of the last blocks, which are not whole, are missing";
    for (const std::size_t ranks : {2, 3, 4, 5, 6, 8, 16, 32}) {
      const bool by_rows = r.block_rows > 1 && r.rows % ranks == 0 && cols == r.scale_cols &&
                           rows == ranks * DivideUp(r.rows / ranks, r.block_rows);
      const bool by_cols = r.cols % ranks == 0 && rows == r.scale_rows &&
                           cols == ranks * DivideUp(r.cols / ranks, r.block_cols);
      if (!by_rows && !by_cols) continue;
      const std::size_t size = by_rows ? r.rows / ranks : r.cols / ranks;
      return "; that is the grid of " + std::to_string(ranks) + " ranks of " +
             std::to_string(size) + (by_rows ? " rows" : " columns") +
             ", whose last blocks are not whole";
    }
    for (const std::size_t size : {16, 32, 64, 128, 256, 512}) {
      const std::size_t wide = DivideUp(r.cols, size);
      if (rows == r.rows && cols == wide) {
        return "; that is the grid of 1x" + std::to_string(size) + " blocks";
      }
      if (rows == DivideUp(r.rows, size) && cols == wide) {
        return "; that is the grid of " + std::to_string(size) + "x" + std::to_string(size) +
               " blocks";
      }
    }
    return "";
  }

  static constexpr std::size_t kWholeRow = ~std::size_t{0};
  const TensorFacts& codes_;
  const TensorFacts& scales_;
  ReadingHints hints_;
  CodeRows rows_;
  std::vector<Reading> candidates_, others_;  // others_: of blocks that the hints do not state
};

}  // namespace

ReadingFound FindReading(const TensorFacts& codes, const TensorFacts& scales,
                         const ReadingHints& hints) {
  ReadingFound found = Finder(codes, scales, hints).Find();
  if (codes.dtype.ends_with("FNUZ")) {
    found.problem = "codes are " + std::string(codes.dtype) +
                    " (AMD: half of the values of F8_E4M3 or F8_E5M2, and 0x80 is NaN), which is "
                    "not read; store them as the other, with scales half as large";
  } else if (codes.dtype != "F4" && !IsOneOf(kCodeDtypes, codes.dtype)) {
    found.problem = "codes are " + std::string(codes.dtype) +
                    "; codes that can be read are U8, I8, U32, I32, F4, F6_* and F8_*";
  } else if (!IsOneOf(kScaleDtypes, scales.dtype)) {
    found.problem = "scales are " + std::string(scales.dtype) +
                    "; scales that can be read are F8_E4M3, F8_E8M0, U8, I8, F32, BF16 and F16";
  }
  return found;
}

std::size_t StoredScaleOffset(const Reading& r, std::size_t row, std::size_t col) {
  if (r.order == ScaleOrder::kLinear || r.order == ScaleOrder::kPadded) {
    return row * r.stored_cols + col;
  }
  return ScaleOffset(r.order, row, col, r.scale_cols);
}

std::string UpperName(FormatId format) {
  std::string name(Named(format).short_name);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  return name;
}

std::string FormulaName(const Reading& r) {
  const int bits = FormatOf(r.element).bits;
  const bool mx =
      r.block_rows == 1 && r.block_cols == 32 && !r.numbers && r.scale == FormatId::kE8M0;
  if (r.element == FormatId::kE2M1) {
    if (mx) return "MXFP4";
    if (r.block_rows == 1 && r.block_cols == 16 && r.scale == FormatId::kE4M3) return "NVFP4";
  }
  const std::string kind = (mx ? "MXFP" : "FP") + std::to_string(bits) + " " + UpperName(r.element);
  if (mx) return kind;
  if (r.block_rows == 0) return kind + ", a scale a tensor";
  if (r.block_rows == 1 && r.block_cols == r.cols) return kind + ", a scale a row";
  return kind + ", " + std::to_string(r.block_rows) + "x" + std::to_string(r.block_cols);
}

}  // namespace fp4lab
