#include "fp4lab/exchange/order/byte_order.h"

#include <charconv>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/exchange/shape.h"

namespace fp4lab {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 40;

constexpr ByteOrder::Axis N(std::size_t n) { return {ByteOrder::Of::kNumber, n}; }
constexpr ByteOrder::Axis Rows(std::size_t n) { return {ByteOrder::Of::kRows, n}; }
constexpr ByteOrder::Axis Cols(std::size_t n) { return {ByteOrder::Of::kCols, n}; }

constexpr std::array kScaleByteOrders = {
    ByteOrder{.name = "aiter",
              .source = "ROCm/aiter, aiter/utility/fp4_utils.py e8m0_shuffle",
              .pad_rows = 256,
              .pad_cols = 8,
              .count = 6,
              .axes = {Rows(32), N(2), N(16), Cols(8), N(2), N(4)},
              .transpose = {0, 3, 5, 2, 4, 1}},
    // Of a GEMM's scales: four blocks of a row in a word, words column by column.
    ByteOrder{.name = "deepgemm",
              .source = "deepseek-ai/DeepGEMM, csrc/jit_kernels/impls/smxx_layout.hpp "
                        "get_mn_major_tma_aligned_packed_ue8m0_tensor",
              .pad_rows = 4,
              .pad_cols = 4,
              .count = 3,
              .axes = {Rows(1), Cols(4), N(4)},
              .transpose = {1, 0, 2}},
    ByteOrder{.name = "columns-padded",
              .source = "row by row, columns padded to 4 and rows not",
              .pad_cols = 4},
    ByteOrder{.name = "rows-padded",
              .source = "row by row, rows padded to 128 and columns not",
              .pad_rows = 128},
    // Of a cache's V: four tokens in turn under every scale of a row.
    ByteOrder{.name = "trtllm-v",
              .source = "flashinfer-ai/flashinfer fb28d72, flashinfer/quantization/"
                        "fp4_quantization.py nvfp4_quantize_paged_kv_cache",
              .pad_rows = 4,
              .count = 3,
              .axes = {Rows(4), N(4), Cols(1)},
              .transpose = {0, 2, 1}},
};

constexpr std::array kCodeByteOrders = {
    ByteOrder{.name = "16x16",
              .source = "ROCm/aiter, aiter/ops/shuffle.py shuffle_weight, layout (16, 16)",
              .pad_rows = 16,
              .pad_cols = 32,
              .count = 5,
              .axes = {Rows(16), N(16), Cols(32), N(2), N(16)},
              .transpose = {0, 2, 3, 1, 4}},
};

// An axis: a number, "R", "C", "R/32" or "C/8".
ByteOrder::Axis ReadAxis(const Json& json, const std::string& where) {
  ByteOrder::Axis axis;
  if (json.is_string()) {
    const std::string text = json.get<std::string>();
    axis.of = text.rfind('R', 0) == 0 ? ByteOrder::Of::kRows : ByteOrder::Of::kCols;
    if (text == "R" || text == "C") return axis;
    const char* const end = text.data() + text.size();
    if (text.size() > 2 && (text[0] == 'R' || text[0] == 'C') && text[1] == '/') {
      const auto [at, status] = std::from_chars(text.data() + 2, end, axis.number);
      if (status == std::errc{} && at == end && axis.number > 0) return axis;
    }
    throw Error(where, "is no axis; give a number, \"R\", \"C\", or as in \"R/32\" or \"C/8\"");
  }
  axis.number = WholeNumber<std::uint64_t>(json, where);
  if (axis.number == 0 || axis.number > kMostBytes) throw Error(where, "is no size of an axis");
  return axis;
}

const Json& ArrayOf(const Json& json, std::size_t least, std::size_t most,
                    const std::string& where) {
  if (!json.is_array() || json.size() < least || json.size() > most) {
    throw Error(where, "must be an array of " +
                           (least == most ? std::to_string(least)
                                          : std::to_string(least) + " to " + std::to_string(most)) +
                           " members");
  }
  return json;
}

std::string Member(const std::string& where, std::size_t k) {
  return where + "/" + std::to_string(k);
}

void ReadTranspose(const Json& json, const std::string& where, ByteOrder* order) {
  ArrayOf(json, order->count, order->count, where);
  std::array<bool, ByteOrder::kMostAxes> seen = {};
  for (std::size_t k = 0; k < order->count; ++k) {
    const auto axis = WholeNumber<std::uint64_t>(json[k], Member(where, k));
    if (axis >= order->count || seen[axis]) {
      throw Error(Member(where, k),
                  "must name each of the axes 0 to " + std::to_string(order->count - 1) + " once");
    }
    seen[axis] = true;
    order->transpose[k] = axis;
  }
}

}  // namespace

std::span<const ByteOrder> ScaleByteOrders() { return kScaleByteOrders; }
std::span<const ByteOrder> CodeByteOrders() { return kCodeByteOrders; }

const ByteOrder* FindByteOrder(std::span<const ByteOrder> orders, std::string_view name) {
  for (const ByteOrder& order : orders) {
    if (order.name == name) return &order;
  }
  return nullptr;
}

ByteOrder ReadByteOrder(const Json& json, const std::string& where) {
  JsonObject object(json, where);
  ByteOrder order;
  if (const Json* pad = object.Member("pad")) {
    ArrayOf(*pad, 2, 2, object.Where("pad"));
    std::size_t* const sides[] = {&order.pad_rows, &order.pad_cols};
    for (std::size_t k = 0; k < 2; ++k) {
      const std::string place = Member(object.Where("pad"), k);
      *sides[k] = WholeNumber<std::uint64_t>((*pad)[k], place);
      if (*sides[k] == 0 || *sides[k] > 65536) throw Error(place, "must be 1 to 65536");
    }
  }
  if (const Json* reshape = object.Member("reshape")) {
    const std::string place = object.Where("reshape");
    order.count = ArrayOf(*reshape, 1, ByteOrder::kMostAxes, place).size();
    for (std::size_t k = 0; k < order.count; ++k) {
      order.axes[k] = ReadAxis((*reshape)[k], Member(place, k));
      order.transpose[k] = k;
    }
  }
  if (const Json* transpose = object.Member("transpose")) {
    if (order.count == 0) {
      throw Error(object.Where("transpose"), "needs the axes that \"reshape\" gives");
    }
    ReadTranspose(*transpose, object.Where("transpose"), &order);
  }
  object.Finish();
  return order;
}

BytePlaces::BytePlaces(const ByteOrder& order, std::size_t rows, std::size_t cols,
                       std::string_view where)
    : count_(order.count) {
  const std::size_t padded_rows = RoundUp(rows, order.pad_rows);
  padded_cols_ = RoundUp(cols, order.pad_cols);
  bytes_ = padded_rows * padded_cols_;
  if (count_ == 0) return;
  std::size_t product = 1;
  bool holds = true;
  for (std::size_t k = 0; k < count_; ++k) {
    const ByteOrder::Axis& axis = order.axes[k];
    const std::size_t whole = axis.of == ByteOrder::Of::kRows   ? padded_rows
                              : axis.of == ByteOrder::Of::kCols ? padded_cols_
                                                                : axis.number;
    const std::size_t divisor = axis.of == ByteOrder::Of::kNumber ? 1 : axis.number;
    sizes_[k] = whole / divisor;
    holds = holds && whole % divisor == 0 && (sizes_[k] == 0 || product <= kMostBytes / sizes_[k]);
    product *= holds ? sizes_[k] : 1;
  }
  if (!holds || product != bytes_) {
    throw Error(where, "its axes do not hold a grid of " + ShapeText({padded_rows, padded_cols_}) +
                           " bytes: their product must be that, padding included");
  }
  std::size_t stride = 1;
  for (std::size_t k = count_; k-- > 0;) {
    strides_[order.transpose[k]] = stride;
    stride *= sizes_[order.transpose[k]];
  }
}

std::size_t BytePlaces::Of(std::size_t row, std::size_t col) const {
  std::size_t at = row * padded_cols_ + col;
  if (count_ == 0) return at;
  std::size_t place = 0;
  for (std::size_t k = count_; k-- > 0;) {
    place += at % sizes_[k] * strides_[k];
    at /= sizes_[k];
  }
  return place;
}

std::vector<std::uint8_t> FromByteOrder(std::span<const std::uint8_t> bytes, const ByteOrder& order,
                                        std::size_t rows, std::size_t cols,
                                        std::string_view where) {
  const BytePlaces places(order, rows, cols, where);
  if (bytes.size() != places.bytes()) {
    throw Error(where, "has " + std::to_string(bytes.size()) + " bytes; a grid of " +
                           ShapeText({rows, cols}) + " in the order " + std::string(order.name) +
                           " takes " + std::to_string(places.bytes()));
  }
  std::vector<std::uint8_t> grid(rows * cols);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < cols; ++c) grid[r * cols + c] = bytes[places.Of(r, c)];
  }
  return grid;
}

}  // namespace fp4lab
