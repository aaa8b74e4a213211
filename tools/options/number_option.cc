#include "tools/options/number_option.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "fp4lab/base/parallel.h"
#include "fp4lab/base/text/printable.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/base/text/text.h"

namespace fp4lab::tools {
namespace {

// Reads all of `text` as a number of type T. Returns whether it is one.
template <class T>
bool ReadsAs(std::string_view text, T* value) {
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, *value);
  return error == std::errc() && at == end;
}

std::string Text(double value) {
  char buffer[32];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr};
}

}  // namespace

CLI::Validator WholeNumber(std::int64_t least, std::uint64_t most) {
  const auto check = [least, most](std::string& text) -> std::string {
    std::uint64_t large = 0;
    std::int64_t negative = 0;
    if (ReadsAs(text, &large)) {
      text = std::to_string(large);
      if (large <= most && (least <= 0 || large >= static_cast<std::uint64_t>(least))) return "";
    } else if (ReadsAs(text, &negative) && negative >= least && negative < 0) {
      return "";
    }
    return "\"" + text + "\" is not a whole number from " + std::to_string(least) + " to " +
           std::to_string(most);
  };
  return CLI::Validator(check, "");
}

CLI::Validator ThreadCount() { return WholeNumber(1, kMostThreads); }

CLI::Validator Decimal(double least, double most) {
  const auto check = [least, most](std::string& text) -> std::string {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    const bool whole = !text.empty() && end == text.c_str() + text.size();
    if (whole && value >= least && value <= most) return "";
    return "\"" + text + "\" is not a number from " + Text(least) + " to " + Text(most);
  };
  return CLI::Validator(check, "");
}

CLI::Validator OneOf(std::vector<std::string> words) {
  const std::string known = "{" + Joined(words, ",") + "}";  // tools/help reads the words there
  return {[words = std::move(words)](std::string& text) {
            if (std::find(words.begin(), words.end(), text) != words.end()) return std::string();
            return "\"" + Printable(text) + "\" is not known; " + DidYouMean(text, words);
          },
          known};
}

}  // namespace fp4lab::tools
