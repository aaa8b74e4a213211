// fp4lab verify gemm: compares a device's product with an accumulation model or its error bound.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/exchange/matrix_file.h"
#include "fp4lab/io/json.h"
#include "fp4lab/judge/products/gemm.h"
#include "fp4lab/judge/products/gemm_cause.h"
#include "fp4lab/judge/products/product_case.h"
#include "fp4lab/judge/products/product_folder.h"
#include "fp4lab/judge/products/scaled_product.h"
#include "tools/help/help_group.h"
#include "tools/judging/directed_cases.h"
#include "tools/judging/verdict_text.h"
#include "tools/options/commands.h"
#include "tools/options/comparing.h"
#include "tools/options/gemm_options.h"
#include "tools/options/print.h"

namespace fp4lab::tools {
namespace {

struct VerifyGemm {
  ProductFiles files;
  std::string d;
  std::string c;
  float beta = 1.0f;
  std::string cases;
  float output_scale = 1.0f;
  bool with_scales = false, json = false, allow_declined = false;
};

std::string Place(const GemmElement& e) {
  return "(" + std::to_string(e.row) + ", " + std::to_string(e.col) + ")";
}

std::string ReadingName(const OpenChoices& open) {
  return std::string("cancelled groups ") + (open.cancelled_group_counts ? "count" : "do not") +
         ", zero groups " + (open.zero_group_counts ? "count" : "do not");
}

// The models that give the product bit for bit.
std::vector<std::string> EqualModels(const std::vector<AccumulationMatch>& matches) {
  std::vector<std::string> names;
  for (const AccumulationMatch& m : matches) {
    if (m.different == 0) names.emplace_back(m.accumulation->name);
  }
  return names;
}

Json JudgementJson(const std::string& under, const GemmJudgement& j,
                   const std::vector<AccumulationMatch>& matches,
                   const std::vector<GemmCause>& causes) {
  Json json = {{"under", under},
               {"verdict", Name(j.verdict)},
               {"bound", j.bound},
               {"different", j.different},
               {"outside", j.outside},
               {"worst", ElementJson(j.worst)},
               {"readings_differ", j.readings_differ}};
  if (j.outside > 0) {
    json["outside_in"] = RectangleJson(j.outside_in);
    json["causes"] = CausesJson(causes);
  }
  json["readings"] = Json::array();
  for (const OpenChoices& open : j.readings) json["readings"].push_back(ReadingName(open));
  if (j.different > 0) json["first_different"] = ElementJson(j.first_different);
  for (const AccumulationMatch& m : matches) {
    json["accumulations"][std::string(m.accumulation->name)] = m.different;
  }
  if (!matches.empty()) json["equal_under"] = EqualModels(matches);
  return json;
}

// Why an element of the product, or its exact value, is not finite; "" where both are finite.
std::string SpecialText(const GemmElement& e) {
  if (e.special_in == 'C') {
    return "  the exact value is special: C has a NaN or infinity there\n";
  }
  if (e.special_in != ' ') {
    const std::size_t row = e.special_in == 'A' ? e.row : e.col;
    return std::string("  the exact value is special: ") + e.special_in +
           " has a NaN or infinity at (" + std::to_string(row) + ", " +
           std::to_string(e.special_k) + ")\n";
  }
  if (std::isfinite(e.got)) return "";
  return "  row " + std::to_string(e.row) + " of A and row " + std::to_string(e.col) +
         " of B are finite: the device made the " + (std::isnan(e.got) ? "NaN" : "infinity") + "\n";
}

void PrintWorst(const char* what, const GemmElement& e) {
  Print("  %s %s: got %s, exact %s, error %.4g, bound %.4g\n", what, Place(e).c_str(),
        Hex(e.got).c_str(), Hex(e.exact).c_str(), e.error, e.bound);
  PrintText(SpecialText(e));
}

void PrintJudgement(const std::string& under, const GemmJudgement& j, std::size_t rows,
                    std::size_t cols) {
  const std::size_t elements = rows * cols;
  Print("%s: %s", under.c_str(), std::string(Name(j.verdict)).c_str());
  switch (j.verdict) {
    case GemmVerdict::kEqual:
      Print(", %zu elements bit for bit\n", elements);
      return;
    case GemmVerdict::kUndetermined:
      PrintText(", the public readings of the instruction differ on this input; it follows:\n");
      for (const OpenChoices& open : j.readings) Print("  %s\n", ReadingName(open).c_str());
      break;
    case GemmVerdict::kInside:
      Print(" the %s bound; %zu of %zu elements differ from the model\n",
            std::string(j.bound).c_str(), j.different, elements);
      break;
    case GemmVerdict::kOutside:
      Print(" the %s bound: %zu of %zu elements (%zu differ from the model)\n",
            std::string(j.bound).c_str(), j.outside, elements, j.different);
      PrintText(OutsideText(j.outside_in, j.outside, rows, cols));
      break;
  }
  if (j.different > 0) {
    const GemmElement& e = j.first_different;
    Print("  first difference %s: got %s, the model %s\n", Place(e).c_str(), Hex(e.got).c_str(),
          Hex(e.want).c_str());
  }
  PrintWorst(j.outside > 0 ? "first outside" : "largest error / bound", j.worst);
}

// A statement of the command line under which at most half as many elements are outside, if the
// product is outside under the stated one: alpha of the tensors' amaxes, or another type of the
// output.
struct OtherStatement {
  std::string options;
  std::size_t outside = 0;
};
std::optional<OtherStatement> BetterStatement(const LoadedProduct& p, const GemmClaim& claim,
                                              const Accumulation& under, std::size_t outside) {
  std::optional<OtherStatement> best;
  const auto is_value_of = [&](FormatId format) {
    for (std::size_t i = 0; i < claim.d.size(); ++i) {
      const float x = claim.d(i / claim.d.cols, i % claim.d.cols);
      if (x == x && Decode(format, Encode(format, x)) != x) return false;
    }
    return true;
  };
  for (const NamedGemmOutput& output : kGemmOutputs) {
    if (output.output == GemmOutput::kBf16 && !is_value_of(FormatId::kBF16)) continue;
    if (output.output == GemmOutput::kFp16 && !is_value_of(FormatId::kFP16)) continue;
    for (const bool of_kernel : {false, true}) {
      if (of_kernel && (p.alpha != 1.0f || !p.a.amax || !p.b.amax)) continue;
      GemmClaim other = claim;
      other.output = output.output;
      if (of_kernel) other.alpha = Nvfp4Alpha(AlphaRule::kKernel, *p.a.amax, *p.b.amax);
      if (!std::isfinite(other.alpha)) continue;
      const std::size_t left = JudgeGemm(other, under).outside;
      if (left >= (best ? best->outside : outside / 2 + 1)) continue;
      std::string options = of_kernel ? "--alpha kernel" : "";
      if (output.output != claim.output) {
        options += std::string(options.empty() ? "" : " ") + "--output " + std::string(output.name);
      }
      best = OtherStatement{options, left};
    }
  }
  return best;
}

// Prints every model, the models that give the product bit for bit first.
void PrintMatches(const std::vector<AccumulationMatch>& matches, std::size_t elements) {
  const std::vector<std::string> equal = EqualModels(matches);
  if (equal.empty()) {
    Print("none of %zu models gives the product bit for bit\n", matches.size());
  } else {
    Print("equal, %zu elements bit for bit, under %zu of %zu models:\n", elements, equal.size(),
          matches.size());
    for (const std::string& name : equal) Print("  %s\n", name.c_str());
  }
  for (const AccumulationMatch& m : matches) {
    if (m.different == 0) continue;
    Print("  %-24s %zu differ\n", std::string(m.accumulation->name).c_str(), m.different);
  }
}

// The model to judge by if none is given: the first one that gives the product bit for bit, else
// the exact sum, whose bound holds for any order.
const Accumulation& BestOf(const std::vector<AccumulationMatch>& matches) {
  for (const AccumulationMatch& m : matches) {
    if (m.different == 0) return *m.accumulation;
  }
  return *FindAccumulation("exact");
}

// The verdict on a kernel's answers to the directed products in a folder.
bool RunCases(const VerifyGemm& o) {
  if (!o.files.a.empty()) {
    throw Error("--cases " + o.cases, "holds operands and products: give no other file");
  }
  return JudgeDirected(ProductBench(MakeProductCases()), o.cases, "gemm", o.allow_declined, o.json);
}

// ---- FP8 operands with scales of tensors, rows and blocks

bool HasFp8Output(const VerifyGemm& o) {
  return o.files.output == "e4m3" || o.files.output == "e5m2";
}

std::string ScaleOption(const ScaledJudgement::OtherScale& other) {
  char text[48];
  std::snprintf(text, sizeof text, "--output-scale %.9g", static_cast<double>(other.output_scale));
  return text;
}

Json ScaledJson(const std::string& under, const ScaledJudgement& j) {
  Json json = {{"under", under},
               {"verdict", Name(j.verdict)},
               {"bound", "scaled"},
               {"different", j.different},
               {"outside", j.outside}};
  if (j.different > 0) json["first_different"] = ElementJson(j.first_different);
  if (j.outside == 0) return json;
  const Rectangle& r = j.outside_in;
  json["outside_in"] = {{"row", r.row}, {"column", r.col}, {"rows", r.rows}, {"columns", r.cols}};
  json["worst"] = ElementJson(j.first_outside);
  json["causes"] = Json::array();
  for (const ScaledJudgement::Cause& c : j.causes) {
    json["causes"].push_back({{"name", c.name}, {"what", c.what}, {"equal", c.equal}});
  }
  if (j.better) {
    json["better"] = {{"options", ScaleOption(*j.better)}, {"outside", j.better->outside}};
  }
  return json;
}

void PrintScaled(const std::string& under, const ScaledJudgement& j, std::size_t rows,
                 std::size_t cols) {
  Print("%s: %s", under.c_str(), std::string(Name(j.verdict)).c_str());
  if (j.verdict == GemmVerdict::kEqual) return Print(", %zu elements bit for bit\n", rows * cols);
  Print(" the bound of products with scales: %zu of %zu elements (%zu differ from the model)\n",
        j.outside, rows * cols, j.different);
  const GemmElement& first = j.first_different;
  Print("  first difference %s: got %s, the model %s\n", Place(first).c_str(),
        Hex(first.got).c_str(), Hex(first.want).c_str());
  if (j.outside == 0) return;
  PrintText(OutsideText(j.outside_in, j.outside, rows, cols));
  PrintWorst("first outside", j.first_outside);
  for (const ScaledJudgement::Cause& c : j.causes) {
    Print("%s The kernel %s. (%s)\n",
          j.causes.size() == 1 ? "Cause:" : "Possible cause:", std::string(c.what).c_str(),
          std::string(c.name).c_str());
    PrintText(c.equal ? "       This cause reproduces all elements.\n"
                      : "       Under this cause, all elements lie within the bound.\n");
  }
  if (j.better) {
    Print("With %s, %zu of %zu elements are outside.\n", ScaleOption(*j.better).c_str(),
          j.better->outside, rows * cols);
  }
}

// The tensor scales of FP8 are in the product; those of FP4 are alpha's, which a rule may make.
float ScaledAlpha(const ProductFiles& files, const LoadedProduct& p) {
  char* end = nullptr;
  const float alpha = std::strtof(files.alpha.c_str(), &end);
  if (end != files.alpha.c_str() && *end == '\0' && std::isfinite(alpha)) return alpha;
  if (p.a.operand.format.bits < 8 && p.b.operand.format.bits < 8) return ReadAlpha(files, p);
  throw Error("--alpha " + files.alpha,
              "is not a finite number, which a product of scaled FP8 takes");
}

bool RunScaled(const VerifyGemm& o) {
  if (!o.c.empty()) {
    throw Error("--c " + o.c,
                "a product of scaled FP8 has no C; verify the product before C is added");
  }
  const ScaledOperandFile a = ReadScaledOperand(o.files.a, o.files.operand);
  const ScaledOperandFile b = ReadScaledOperand(o.files.b, o.files.operand);
  const MmaOperand &ea = a.operand.elements, &eb = b.operand.elements;
  if (ea.cols != eb.cols) {
    throw Error(o.files.b, "is " + b.what + " where " + o.files.a + " is " + a.what +
                               ": the last dimensions, K, must agree");
  }
  const Matrix<float> d = ReadMatrix(o.d).values;
  if (d.rows != ea.rows || d.cols != eb.rows || d.values.empty()) {
    throw Error(o.d, "is " + std::to_string(d.rows) + "x" + std::to_string(d.cols) +
                         "; the product is " + std::to_string(ea.rows) + "x" +
                         std::to_string(eb.rows));
  }
  const std::string name = o.files.under.empty() ? "exact" : o.files.under;
  LoadedProduct elements;
  elements.a.operand = ea;
  elements.a.what = a.what;
  elements.a.amax = a.amax;
  elements.b.operand = eb;
  elements.b.what = b.what;
  elements.b.amax = b.amax;
  const Accumulation& under = RequireAccumulation(name, elements);
  const ScaledJudgement j =
      JudgeScaled({.a = a.operand,
                   .b = b.operand,
                   .d = d.View(),
                   .alpha = ScaledAlpha(o.files, elements),
                   .output = ScaledOutputNamed(o.files.output, "--output " + o.files.output),
                   .output_scale = o.output_scale},
                  under);
  if (o.json) {
    PrintJson(ScaledJson(name, j), 2);
  } else {
    PrintScaled(name, j, d.rows, d.cols);
  }
  return j.outside == 0;
}

bool Run(const VerifyGemm& o) {
  if (!o.cases.empty()) return RunCases(o);
  if (o.files.a.empty() || o.files.b.empty() || o.d.empty()) {
    throw Error("verify gemm", "needs three files: A (M, K), B (N, K) and the product D (M, N)");
  }
  if (o.with_scales || HasFp8Output(o) || HoldsScaledFp8(o.files.a) || HoldsScaledFp8(o.files.b)) {
    return RunScaled(o);
  }
  if (o.output_scale != 1.0f) {
    throw Error("--output-scale", "is of products of FP8: add --with-scales");
  }
  const LoadedProduct p = Load(o.files);
  const Matrix<float> d = ReadMatrix(o.d).values;
  if (d.rows != p.a.operand.rows || d.cols != p.b.operand.rows) {
    throw Error(o.d, "is " + std::to_string(d.rows) + "x" + std::to_string(d.cols) +
                         "; the product is " + std::to_string(p.a.operand.rows) + "x" +
                         std::to_string(p.b.operand.rows));
  }
  if (d.values.empty()) {
    throw Error(o.d, "the product has no elements");
  }
  GemmClaim claim{
      .a = p.a.operand, .b = p.b.operand, .d = d.View(), .alpha = p.alpha, .output = p.output};
  if (p.a.amax && p.b.amax && *p.a.amax > 0 && *p.b.amax > 0) {
    claim.tensor_scale_a = *p.a.amax / 2688.0f;
    claim.tensor_scale_b = *p.b.amax / 2688.0f;
  }
  Matrix<float> added;
  if (!o.c.empty()) {
    added = ReadMatrix(o.c).values;
    if (added.rows != d.rows || added.cols != d.cols) {
      throw Error(o.c, "is " + std::to_string(added.rows) + "x" + std::to_string(added.cols) +
                           "; C has the shape of the product, " + std::to_string(d.rows) + "x" +
                           std::to_string(d.cols));
    }
    if (!std::isfinite(o.beta)) throw Error("--beta", "is not a finite number");
    claim.c = added.View();
    claim.beta = o.beta;
  }
  std::vector<AccumulationMatch> matches;
  if (o.files.under.empty()) matches = IdentifyAccumulation(claim);
  const Accumulation& under =
      o.files.under.empty() ? BestOf(matches) : RequireAccumulation(o.files.under, p);
  const GemmJudgement j = JudgeGemm(claim, under);
  const std::string name(under.name);
  std::vector<GemmCause> causes;
  std::optional<OtherStatement> other;
  if (j.outside > 0) causes = FindGemmCauses(claim, under);
  if (j.outside > 0 && causes.empty()) other = BetterStatement(p, claim, under, j.outside);
  if (o.json) {
    Json json = JudgementJson(name, j, matches, causes);
    if (other) json["better"] = {{"options", other->options}, {"outside", other->outside}};
    PrintJson(json, 2);
  } else {
    if (!matches.empty()) PrintMatches(matches, d.values.size());
    if (matches.empty() || j.verdict != GemmVerdict::kEqual) {
      PrintJudgement(name, j, d.rows, d.cols);
      PrintCauses(causes);
      if (other) {
        Print("With %s, %zu of %zu elements are outside.\n", other->options.c_str(), other->outside,
              d.values.size());
      }
    }
  }
  return j.verdict == GemmVerdict::kEqual || j.outside == 0;
}

}  // namespace

void AddVerifyGemm(CLI::App& app, int* exit_code) {
  const auto o = std::make_shared<VerifyGemm>();
  CLI::App* command = app.get_subcommand("verify")->add_subcommand(
      "gemm", "A device's product: exit code 0 equal or inside the bound, 1 outside, 2 error");
  AddProductOptions(command, &o->files, "");
  command->add_option("D", o->d, "(M, N): the product that a device returned")->type_name("FILE");
  CLI::Option* added =
      command->add_option("--c", o->c, "(M, N): D = alpha A B^T + beta C")->type_name("FILE");
  command->add_option("--beta", o->beta, "Factor of C; 0: C is not read")
      ->needs(added)
      ->capture_default_str();
  command->add_option("--cases", o->cases, "Judge the answers in this folder of `cases gemm`")
      ->type_name("FOLDER");
  command->add_flag("--with-scales", o->with_scales,
                    "FP8: the kernel multiplies by the operands' scales of tensors, rows and "
                    "blocks, promoting each block to binary32 (implied by scales of rows and of "
                    "128 columns, and by FP8 output)");
  command->add_option(
      "--output-scale", o->output_scale,
      "Factor of the product before it is rounded (products with scales: --output also "
      "e4m3, e5m2)");
  command->add_flag("--allow-declined", o->allow_declined, "Accept cases without an answer");
  command->add_flag("--json", o->json, "Print JSON");
  PutInGroup(command, kProductGroup, {"--c", "--beta", "--with-scales", "--output-scale"});
  PutInGroup(command, kCasesGroup, {"--cases", "--allow-declined"});
  command->footer(
      "With --under: bit for bit under that model, else inside or outside of its error bound\n"
      "(lib/fp4lab/judge/products/gemm.h derives the bounds). Without: all models that give the "
      "product, "
      "or\n"
      "that none does and how far it is from the exact one.\n"
      "Example: a product summed in binary32, taken for a B200's\n"
      "  $ fp4lab gemm --probe nvfp4 --out probe.safetensors\n"
      "  39 probes of K 256; element (i, i) of a b^T answers probe i\n"
      "  $ fp4lab gemm probe.safetensors#a probe.safetensors#b --out d.npy\n"
      "  39x39, K 256, fp32-blocks, alpha 1\n"
      "  $ fp4lab verify gemm probe.safetensors#a probe.safetensors#b d.npy --under fp32-blocks\n"
      "  fp32-blocks: equal, 1521 elements bit for bit");
  command->callback([o, exit_code] { Comparing(exit_code, [&] { return Run(*o); }); });
}

}  // namespace fp4lab::tools
