// Whole files: read with a clear error, write so that a reader never sees half of one.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fp4lab {

// Error(where, ...) for a name, read from a file, that would break a line.
void RefuseControlCharacters(std::string_view name, std::string_view where);

// Throws Error naming the path.
std::string ReadFile(const std::filesystem::path& path);

// Writes to a temporary file beside `path`, flushes it to disk and renames it over `path`: after a
// crash, a full disk or Ctrl-C the old content stands whole. Creates missing parent folders.
void WriteFileAtomically(const std::filesystem::path& path, std::span<const std::byte> bytes);
void WriteFileAtomically(const std::filesystem::path& path, std::string_view text);

// The same of bytes that come in pieces: `write` gives them to the sink it is called with. What it
// throws leaves the old content, too.
using ByteSink = std::function<void(std::span<const std::byte>)>;
void WriteFileAtomically(const std::filesystem::path& path,
                         const std::function<void(const ByteSink& sink)>& write);

}  // namespace fp4lab
