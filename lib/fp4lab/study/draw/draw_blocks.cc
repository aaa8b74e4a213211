// The drawing of dialects: which elements share a scale.
#include "fp4lab/base/error.h"
#include "fp4lab/base/text/printable.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/study/draw/draw_figures.h"

namespace fp4lab::study {
namespace {

constexpr double kBlockLeft = 18, kElement = 10, kBlocksTop = 48, kScaleHeight = 20;
constexpr int kShownColumns = 64, kShownRows = 16;

const Dialect& DialectToDraw(const std::string& name) {
  const Dialect* found = FindDialect(name);
  if (found == nullptr) {
    std::vector<std::string> known;
    for (const Dialect& d : Dialects()) known.emplace_back(d.name);
    throw Error("draw blocks " + Printable(name),
                "is not known; " + DidYouMean(name, known, "`fp4lab dialects` lists them"));
  }
  return *found;
}

bool IsWholeTensor(const Dialect& d) { return d.block_cols == 0; }
bool FitsElements(const Dialect& d) {
  return !IsWholeTensor(d) && d.block_cols <= kShownColumns && d.block_rows <= kShownRows;
}
double ElementHeight(const Dialect& d) { return d.block_rows == 1 ? 20 : 8; }

double HeightOf(const Dialect& d) {
  const double body = FitsElements(d) ? d.block_rows * ElementHeight(d) : 40;
  return 30 + kScaleHeight + 8 + body + 44;
}

bool HasNumbers(const Dialect& d) { return d.scale_encoding == ScaleEncoding::kBinary32; }

std::string ScaleText(const Dialect& d) {
  return HasNumbers(d) || IsWholeTensor(d) ? "binary32" : std::string(Named(d.scale).short_name);
}

std::string BlockText(const Dialect& d) {
  if (IsWholeTensor(d)) return "one scale for the tensor";
  const std::string shape = std::to_string(d.block_rows) + "x" + std::to_string(d.block_cols);
  return shape + " elements share a scale";
}

std::string BitsText(const Dialect& d) {
  const int element = FormatOf(d.element).bits;
  std::string text = std::string(Named(d.element).name) + ": " + std::to_string(element) + " bits";
  if (IsWholeTensor(d)) return text + " per element; a binary32 scale for the tensor";
  const int count = d.block_rows * d.block_cols, scale = HasNumbers(d) ? 32 : 8;
  text += " + " + std::to_string(scale) + "/" + std::to_string(count) + " for the scale = ";
  text += ShortestText(static_cast<float>(element) +
                       static_cast<float>(scale) / static_cast<float>(count));
  text += " bits per element";
  if (!HasTensorScale(d)) return text;
  return text + (d.row_scaled ? "; a binary32 scale per row" : "; a binary32 scale for the tensor");
}

void DrawElements(Svg* svg, const Dialect& d, double top) {
  const int blocks = kShownColumns / d.block_cols;
  const double height = ElementHeight(d), body = top + kScaleHeight + 8;
  for (int b = 0; b < blocks; ++b) {
    const std::string colour = b % 2 == 0 ? "s1" : "s2";
    const double left = kBlockLeft + b * d.block_cols * kElement;
    const double width = d.block_cols * kElement;
    svg->Rect(left + 1, top, width - 2, kScaleHeight, "soft " + colour);
    const std::string name = "scale: " + ScaleText(d);
    svg->Text({left + width / 2, top + 14}, name, "t small", Anchor::kMiddle);
    for (int r = 0; r < d.block_rows; ++r) {
      for (int c = 0; c < d.block_cols; ++c) {
        svg->Rect(left + c * kElement + 1, body + r * height + 1, kElement - 2, height - 2,
                  "soft " + colour);
      }
    }
  }
  if (HasTensorScale(d)) {
    const double left = kBlockLeft + kShownColumns * kElement + 14;
    svg->Rect(left, top, 68, kScaleHeight, "soft s3");
    svg->Text({left + 34, top + 14}, d.row_scaled ? "per row" : "tensor", "t small",
              Anchor::kMiddle);
    svg->Text({left, top + kScaleHeight + 22}, "binary32", "t small muted");
  }
}

void DrawDialect(Svg* svg, const Dialect& d, double top) {
  svg->Text({kBlockLeft, top + 14}, d.name, "t strong");
  svg->Text({kBlockLeft + kWider * TextWidth(d.name, 13) + 12, top + 14}, BlockText(d),
            "t small muted");
  const double body = top + 30;
  double bottom = body + kScaleHeight + 8;
  if (FitsElements(d)) {
    DrawElements(svg, d, body);
    bottom += d.block_rows * ElementHeight(d);
  } else {
    const std::string shape = IsWholeTensor(d) ? "the whole tensor"
                                               : std::to_string(d.block_rows) + "x" +
                                                     std::to_string(d.block_cols) + " elements";
    svg->Rect(kBlockLeft, body, 320, kScaleHeight, "soft s1");
    svg->Text({kBlockLeft + 160, body + 14}, "scale: " + ScaleText(d), "t small", Anchor::kMiddle);
    svg->Rect(kBlockLeft, body + kScaleHeight + 8, 320, 40, "soft s1");
    svg->Text({kBlockLeft + 160, body + kScaleHeight + 33}, shape, "t small", Anchor::kMiddle);
    bottom += 40;
  }
  svg->Text({kBlockLeft, bottom + 18}, BitsText(d), "t small");
}

}  // namespace

std::string DrawBlocks(const std::vector<std::string>& dialects) {
  std::vector<const Dialect*> rows;
  std::vector<std::string> names;
  double height = kBlocksTop;
  for (const std::string& name : dialects) {
    rows.push_back(&DialectToDraw(name));
    names.emplace_back(rows.back()->name);
    height += HeightOf(*rows.back());
  }
  Svg svg(kDrawingWidth, height, "The blocks of " + Joined(names, ", "),
          "A square per element. Elements of one colour that touch share the scale above them.");
  DrawTitle(&svg, "Elements that share a scale, 64 columns of a matrix");
  double top = kBlocksTop;
  for (const Dialect* d : rows) {
    DrawDialect(&svg, *d, top);
    top += HeightOf(*d);
  }
  return svg.Document(true);
}

}  // namespace fp4lab::study
