// A kernel as options of `fp4lab verify`, `explain` and `cases answer`.
#pragma once

#include <string>

#include "fp4lab/judge/kernels/deviation.h"

namespace fp4lab {

// " --dialect nvfp4.te"; a formula of the user's as its JSON text, quoted for a shell.
std::string DialectOption(const Dialect& dialect);

// " --dialect nvfp4.te --codes-order high-first --hadamard 16 --signs 0xD7E8": the dialect, and the
// layout and transform where they are not the default.
std::string CommandOptions(const Kernel& kernel);

}  // namespace fp4lab
