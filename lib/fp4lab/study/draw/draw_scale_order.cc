// The drawing of an order of block scales: a tile of the matrix of scales, and the bytes of memory.
#include <algorithm>
#include <cstddef>

#include "fp4lab/base/error.h"
#include "fp4lab/base/text/printable.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/block/scale_swizzle.h"
#include "fp4lab/study/draw/draw_figures.h"

namespace fp4lab::study {
namespace {

constexpr double kMapTop = 78, kByteWidth = 37, kByteHeight = 17, kMatrixWidth = 18;
constexpr std::size_t kLineBytes = 16, kGroup = 32, kTileColumns = 4;

const NamedScaleOrder& OrderToDraw(const std::string& name) {
  const std::optional<ScaleOrder> found = FindScaleOrder(name);
  if (found) return Named(*found);
  throw Error("draw scale-order " + Printable(name),
              "is not known; " + DidYouMean(name, NamesOf(kScaleOrders)));
}

std::string RowColour(std::size_t row) { return "s" + std::to_string(1 + row / kGroup % 4); }

// The left picture: `rows` of the matrix of scales, four columns wide.
void DrawScaleMatrix(Svg* svg, std::size_t rows, double height) {
  const double row_height = height / static_cast<double>(rows), left = kDrawingInset + 34;
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < kTileColumns; ++c) {
      svg->Rect(left + static_cast<double>(c) * kMatrixWidth + 0.5,
                kMapTop + static_cast<double>(r) * row_height + 0.3, kMatrixWidth - 1,
                row_height - 0.6, "soft " + RowColour(r));
    }
  }
  const std::size_t step = std::min<std::size_t>(kGroup, std::max<std::size_t>(rows / 4, 1));
  for (std::size_t r = 0; r < rows; r += step) {
    svg->Text({left - 6, kMapTop + static_cast<double>(r) * row_height + 11}, std::to_string(r),
              "t small muted", Anchor::kEnd);
  }
  for (std::size_t c = 0; c < kTileColumns; ++c) {
    svg->Text({left + (static_cast<double>(c) + 0.5) * kMatrixWidth, kMapTop - 6},
              std::to_string(c), "t small muted", Anchor::kMiddle);
  }
}

// The right picture: the bytes in lines of 16, each with the row and column of its scale.
void DrawMemory(Svg* svg, ScaleOrder order, std::size_t rows, double left) {
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < kTileColumns; ++c) {
      const std::size_t offset = order == ScaleOrder::kLinear
                                     ? r * kTileColumns + c
                                     : ScaleOffset(order, r, c, kTileColumns);
      const double x = left + static_cast<double>(offset % kLineBytes) * kByteWidth;
      const double y = kMapTop + static_cast<double>(offset / kLineBytes) * kByteHeight;
      svg->Rect(x + 0.5, y + 0.5, kByteWidth - 1, kByteHeight - 1, "soft " + RowColour(r));
      svg->Text({x + kByteWidth / 2, y + 13}, std::to_string(r) + "," + std::to_string(c),
                "t small", Anchor::kMiddle);
    }
  }
  const std::size_t lines = rows * kTileColumns / kLineBytes;
  for (std::size_t i = 0; i < lines; i += std::max<std::size_t>(lines / 4, 1)) {
    svg->Text({left - 6, kMapTop + static_cast<double>(i) * kByteHeight + 13},
              std::to_string(i * kLineBytes), "t small muted", Anchor::kEnd);
  }
}

}  // namespace

std::string DrawScaleOrder(const std::vector<std::string>& order) {
  const NamedScaleOrder& o = OrderToDraw(order.empty() ? "128x4" : order[0]);
  const std::size_t rows = std::max(o.tile_rows, std::size_t{kGroup});
  const double height =
      static_cast<double>(rows * kTileColumns) / static_cast<double>(kLineBytes) * kByteHeight;
  Svg svg(kDrawingWidth, kMapTop + height + 16, "Block scales in the order " + std::string(o.name),
          "Left the matrix of scales, right the bytes of memory in lines of 16. A byte shows the "
          "row and the column of its scale.");
  DrawTitle(&svg, std::to_string(rows) + " rows and 4 columns of block scales, in the order " +
                      std::string(o.name));
  svg.Text({kDrawingInset, 50}, "the matrix", "t strong");
  const double left = kDrawingInset + 34 + kTileColumns * kMatrixWidth + 34;
  svg.Text({left, 50}, "memory, 16 bytes per line: row,column of the scale in each byte",
           "t strong");
  DrawScaleMatrix(&svg, rows, height);
  DrawMemory(&svg, o.order, rows, left);
  return svg.Document(true);
}

}  // namespace fp4lab::study
