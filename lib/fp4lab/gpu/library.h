// Shared libraries that are loaded when they are needed.
#pragma once

#include <string>

namespace fp4lab::gpu {

// Handle of a library by its file name: where the loader looks, then where CUDA usually is. Error,
// one line, saying what needs it.
void* OpenLibrary(const std::string& name, const std::string& what);

// A function of it. Error if it has none of this name.
void* FindFunction(void* library, const std::string& library_name, const char* name);

}  // namespace fp4lab::gpu
