#include "fp4lab/study/report/figures/overlay_range.h"

#include <algorithm>
#include <string>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/study/numbers/number_text.h"
#include "fp4lab/study/report/figures/figures.h"

namespace fp4lab::study {
namespace {

std::string RangeText(double from, double to) {
  return from == to ? TokensText(from) : TokensText(from) + " to " + TokensText(to);
}

}  // namespace

void CheckOverlays(const std::vector<Overlay>& overlays, std::span<const StudyReport> studies) {
  const IeeeArithmetic ieee;
  if (overlays.empty()) return;
  const bool any_curve = std::any_of(studies.begin(), studies.end(), [](const StudyReport& study) {
    return HasCurves(study.results);
  });
  if (!any_curve) {
    std::vector<std::string> files;
    for (const StudyReport& study : studies) files.push_back(study.file.string());
    throw Error(Joined(files, ", "),
                (files.size() == 1 ? std::string("has") : std::string("have")) +
                    " no training curves that an overlay could be laid over; leave out --overlay");
  }
  for (const Overlay& overlay : overlays) {
    std::size_t drawn = 0;
    double last = 0;
    for (const StudyReport& study : studies) {
      for (const ModelReport& model : study.models) {
        drawn += DrawnPoints(model.results, overlay);
        last = std::max(last, LastCurveTokens(model.results));
      }
    }
    if (drawn > 0) continue;
    throw Error("--overlay " + overlay.label,
                "has points at " + RangeText(overlay.tokens.front(), overlay.tokens.back()) +
                    " tokens, and the figure shows " + RangeText(last / 20, last) +
                    ": nothing would be drawn; check --overlay-tokens-per-step, or leave it out");
  }
}

}  // namespace fp4lab::study
