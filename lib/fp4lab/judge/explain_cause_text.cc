// The cause that explain found, for people: what the bytes force, and no more.
#include <algorithm>
#include <cctype>
#include <span>

#include "fp4lab/judge/evidence.h"
#include "fp4lab/judge/explain.h"

namespace fp4lab {
namespace {

std::string Plural(std::size_t n, const std::string& noun) {
  return std::to_string(n) + " " + noun + (n == 1 ? "" : "s");
}

std::string Remedy(Stage stage) {
  switch (stage) {
    case Stage::kInput:
      return "Look at what the kernel reads and transforms, not at its arithmetic.";
    case Stage::kLevelTwo:
      return "Look at where the kernel makes the tensor scale from amax, and at which side of it "
             "each later formula takes.";
    case Stage::kScale:
      return "Look at where the kernel turns a block's amax into its scale byte.";
    case Stage::kElement:
      return "Look at where the kernel scales and rounds an element.";
    case Stage::kLayout:
      return "The numbers are right, their places are not: write them where the consumer reads "
             "them, or convert the bytes (fp4lab convert).";
    case Stage::kNothing:
      return "Look at whether the kernel ran at all, and over the whole output.";
  }
  return "";
}

std::string WhatToDo(const Cause& cause) {
  std::string text;
  if (cause.dialect != nullptr) {
    text = "If " + std::string(cause.dialect->name) + " is what you want, judge by it: --dialect " +
           std::string(cause.dialect->name) + ".";
  }
  for (const Deviation* d : cause.deviations) {
    const std::string remedy = Remedy(d->stage);
    if (text.find(remedy) == std::string::npos) text += (text.empty() ? "" : "\n       ") + remedy;
  }
  return text;
}

// More bytes, where these force nothing.
std::string AskTheCases(const Kernel& kernel) {
  const std::string name(kernel.dialect.name);
  return "Do:    Give the kernel the directed cases, and ask all of them together:\n"
         "         fp4lab cases --dialect " +
         name + " | KERNEL | fp4lab verify --dialect " + name +
         " --keep wrong\n"
         "         fp4lab explain --dialect " +
         name + " --kept wrong\n";
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

// Causes that give the bytes as well because they change the same and something unseen beside it.
std::string UnseenText(const SearchResult& causes) {
  std::vector<Cause> more;
  for (std::size_t i = 1; i < causes.exact.size(); ++i) {
    const Cause& cause = causes.exact[i];
    const bool rival =
        std::find(causes.rivals.begin(), causes.rivals.end(), cause) != causes.rivals.end();
    if (!rival) more.push_back(cause);
  }
  if (more.empty()) return "";
  return "       These do so too, and differ where this input does not show it:\n" +
         Listed(more, [](const Cause& c) { return Name(c); });
}

std::string SetsBesideText(const SearchResult& causes) {
  if (causes.sets.empty()) return "";
  return "       The bytes also lie in the sets of answers of approximate dialects:\n" +
         NamesOf(causes.sets);
}

std::string ForcedText(const Explanation& e) {
  const Cause& cause = e.causes.exact[0];
  return "Cause: " + Described(cause) + "\n       With that, all bytes are equal.\n" +
         UnseenText(e.causes) + SetsBesideText(e.causes) + "Do:    " + WhatToDo(cause) + "\n";
}

std::string NotToldApartText(const Kernel& kernel, const Explanation& e) {
  std::vector<Cause> all = {e.causes.exact[0]};
  all.insert(all.end(), e.causes.rivals.begin(), e.causes.rivals.end());
  std::string text = "Cause: not forced by these bytes. All of them follow from each of\n" +
                     Listed(all, Described) + UnseenText(e.causes) + SetsBesideText(e.causes);
  if (e.deciding) {
    const bool all_apart = e.deciding->answers == all.size();
    text += "       The directed case " + e.deciding->name + " tells " +
            (all_apart ? std::string("them")
                       : Plural(e.deciding->answers, "group") + " of the first " +
                             std::to_string(e.deciding->causes)) +
            " apart.\n";
  }
  return text + AskTheCases(kernel);
}

std::string ConsistentText(const Kernel& kernel, const Explanation& e) {
  const SearchResult& causes = e.causes;
  std::string text = "Cause: consistent with: " + Described(causes.exact[0]) +
                     "\n       With that, all bytes are equal. ";
  if (causes.near) {
    text += "But " + Name(causes.near->cause) + " leaves only " +
            Plural(causes.near->blocks_left, "block") + " different.\n";
  } else {
    text += "But only " + Plural(causes.evidence, "independent difference") +
            (causes.evidence == 1 ? " speaks" : " speak") +
            " for it;\n       a cause is stated from " + std::to_string(kEnoughDifferences) +
            " on.\n";
  }
  return text + UnseenText(causes) + SetsBesideText(causes) + AskTheCases(kernel);
}

// Bytes that no single answer explains, but the error of approximate instructions does. So it does
// with every other error of that size.
std::string SetText(const Kernel& kernel, const std::vector<const Dialect*>& sets) {
  return "Cause: consistent with division by approximate instructions (nvcc -use_fast_math): all\n"
         "       bytes lie in the sets of answers of\n" +
         NamesOf(sets) +
         "       So they would with another order of operations or another rule for ties.\n" +
         AskTheCases(kernel) + "       If a set is what you want, judge by it: --dialect " +
         std::string(sets[0]->name) + ".\n";
}

std::string NoCauseText(const Explanation& e) {
  std::string text = "Cause: not found among " + std::to_string(e.causes.tried) +
                     " hypotheses, alone and in pairs.\n";
  if (e.causes.best) {
    const MatchCounts& c = e.causes.best->counts;
    text += "       Nearest: " + Name(e.causes.best->cause) + ", which leaves " +
            Plural(c.codes_differ, "code") + " and " + Plural(c.scales_differ, "scale") +
            " different (of " + Plural(e.counts.codes_differ, "code") + " and " +
            Plural(e.counts.scales_differ, "scale") + " before).\n";
  }
  return text + "Do:    Follow the first stage above at which the two part.\n";
}

}  // namespace

std::string CauseText(const Kernel& kernel, const Explanation& e) {
  switch (e.causes.certainty) {
    case Certainty::kForced:
      return ForcedText(e);
    case Certainty::kNotToldApart:
      return NotToldApartText(kernel, e);
    case Certainty::kTooFew:
    case Certainty::kNearRival:
      return ConsistentText(kernel, e);
    case Certainty::kNone:
      break;
  }
  return e.causes.sets.empty() ? NoCauseText(e) : SetText(kernel, e.causes.sets);
}

}  // namespace fp4lab
