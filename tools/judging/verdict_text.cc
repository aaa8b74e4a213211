#include "tools/judging/verdict_text.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "fp4lab/base/text/text.h"
#include "tools/options/print.h"

namespace fp4lab::tools {

std::string Hex(float x) {
  char text[48];
  std::snprintf(text, sizeof text, "0x%08X (%.9g)", std::bit_cast<std::uint32_t>(x), x);
  return text;
}

Json NumberJson(double x) { return std::isfinite(x) ? Json(x) : Json(std::to_string(x)); }

Json ElementJson(const GemmElement& e) {
  Json json = {{"row", e.row},
               {"col", e.col},
               {"got", NumberJson(e.got)},
               {"want", NumberJson(e.want)},
               {"exact", NumberJson(e.exact)},
               {"error", NumberJson(e.error)},
               {"bound", NumberJson(e.bound)}};
  if (e.special_in != ' ') {
    json["special"] = {{"operand", std::string(1, e.special_in)}, {"k", e.special_k}};
  }
  return json;
}

Json CausesJson(const std::vector<GemmCause>& causes) {
  Json list = Json::array();
  for (const GemmCause& c : causes) {
    list.push_back({{"name", c.name}, {"what", c.what}, {"different", c.different}});
    if (c.elements > 0) list.back()["elements"] = c.elements;
  }
  return list;
}

Json RectangleJson(const Rectangle& r) {
  return {{"row", r.row}, {"column", r.col}, {"rows", r.rows}, {"columns", r.cols}};
}

std::string OutsideText(const Rectangle& r, std::size_t outside, std::size_t rows,
                        std::size_t cols) {
  const std::size_t within = r.rows * r.cols;
  const std::string count = std::to_string(outside);
  if (r.rows == rows && r.cols == cols) {
    return "  outside in all rows and columns: " + count + " of " + std::to_string(within) +
           " elements\n";
  }
  return "  outside in " + Text(r) + " only: " +
         (outside == within ? "all " + count : count + " of " + std::to_string(within)) +
         " elements there\n";
}

void PrintCauses(const std::vector<GemmCause>& causes, const char* it) {
  if (!causes.empty() && causes.front().elements > 0) {
    for (const GemmCause& c : causes) {
      Print("Cause of %s: The kernel %s. (%s)\n", CountText(c.elements, "element").c_str(),
            c.what.c_str(), c.name.c_str());
    }
    PrintText("       These causes together put all elements within the bound.\n");
    return;
  }
  for (const GemmCause& c : causes) {
    Print("%s The kernel %s. (%s)\n",
          causes.size() == 1 ? "Cause:" : "Possible cause:", c.what.c_str(), c.name.c_str());
    PrintText(c.equal() ? "       This cause reproduces all elements.\n"
                        : "       Under this cause, all elements lie within the bound.\n");
  }
  if (causes.size() > 1) Print("       This %s does not tell these causes apart.\n", it);
}

}  // namespace fp4lab::tools
