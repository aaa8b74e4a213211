#include "fp4lab/study/draw/drawing.h"

#include <array>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/printable.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/study/draw/draw_figures.h"

namespace fp4lab::study {
namespace {

constexpr std::array kDrawings = {
    Drawing{"number-line", "FORMAT ...", "The values of number formats of at most 8 bits", 1, 8,
            DrawNumberLines},
    Drawing{"blocks", "DIALECT ...", "Which elements share a scale, and the bits of an element", 1,
            8, DrawBlocks},
    Drawing{"scale-order", "[ORDER]", "Where a tile of block scales lies in memory", 0, 1,
            DrawScaleOrder},
    Drawing{"dataflow", "RECIPE", "The six operands and three products of a linear", 1, 1,
            DrawDataflow},
    Drawing{"hadamard", "[SIZE]", "A block with an outlier before and after the transform", 0, 1,
            DrawHadamard},
    Drawing{"rounding", "[FORMAT]", "What nearest and stochastic rounding give on average", 0, 1,
            DrawRounding},
    Drawing{"token-ratio", "RESULTS", "The extend form and the shrink form on a study's two curves",
            1, 1, DrawTokenForms},
};

}  // namespace

std::span<const Drawing> Drawings() { return kDrawings; }

std::string Draw(std::string_view name, const std::vector<std::string>& arguments) {
  const IeeeArithmetic ieee;
  std::vector<std::string> known;
  for (const Drawing& d : kDrawings) {
    if (d.name != name) {
      known.emplace_back(d.name);
      continue;
    }
    if (arguments.size() < d.least || arguments.size() > d.most) {
      const std::string most = d.most == d.least ? "" : " to " + std::to_string(d.most);
      throw Error("draw " + std::string(name), "takes " + std::string(d.arguments) + ", " +
                                                   CountText(d.least, "argument") + most +
                                                   ", not " + std::to_string(arguments.size()));
    }
    return d.draw(arguments);
  }
  throw Error("draw " + Printable(name),
              "is not a drawing; " + DidYouMean(name, known, "`fp4lab draw` lists them"));
}

}  // namespace fp4lab::study
