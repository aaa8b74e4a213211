// The token files of llm.c: what its data scripts write, ready-made tokens of any vocabulary.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace fp4lab {

// Little-endian: int32[256] header {20240520, version 1, token count, 0...}, then uint16 tokens
// (llm.c dev/data/data_common.py, write_datafile, "gpt-2"). Error for any other magic, version or
// length, and for a file cut short.
std::vector<std::uint16_t> ReadTokenFile(const std::filesystem::path& path);

}  // namespace fp4lab
