// Output to the terminal. Names from files and command lines cannot move the cursor, change colours
// or add lines.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "fp4lab/base/text/printable.h"
#include "fp4lab/io/json.h"

namespace fp4lab::tools {

// Prints to standard output as std::printf does. Control characters other than '\n' are spelled out
// (base/text/printable.h); the caller passes a name that may hold a '\n' as Printable(name).
[[gnu::format(printf, 1, 2)]] void Print(const char* format, ...);
void PrintText(std::string_view text);
// The text that std::printf would print.
[[gnu::format(printf, 1, 2)]] std::string Formatted(const char* format, ...);
// Prints a document and '\n'; indent < 0: on one line.
void PrintJson(const Json& json, int indent = -1);
// Print to standard error.
[[gnu::format(printf, 1, 2)]] void Note(const char* format, ...);

// The message of an exception: that of std::bad_alloc and of nlohmann/json's exceptions in fp4lab's
// words, any other as it is.
std::string TextOf(const std::exception& error);

// Prints "error: ..." on standard error, one line.
void PrintError(std::string_view problem);

// Throws Error if not everything that was printed could be written: a full disk, a closed
// descriptor. (A pipe whose reader has gone ends the process by SIGPIPE, without a message, as
// usual.)
void FlushStandardOutput();

}  // namespace fp4lab::tools
