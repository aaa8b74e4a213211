#include "tools/options/print.h"

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <new>

#include "fp4lab/base/error.h"
#include "tools/help/working.h"

namespace fp4lab::tools {
namespace {

[[gnu::format(printf, 1, 0)]] std::string FormattedList(const char* format,
                                                        std::va_list arguments) {
  std::va_list again;
  va_copy(again, arguments);
  const int size = std::vsnprintf(nullptr, 0, format, again);
  va_end(again);
  Expects(size >= 0, "a format for printf");
  std::string text(static_cast<std::size_t>(size) + 1, '\0');
  std::vsnprintf(text.data(), text.size(), format, arguments);
  text.pop_back();
  return text;
}

void Write(std::string_view text, std::FILE* file) {
  file == stdout ? EndWorking() : HideWorking();
  const std::string printable = PrintableLines(text);
  std::fwrite(printable.data(), 1, printable.size(), file);
}

// The text with the middle of words left out that no reader would follow: a typed value of
// thousands of letters fills a terminal and hides the remedy behind it. Paths of usual length stay
// whole.
std::string WithShortWords(const std::string& text) {
  constexpr std::size_t kMost = 400, kFront = 150, kBack = 50;
  const auto starts_letter = [&](std::size_t i) { return (text[i] & 0xC0) != 0x80; };  // of UTF-8
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    std::size_t front = end, back = end;
    if (end - at > kMost) {
      for (front = at + kFront; !starts_letter(front); --front) {
      }
      for (back = end - kBack; !starts_letter(back); ++back) {
      }
    }
    result += text.substr(at, front - at);
    if (back > front) result += "..." + text.substr(back, end - back);
    if (end < text.size()) result += ' ';
    at = end + 1;
  }
  return result;
}

}  // namespace

void Print(const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  Write(FormattedList(format, arguments), stdout);
  va_end(arguments);
}

std::string Formatted(const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  std::string text = FormattedList(format, arguments);
  va_end(arguments);
  return text;
}

void PrintText(std::string_view text) { Write(text, stdout); }

void PrintJson(const Json& json, int indent) {
  PrintText(json.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n");
}

void Note(const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  Write(FormattedList(format, arguments), stderr);
  va_end(arguments);
}

std::string TextOf(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return "out of memory; use smaller inputs or a larger machine";
  }
  if (const auto* json = dynamic_cast<const Json::exception*>(&error)) {
    return "JSON: " + ProblemOf(*json);
  }
  return error.what();
}

void PrintError(std::string_view problem) {
  Note("error: %s\n", WithShortWords(Printable(problem)).c_str());
}

void FlushStandardOutput() {
  errno = 0;
  std::cout.flush();
  const bool failed = std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout;
  if (!failed) return;
  const std::string reason = errno == 0 ? "not everything was taken" : std::strerror(errno);
  std::clearerr(stdout);  // so that the error is reported once
  std::cout.clear();
  throw Error("standard output", "cannot be written: " + reason);
}

}  // namespace fp4lab::tools
