// Texts out of the data files of R packages, without R.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fp4lab {

// A lazy-load database (R Internals, "Lazy loading"; *.rdb): records of
//   [length of what follows uncompressed: 4 bytes, big-endian][zlib stream],
// each a serialized object (R Internals, "Serialization formats"). Returns the objects' bytes.
// Error for anything cut short or corrupt; `where` is the file.
std::vector<std::string> ReadLazyLoadRecords(std::string_view bytes, const std::string& where);

// A serialized character vector in XDR form, version 2 or 3: "X\n", version, two R versions,
// (3: native encoding), then flags with low byte 16, a count, and per string flags with low byte 9,
// a length and bytes. Returns every string followed by '\n'. Error for other objects, NA, and
// strings marked as Latin-1 or bytes (so that the text is UTF-8 or ASCII).
std::string LinesOfCharacterVector(std::string_view object, const std::string& where);

}  // namespace fp4lab
