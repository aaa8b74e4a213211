// The text of the cause that explain found, stated only as far as the bytes determine it.
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <span>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/dialect/noise/added_noise.h"
#include "fp4lab/judge/explain/evidence.h"
#include "fp4lab/judge/explain/explain.h"
#include "fp4lab/judge/kernels/kernel_text.h"

namespace fp4lab {
namespace {

std::string Capitalised(std::string text) {
  text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

std::string Remedy(Stage stage) {
  switch (stage) {
    case Stage::kInput:
      return "Check what the kernel reads and how it transforms its input, not its arithmetic.";
    case Stage::kTensorScale:
      return "Check where the kernel computes the tensor scale from the amax, and whether each "
             "later formula uses S or D.";
    case Stage::kScale:
      return "Check the code that computes a block's scale byte from its amax.";
    case Stage::kElement:
      return "Check the code that scales and rounds an element.";
    case Stage::kLayout:
      return "The numbers are right, their places are not: write them where the consumer reads "
             "them, or convert the bytes (fp4lab convert).";
    case Stage::kNothing:
      return "Check that the kernel ran, and that it wrote the whole output.";
  }
  return "";
}

std::string WhatToDo(const Cause& cause) {
  std::string text;
  if (cause.dialect != nullptr) {
    text = "If the kernel is meant to compute " + std::string(cause.dialect->name) +
           ", verify with --dialect " + std::string(cause.dialect->name) + ".";
  }
  for (const Deviation* d : cause.deviations) {
    const std::string remedy = Remedy(d->stage);
    if (text.find(remedy) == std::string::npos) text += (text.empty() ? "" : "\n       ") + remedy;
  }
  return text;
}

// Advice to collect more bytes, for causes that these bytes do not determine.
std::string AskTheCases(const Kernel& kernel) {
  const std::string options = CommandOptions(kernel);
  return "Do:    Run the kernel on the directed cases, and explain its answers together:\n"
         "         fp4lab cases" +
         DialectOption(kernel.dialect) + " | KERNEL | fp4lab verify" + options +
         " --keep wrong\n"
         "         fp4lab explain" +
         options + " --kept wrong\n";
}

template <class T, class Line>
std::string Listed(const std::vector<T>& items, Line line) {
  constexpr std::size_t kShown = 12;
  std::string text;
  for (std::size_t i = 0; i < items.size() && i < kShown; ++i) {
    text += "         " + line(items[i]) + "\n";
  }
  if (items.size() > kShown) {
    text += "         and " + std::to_string(items.size() - kShown) + " more\n";
  }
  return text;
}
std::string NamesOf(const std::vector<const Dialect*>& dialects) {
  return Listed(dialects, [](const Dialect* d) { return std::string(d->name); });
}

std::string Described(const Cause& cause) { return Sentence(cause) + " (" + Name(cause) + ")"; }

// Causes that give the same bytes because they contain the first cause's changes, and others that
// this input does not show.
std::string UnseenText(const SearchResult& causes) {
  std::vector<Cause> more;
  for (std::size_t i = 1; i < causes.exact.size(); ++i) {
    const Cause& cause = causes.exact[i];
    const bool rival =
        std::find(causes.rivals.begin(), causes.rivals.end(), cause) != causes.rivals.end();
    if (!rival) more.push_back(cause);
  }
  if (more.empty()) return "";
  return "       These causes give the same bytes too; they differ on other inputs:\n" +
         Listed(more, [](const Cause& c) { return Name(c); });
}

std::string SetsBesideText(const SearchResult& causes) {
  if (causes.sets.empty()) return "";
  return "       The bytes also lie in the sets of answers of approximate dialects:\n" +
         NamesOf(causes.sets);
}

std::string ForcedText(const Explanation& e) {
  const Cause& cause = e.causes.exact[0];
  return "Cause: " + Described(cause) + "\n       This cause reproduces all bytes.\n" +
         UnseenText(e.causes) + SetsBesideText(e.causes) + "Do:    " + WhatToDo(cause) + "\n";
}

std::string NotToldApartText(const Kernel& kernel, const Explanation& e) {
  std::vector<Cause> all = {e.causes.exact[0]};
  all.insert(all.end(), e.causes.rivals.begin(), e.causes.rivals.end());
  std::string text =
      "Cause: not determined by these bytes. Each of these causes reproduces all of them:\n" +
      Listed(all, Described) + UnseenText(e.causes) + SetsBesideText(e.causes);
  if (e.deciding) {
    const bool all_apart = e.deciding->answers == all.size();
    text += "       The directed case " + e.deciding->name + " tells " +
            (all_apart ? std::string("them")
                       : CountText(e.deciding->answers, "group") + " of the first " +
                             std::to_string(e.deciding->causes)) +
            " apart.\n";
  }
  return text + AskTheCases(kernel);
}

std::string ConsistentText(const Kernel& kernel, const Explanation& e) {
  const SearchResult& causes = e.causes;
  std::string text = "Cause: consistent with: " + Described(causes.exact[0]) +
                     "\n       This cause reproduces all bytes. ";
  if (causes.near) {
    text += "But " + Name(causes.near->cause) + " leaves only " +
            CountText(causes.near->blocks_left, "block") + " different.\n";
  } else if (causes.certainty == Certainty::kFitted) {
    text += "But it is fitted to these\n       bytes: another error can give them too.\n";
  } else {
    text += "But only " + CountText(causes.evidence, "independent difference") +
            (causes.evidence == 1 ? " supports" : " support") +
            " it;\n       fp4lab states a cause from " + std::to_string(kEnoughDifferences) +
            " on.\n";
  }
  return text + UnseenText(causes) + SetsBesideText(causes) + AskTheCases(kernel);
}

// The text for bytes that no exact cause explains, but the error of approximate instructions does;
// it explains every other error of that size as well.
std::string SetText(const Kernel& kernel, const std::vector<const Dialect*>& sets) {
  return "Cause: consistent with division by approximate instructions (nvcc -use_fast_math): all\n"
         "       bytes lie in the sets of answers of\n" +
         NamesOf(sets) +
         "       Another order of operations or tie rule would also give bytes in these sets.\n" +
         AskTheCases(kernel) +
         "       If approximate division is intended, verify with a set: --dialect " +
         std::string(sets[0]->name) + ".\n";
}

std::string NumberText(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2g", number);
  return text;
}

// The text for bytes whose codes are distributed as those of stochastic rounding.
std::string StochasticText(const Kernel& kernel, const StochasticCause& cause) {
  double least = 1.0;
  for (const StochasticStatistic& s : cause.verdict.statistics) least = std::min(least, s.p_value);
  const std::string name(cause.dialect != nullptr ? cause.dialect->name : kernel.dialect.name);
  if (cause.noise != nullptr) {
    return "Cause: consistent with " + std::string(cause.noise->name) + " (" + name + "):\n" +
           "       " + std::string(cause.noise->text) +
           ";\n       all scales are right, every code can be reached, and " +
           std::to_string(cause.verdict.free_elements) +
           "\n       elements have their codes as often as they should (least p " +
           NumberText(least) + ").\n" +
           "Do:    Judge several runs, each with its own random numbers: fp4lab verify "
           "--stochastic --dialect\n       " +
           name + " --more-codes ....\n";
  }
  std::string text =
      "Cause: consistent with stochastic rounding" +
      (cause.dialect != nullptr ? " (" + name + ")" : " of " + name + "'s scaled elements") +
      ":\n       all scales are right, and every code is a neighbour of its scaled element; " +
      std::to_string(cause.verdict.free_elements) +
      "\n       elements between two codes round up as often as they should (least p " +
      NumberText(least) + ").\n";
  if (cause.dialect == nullptr) {
    return text +
           "Do:    Verify the kernel's rounding with a stochastic dialect, or turn it off.\n";
  }
  return text +
         "Do:    Judge several runs, each with its own random bits: fp4lab verify --stochastic "
         "--dialect\n       " +
         name + " --more-codes ...; with recorded bits: --random.\n";
}

// The text for bytes in which only the tensor scale differs.
std::string TensorScaleText(const Explanation& e) {
  std::string text = "Cause: Only the tensor scale differs: it is " + e.tensor_scale->looks + ".\n";
  if (!e.causes.exact.empty()) {
    text += "       The same bytes follow from:\n" + Listed(e.causes.exact, Described);
  }
  return text + "Do:    " + Capitalised(e.tensor_scale->remedy) + ".\n";
}

// Whether a stage of the element that is shown has other bytes.
bool AStageDiffers(const Explanation& e) {
  return (e.theirs.has_scale && e.theirs.scale_differs) ||
         (e.theirs.has_code && e.theirs.code != e.ours.code);
}

std::string WhereToLook(const Explanation& e) {
  if (e.tensor_scale && e.tensor_scale->kind != "unknown") {
    return "Fix the tensor scale first: " + e.tensor_scale->remedy + ". Then run explain again.\n";
  }
  if (AStageDiffers(e)) return "Check the first stage above in which ours and theirs differ.\n";
  if (!e.counts.comparable) {
    return "The sizes are those of another layout: state the layout that the kernel writes.\n";
  }
  return "The bytes of the element above are equal; check those under \"where\".\n";
}

std::string NoCauseText(const Explanation& e) {
  std::string text = "Cause: not found among " + std::to_string(e.causes.tried) +
                     " hypotheses, alone and in pairs.\n";
  if (e.causes.best) {
    const MatchCounts& c = e.causes.best->counts;
    text += "       Nearest: " + Name(e.causes.best->cause) + ", which leaves " +
            CountText(c.codes_differ + c.codes_beyond, "code") + " and " +
            CountText(c.scales_differ + c.scales_beyond, "scale") + " different (of " +
            CountText(e.counts.codes_differ, "code") + " and " +
            CountText(e.counts.scales_differ, "scale") + " before).\n";
  }
  if (e.causes.stochastic) {
    text +=
        "       All scales are right and every code is a neighbour of its scaled element, so "
        "the rounding\n       differs; " +
        std::string(e.causes.stochastic->verdict.answer == StochasticAnswer::kRefused
                        ? "it is not stochastic: "
                        : "whether it is stochastic is open: ") +
        e.causes.stochastic->verdict.reason + ".\n";
  }
  return text + "Do:    " + WhereToLook(e) +
         "       If the dialect or the layout is in doubt, run fp4lab identify on the same "
         "files.\n";
}

}  // namespace

std::string CauseText(const Kernel& kernel, const Explanation& e) {
  const IeeeArithmetic ieee;
  if (e.OnlyTensorScale()) return TensorScaleText(e);
  switch (e.causes.certainty) {
    case Certainty::kForced:
      return ForcedText(e);
    case Certainty::kNotToldApart:
      return NotToldApartText(kernel, e);
    case Certainty::kTooFew:
    case Certainty::kFitted:
    case Certainty::kNearRival:
      return ConsistentText(kernel, e);
    case Certainty::kNone:
      break;
  }
  if (e.causes.IsStochastic()) return StochasticText(kernel, *e.causes.stochastic);
  return e.causes.sets.empty() ? NoCauseText(e) : SetText(kernel, e.causes.sets);
}

}  // namespace fp4lab
