#include <algorithm>
#include <cmath>
#include <cstdio>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/exchange/inspect.h"

namespace fp4lab {
namespace {

constexpr std::size_t kMostCells = 128;
constexpr int kSide = 6, kMargin = 10, kTop = 40, kBottom = 30;  // pixels: cell, margins

struct Map {
  std::size_t rows, cols;
  std::size_t blocks_down, blocks_across;  // blocks that a cell covers
  std::vector<double> cells;               // mean error of the covered blocks
  double largest = 0;
};

Map MapOf(const BlockErrors& e) {
  const auto covered = [](std::size_t n) {
    return std::max<std::size_t>(1, DivideUp(n, kMostCells));
  };
  Map map{.rows = 0,
          .cols = 0,
          .blocks_down = covered(e.rows),
          .blocks_across = covered(e.cols),
          .cells = {}};
  map.rows = DivideUp(e.rows, map.blocks_down);
  map.cols = DivideUp(e.cols, map.blocks_across);
  std::vector<double> counts(map.rows * map.cols);
  map.cells.resize(counts.size());
  for (std::size_t r = 0; r < e.rows; ++r) {
    for (std::size_t c = 0; c < e.cols; ++c) {
      const std::size_t cell = r / map.blocks_down * map.cols + c / map.blocks_across;
      map.cells[cell] += e.relative[r * e.cols + c];
      counts[cell] += 1;
    }
  }
  for (std::size_t i = 0; i < counts.size(); ++i) {
    map.cells[i] /= counts[i];
    map.largest = std::max(map.largest, map.cells[i]);
  }
  return map;
}

std::string Percent(double fraction) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f%%", 100 * fraction);
  return text;
}

// The colour of a fraction in [0, 1]: white to dark blue.
std::string Colour(double fraction) {
  char text[8];
  const auto mix = [fraction](int to) {
    return static_cast<int>(std::lround(255 + fraction * (to - 255)));
  };
  std::snprintf(text, sizeof text, "#%02x%02x%02x", mix(8), mix(48), mix(107));
  return text;
}

}  // namespace

std::string ErrorMapSvg(const BlockErrors& errors, std::string_view title) {
  const IeeeArithmetic ieee;
  const Map map = MapOf(errors);
  const auto width = std::max<std::size_t>(360, map.cols * kSide + 2 * kMargin);
  const auto height = map.rows * kSide + kTop + kBottom;
  const auto text = [](std::size_t y, std::string_view size, const std::string& content) {
    return "<text x=\"" + std::to_string(kMargin) + "\" y=\"" + std::to_string(y) +
           "\" font-family=\"sans-serif\" font-size=\"" + std::string(size) + "\" fill=\"#222\">" +
           EscapedMarkup(content) + "</text>\n";
  };
  std::string svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + std::to_string(width) +
                    "\" height=\"" + std::to_string(height) + "\">\n<rect width=\"100%\" " +
                    "height=\"100%\" fill=\"#fff\"/>\n";
  svg += text(16, "13", std::string(title));
  svg += text(32, "11",
              "relative error of a block: white 0, dark " + Percent(map.largest) + "; a cell is " +
                  std::to_string(map.blocks_down) + "x" + std::to_string(map.blocks_across) +
                  " blocks");
  for (std::size_t r = 0; r < map.rows; ++r) {
    for (std::size_t c = 0; c < map.cols; ++c) {
      const double value = map.cells[r * map.cols + c];
      svg += "<rect x=\"" + std::to_string(kMargin + c * kSide) + "\" y=\"" +
             std::to_string(kTop + r * kSide) + "\" width=\"" + std::to_string(kSide) +
             "\" height=\"" + std::to_string(kSide) + "\" fill=\"" +
             Colour(map.largest > 0 ? value / map.largest : 0) + "\"><title>" + Percent(value) +
             "</title></rect>\n";
    }
  }
  svg += text(height - 10, "11",
              std::to_string(errors.rows) + "x" + std::to_string(errors.cols) + " blocks");
  return svg + "</svg>\n";
}

}  // namespace fp4lab
