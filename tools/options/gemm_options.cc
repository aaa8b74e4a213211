#include "tools/options/gemm_options.h"

#include <charconv>
#include <cmath>

#include "fp4lab/base/error.h"
#include "fp4lab/base/text/suggest.h"
#include "tools/help/help_group.h"

namespace fp4lab::tools {
namespace {

float AmaxOf(const GemmOperandFile& file, const std::string& place, const std::string& alpha) {
  if (file.amax) return *file.amax;
  throw Error("--alpha " + alpha,
              "needs the tensor's amax, which " + place + " does not hold: give a number instead");
}

}  // namespace

float ReadAlpha(const ProductFiles& files, const LoadedProduct& p) {
  for (const NamedAlphaRule& rule : kAlphaRules) {
    if (rule.name != files.alpha) continue;
    return Nvfp4Alpha(rule.rule, AmaxOf(p.a, files.a, files.alpha),
                      AmaxOf(p.b, files.b, files.alpha));
  }
  float alpha = 0;
  const char* end = files.alpha.data() + files.alpha.size();
  const auto result = std::from_chars(files.alpha.data(), end, alpha);
  if (result.ec != std::errc() || result.ptr != end || !std::isfinite(alpha)) {
    throw Error("--alpha " + files.alpha,
                "is not a finite number; " + DidYouMean(files.alpha, NamesOf(kAlphaRules),
                                                        "or one of: kernel reference jax"));
  }
  return alpha;
}

GemmOutput GemmOutputNamed(const std::string& name) {
  for (const NamedGemmOutput& output : kGemmOutputs) {
    if (output.name == name) return output.output;
  }
  throw Error("--output " + name,
              "is not a type of a product; " + DidYouMean(name, NamesOf(kGemmOutputs)));
}

void AddProductOptions(CLI::App* command, ProductFiles* files, const std::string& under) {
  const HelpGroup group(command, kProductGroup);
  command->add_option("A", files->a, "(M, K): a quantized matrix or numbers, FILE or FILE#NAME")
      ->type_name("FILE");
  command->add_option("B", files->b, "(N, K), as A")->type_name("FILE");
  command->add_option("--operand", files->operand, "Round plain numbers to this format first")
      ->type_name("FORMAT");
  files->under = under;
  CLI::Option* option = command->add_option(
      "--under", files->under, "How the sum is formed; `fp4lab gemm --models` lists the names");
  option->type_name("NAME");
  if (!under.empty()) option->capture_default_str();
  command
      ->add_option("--alpha", files->alpha,
                   "A number; or kernel, reference or jax: from the tensors' amax as Transformer "
                   "Engine's kernels, PyTorch reference or JAX layer compute it")
      ->capture_default_str();
  command->add_option("--output", files->output, "Type of the product: f32, bf16, f16")
      ->capture_default_str();
}

LoadedProduct Load(const ProductFiles& files) {
  LoadedProduct p{.a = ReadGemmOperand(files.a, files.operand),
                  .b = ReadGemmOperand(files.b, files.operand)};
  if (p.a.operand.cols != p.b.operand.cols) {
    throw Error(files.b, "is " + p.b.what + " where " + files.a + " is " + p.a.what +
                             ": the last dimensions, K, must agree");
  }
  p.alpha = ReadAlpha(files, p);
  p.output = GemmOutputNamed(files.output);
  return p;
}

const Accumulation& RequireAccumulation(const std::string& name, const LoadedProduct& product) {
  const Accumulation* accumulation = FindAccumulation(name);
  if (accumulation == nullptr) {
    throw Error("--under " + name,
                "is not an accumulation; " + DidYouMean(name, NamesOf(Accumulations()),
                                                        "`fp4lab gemm --models` lists them"));
  }
  const std::string reason = WhyNot(*accumulation, product.a.operand, product.b.operand);
  if (reason.empty()) return *accumulation;
  throw Error("--under " + name,
              reason + "; the operands are " + product.a.what + " and " + product.b.what);
}

}  // namespace fp4lab::tools
