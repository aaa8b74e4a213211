// The tables of formats and dialects as JSON, for programs that read them: `fp4lab formats --json`,
// `fp4lab dialects --json`, the Python package.
#pragma once

#include "fp4lab/dialect/dialect.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/io/json.h"

namespace fp4lab {

// A row of kFormats: name, bits of the fields, bias, and the codes and values at its ends. Keys of
// values that the format lacks are null (min_subnormal) or empty arrays (inf_codes, nan_codes).
Json FormatJson(const NamedFormat& named);

// A row of the table of dialects: the fields that SpelledDialect reads (spelling/dialect_json.h),
// version, source, and "stages": the formula of each stage as text.
Json DialectJson(const Dialect& dialect);

}  // namespace fp4lab
