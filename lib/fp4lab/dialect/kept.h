// Dialects beside the table: formulas of a user, which FindDialect finds by their names.
#pragma once

#include <string_view>

#include "fp4lab/dialect/dialect.h"

namespace fp4lab {

// Keeps a dialect that is no row until the process ends, under a name that no row has. FindDialect
// finds it; Dialects() does not list it. Returns the kept one if there is one of this name.
const Dialect& KeepDialect(Dialect dialect, std::string_view name);

// The dialect of KeepDialect with this name, or nullptr.
const Dialect* FindKept(std::string_view name);

}  // namespace fp4lab
