// Whole files: read with a clear error, write so that a reader never sees half of one.
#pragma once

#include <cstddef>
#include <filesystem>
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

}  // namespace fp4lab
