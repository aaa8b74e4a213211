// The boundary to the terminal: nothing that a file or a command line names can move its cursor,
// change its colours or add a line.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "fp4lab/base/printable.h"
#include "fp4lab/io/json.h"

namespace fp4lab::tools {

// As std::printf, to standard output. Control characters but '\n' are spelled out
// (base/printable.h); a name that may hold a '\n' goes in as Printable(name).
[[gnu::format(printf, 1, 2)]] void Print(const char* format, ...);
void PrintText(std::string_view text);
// A document and '\n'; indent < 0: on one line.
void PrintJson(const Json& json, int indent = -1);
// The same to standard error.
[[gnu::format(printf, 1, 2)]] void Note(const char* format, ...);

// What an exception says: an Error as it is; of what only the standard library and nlohmann/json
// throw, what it means here.
std::string TextOf(const std::exception& error);

// "error: ..." on standard error, one line.
void PrintError(std::string_view problem);

// Error("standard output", ...) where not everything that was printed could be written: a full
// disk, a closed descriptor. (A reader that has gone ends the process by SIGPIPE, silently, as
// ever.)
void FlushStandardOutput();

}  // namespace fp4lab::tools
