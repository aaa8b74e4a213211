#include "fp4lab/gpu/engine/library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <vector>

#include "fp4lab/base/error.h"

namespace fp4lab::gpu {

void* OpenLibrary(const std::string& name, const std::string& what) {
  std::vector<std::string> folders = {"", "/usr/local/cuda/lib64/"};
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* root = std::getenv(variable)) folders.push_back(std::string(root) + "/lib64/");
  }
  for (const std::string& folder : folders) {
    if (void* library = dlopen((folder + name).c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  }
  throw Error("GPU", what + " needs " + name +
                         ", which is not found; install it or set LD_LIBRARY_PATH to its folder");
}

void* FindFunction(void* library, const std::string& library_name, const char* name) {
  void* const function = dlsym(library, name);
  if (function == nullptr) throw Error("GPU", library_name + " has no function " + name);
  return function;
}

}  // namespace fp4lab::gpu
