// Shared libraries that are loaded at run time, when they are needed.
#pragma once

#include <string>

namespace fp4lab::gpu {

// Loads a library by its file name, from where the loader looks, then from where CUDA usually is.
// Throws a one-line Error that says that `what` needs the library.
void* OpenLibrary(const std::string& name, const std::string& what);

// The address of a function of a loaded library. Throws Error if the library has no such function.
void* FindFunction(void* library, const std::string& library_name, const char* name);

}  // namespace fp4lab::gpu
