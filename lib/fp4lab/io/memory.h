// A check, before an allocation, that memory can hold the size that a file states.
#pragma once

#include <cstdint>
#include <string_view>

namespace fp4lab {

// Throws Error(where, ...) if `bytes` exceeds the machine's physical memory or the process's limit
// on address space (ulimit -v), so that the system does not end the process because of a size that
// a file states.
void RequireMemory(std::uintmax_t bytes, std::string_view where);

}  // namespace fp4lab
