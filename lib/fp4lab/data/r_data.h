// Reads texts from the data files of R packages, without R.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fp4lab {

// Reads a lazy-load database (R Internals, "Lazy loading"; *.rdb): records of
//   [uncompressed length: 4 bytes, big-endian][zlib stream],
// each a serialized object (R Internals, "Serialization formats"). Returns the bytes of the
// objects. Throws Error for a truncated or corrupt record; `where` is the file.
std::vector<std::string> ReadLazyLoadRecords(std::string_view bytes, const std::string& where);

// Reads a serialized character vector in XDR form, version 2 or 3: "X\n", version, two R versions,
// (version 3: native encoding), then flags with low byte 16, a count, and for each string flags
// with low byte 9, a length and bytes. Returns every string followed by '\n'. Throws Error for
// other objects, NA, and strings marked as Latin-1 or bytes (so that the text is UTF-8 or ASCII).
std::string LinesOfCharacterVector(std::string_view object, const std::string& where);

}  // namespace fp4lab
