// Whether memory can hold what a file asks for, said before it is asked for.
#pragma once

#include <cstdint>
#include <string_view>

namespace fp4lab {

// Error(where, ...) where `bytes` are more than the machine has (and than a limit of the process
// allows): a size that a file states is no reason to be ended by the system.
void RequireMemory(std::uintmax_t bytes, std::string_view where);

}  // namespace fp4lab
